/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"

enum { LOOK_AT_CLOCK_EVERY = 64 };

_Atomic(ri_meanwhile_fn *) ri_wait_meanwhile;

void ri_processors_get(struct ri_processors *set_out)
{
    cpu_set_t set;
    *set_out = (struct ri_processors){{1}};
    if (sched_getaffinity(0, sizeof set, &set))
        return;
    set_out->word[0] = 0;
    for (size_t i = 0; i < 64 * RI_PROCESSOR_WORDS && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            set_out->word[i / 64] |= UINT64_C(1) << i % 64;
}

uint32_t ri_processors_count(const struct ri_processors *set)
{
    uint32_t n = 0;
    for (size_t i = 0; i < RI_PROCESSOR_WORDS; i++)
        n += (uint32_t)__builtin_popcountll(set->word[i]);
    return n;
}

/* A pause is about 40 to 140 cycles, so 2000 of them are some 50 to 100 us: longer than a healthy exchange takes, and
 * far shorter than a scheduler slice.  8000 yields are some 4 ms, which is longer than a slice: so a rank whose peer
 * has lost its processor to another program for one does not fall asleep, for which the scheduler would move the peer
 * to this rank's processor and leave both there.  Yields are kept few when ranks share processors, because a rank that
 * yields among sleepers only burns the time of those who have work. */
struct ri_patience ri_patience_for(uint32_t local_ranks, uint32_t processors)
{
    if (local_ranks <= processors)
        return (struct ri_patience){.spins = 2000, .yields = 8000};
    return (struct ri_patience){.spins = 0, .yields = 20};
}

void ri_wait_begin(struct ri_wait *w, const ri_abort_word *abort, uint64_t deadline, struct ri_patience patience)
{
    *w = (struct ri_wait){.abort = abort, .deadline = deadline, .patience = patience};
}

static void nap(int ms)
{
    struct timespec t = {.tv_nsec = (ms < 1 ? 0 : 1) * 1000000L};
    nanosleep(&t, NULL);
}

static int time_left_ms(const struct ri_wait *w, uint64_t now)
{
    const uint64_t left = (w->deadline - now + RI_MILLISECOND - 1) / RI_MILLISECOND;
    return left < RI_WAIT_SLEEP_MS ? (int)left : RI_WAIT_SLEEP_MS;
}

ring_status_t ri_wait_round(struct ri_wait *w, ri_sleep_fn *sleep, void *arg)
{
    if (w->abort && atomic_load_explicit(w->abort, memory_order_acquire))
        return RING_ERR_ABORTED;
    const uint32_t round = w->round++;
    if (round < w->patience.spins) {
        ri_pause();
        if (round % LOOK_AT_CLOCK_EVERY || w->deadline == RI_NEVER)
            return RING_OK;
        return ri_now() >= w->deadline ? RING_ERR_TIMEOUT : RING_OK;
    }
    const uint64_t now = ri_now();
    if (now >= w->deadline)
        return RING_ERR_TIMEOUT;
    const int most = ri_wait_look_after_others();
    if (round < w->patience.spins + w->patience.yields) {
        sched_yield();
        return RING_OK;
    }
    w->round = w->patience.spins + w->patience.yields; /* stays here: no wrap */
    const int left = time_left_ms(w, now), ms = left < most ? left : most;
    if (!most)
        return RING_OK;
    if (sleep)
        sleep(arg, ms);
    else
        nap(ms);
    return RING_OK;
}

void ri_word_sleep(_Atomic uint32_t *word, uint32_t seen, int ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
}

void ri_word_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

bool ri_barrier_ready(void) { return !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0); }

void ri_barrier_everywhere(void) { syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0); }
