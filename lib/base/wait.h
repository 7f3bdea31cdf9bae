/* SPDX-License-Identifier: Apache-2.0 */
/* wait.h - the one way to wait.
 *
 * A wait is a loop of the caller's: look whether the thing has come, else call ri_wait_round() and look again.  The
 * round does, in this order as time goes by: a processor pause (only where ranks do not outnumber the processors this
 * process may use), a yield, a sleep.  How to sleep is the caller's choice: on a word in shared memory (futex) or on
 * descriptors (poll).  No sleep is longer than 50 ms, each round looks at the abort word, and the deadline ends the
 * wait: so nothing built on this can hang.
 *
 *     struct ri_wait w;
 *     ri_wait_begin(&w, abort, deadline, patience);
 *     while (!come(...))
 *         if ((status = ri_wait_round(&w, sleep, arg)))
 *             return status;
 *
 * Sleepers must be raceless: after they have said that they sleep (a flag the other side looks at), they look once
 * more.
 *
 * Rounds that do not spin also look after what else the thread has under way (ri_wait_meanwhile). */
#ifndef RI_WAIT_H
#define RI_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <ring/ring.h>

/* How a failure reaches everybody who waits: zero while all is well; the first to change it wins.  The word may live in
 * memory shared by the ranks of a host.  What it means is lib/comm's business; here it only ends waits. */
typedef _Atomic uint32_t ri_abort_word;

/* What the machine allows, found once: rounds of each kind before the next. */
struct ri_patience {
    uint32_t spins;  /* processor pauses; 0 when ranks outnumber processors */
    uint32_t yields; /* sched_yield calls after that, before sleeping       */
};
struct ri_patience ri_patience_for(uint32_t local_ranks, uint32_t processors);

/* The processors that a process may use, a bit each; beyond the last bit there are none. */
enum { RI_PROCESSOR_WORDS = 16 };
struct ri_processors {
    uint64_t word[RI_PROCESSOR_WORDS];
};
void ri_processors_get(struct ri_processors *set_out);
uint32_t ri_processors_count(const struct ri_processors *set);

struct ri_wait {
    const ri_abort_word *abort;
    uint64_t deadline; /* ri_clock; RI_NEVER for none */
    struct ri_patience patience;
    uint32_t round;
};

enum { RI_WAIT_SLEEP_MS = 50 };

/* NULL: there is nothing to look after.  Returns for how many milliseconds nothing there needs another look; 0 when
 * something moved, so that the thread does not sleep. */
typedef int ri_meanwhile_fn(void);
extern _Atomic(ri_meanwhile_fn *) ri_wait_meanwhile;
static inline int ri_wait_look_after_others(void)
{
    ri_meanwhile_fn *look = atomic_load_explicit(&ri_wait_meanwhile, memory_order_relaxed);
    return look ? look() : RI_WAIT_SLEEP_MS;
}

/* abort may be NULL (no communicator yet). */
void ri_wait_begin(struct ri_wait *w, const ri_abort_word *abort, uint64_t deadline, struct ri_patience patience);

/* Something happened: start again with spinning. */
static inline void ri_wait_reset(struct ri_wait *w) { w->round = 0; }

/* Sleep until woken or at most ms milliseconds; called only when spinning and yielding did not help. */
typedef void ri_sleep_fn(void *arg, int ms);

/* RING_OK: look again.  RING_ERR_ABORTED: the abort word is set (the caller finds the real cause there).
 * RING_ERR_TIMEOUT: the deadline has passed; no sentence is written, the caller knows what it waited for.
 * sleep NULL: plain sleep of at most 1 ms a round. */
ring_status_t ri_wait_round(struct ri_wait *w, ri_sleep_fn *sleep, void *arg);

/* Futex on a word of shared memory; the waker calls ri_word_wake() after changing it. */
void ri_word_sleep(_Atomic uint32_t *word, uint32_t seen, int ms);
void ri_word_wake(_Atomic uint32_t *word);

/* A full memory barrier on every running thread of every process that has said ready, as if each had made it itself:
 * what these then need no instruction for, the one who waits pays, some microseconds.  ready: false where the kernel
 * has none (before 4.16, or forbidden); then nobody may rely on it. */
bool ri_barrier_ready(void);
void ri_barrier_everywhere(void);

static inline void ri_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
