/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - when stores that pass the caches pay.
 *
 * A plain store first reads its line into the cache, and pushes another one out.  That is wanted while what is touched
 * stays near until it is used again.  Once it does not, the reading is in vain: a store past the caches then moves two
 * thirds of the bytes of a sum, and what it moves arrives in memory, not in another cache.
 *
 * How near is near enough?  What fits the second-level cache of the processor that uses it is never stored past it, and
 * what all ranks of the host touch together is always, when it is more than the last cache, which they share.  Between
 * these two sizes it depends on the last cache, and no description says on what: where it is fast and holds all, plain
 * stores win up to its size; where it is a slow one for dozens of cores, of which a virtual machine sees the whole size
 * and has a share, they lose as soon as the second level is left.  So that is measured, by the sum that is to be
 * stored: plain and past the caches in turns, over twice the second-level cache, the fastest of each.  Twice is enough
 * to leave it and so little that it takes about 4 ms, most of it for the memory.  (On a virtual Xeon with 2 MiB
 * of second-level cache and 260 MiB of last-level cache stores past the caches take 0.7 to 0.8 of the time there, 1.1
 * to 1.3 at half the size, and 0.55 at sixteen times the size; so a tenth is a clear win.)
 *
 * Measured by the first that asks about such a size; of two threads that ask at once the first to know is right.
 * Ranks may come to different answers: it concerns speed only.  Without memory to measure in, plain is right up to the
 * last cache; where no cache is described, always.  Any thread. */
#include "lib/reduce/reduce.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

enum { TURNS = 3, PAGE = 4096, CACHES = 16 };

/* ---- what the system describes --------------------------------------------------------------------------------- */

/* A number that describes the cache of processor 0 with this index, in bytes if it has a unit; 0: there is none. */
static size_t described(int index, const char *what)
{
    char path[80], unit = 0;
    unsigned long number = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, what);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    const int read = fscanf(f, "%lu%c", &number, &unit);
    fclose(f);
    return read < 1 ? 0 : number << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
}

static size_t known_to_libc(int name)
{
    const long size = sysconf(name);
    return size > 0 ? (size_t)size : 0;
}

/* What libc works out from the processor alone is larger than the share that a virtual machine has of it, so the
 * system's description counts first. */
static size_t look_up_last(void)
{
    size_t most = 0;
    for (int i = 0; i < CACHES; i++) {
        const size_t size = described(i, "size");
        most = size > most ? size : most;
    }
#ifdef _SC_LEVEL3_CACHE_SIZE
    static const int names[] = {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE};
    for (int level = 0; level < 3 && !most; level++)
        most = known_to_libc(names[level]);
#endif
    return most;
}

static size_t look_up_second(void)
{
    size_t size = 0;
    for (int i = 0; i < CACHES && !size; i++)
        size = described(i, "level") == 2 ? described(i, "size") : 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    size = size ? size : known_to_libc(_SC_LEVEL2_CACHE_SIZE);
#endif
    return size;
}

/* Looked up once.  `known` has 1 more, so that it is not 0; two threads find the same. */
static size_t once(_Atomic size_t *known, size_t (*look_up)(void))
{
    size_t size = atomic_load_explicit(known, memory_order_relaxed);
    if (!size) {
        size = look_up() + 1;
        atomic_store_explicit(known, size, memory_order_relaxed);
    }
    return size - 1;
}

size_t ri_cache_bytes(void)
{
    static _Atomic size_t known;
    return once(&known, look_up_last);
}

size_t ri_second_cache_bytes(void)
{
    static _Atomic size_t known;
    return once(&known, look_up_second);
}

/* ---- what is measured ------------------------------------------------------------------------------------------ */

enum answer { NOT_ASKED, PLAIN, PAST };

static enum answer measure(size_t footprint)
{
    const size_t part = footprint / 3 / PAGE * PAGE;
    unsigned char *memory = part ? ri_new_aligned(PAGE, 3 * part) : NULL;
    if (!memory)
        return PLAIN;
    const struct ri_reduction r = ri_reduction_for(RING_FLOAT, RING_SUM);
    struct ri_combine c = {.from = (const void *[]){memory, memory + part},
                           .to = (void *[]){memory + 2 * part},
                           .n = 2,
                           .outs = 1,
                           .count = part / r.esize};
    uint64_t least[2] = {UINT64_MAX, UINT64_MAX};
    for (int i = 0; i < 2 * TURNS; i++) {
        c.stream = i % 2;
        const uint64_t from = ri_now();
        r.combine(&r, &c);
        const uint64_t took = ri_now() - from;
        least[i % 2] = took < least[i % 2] ? took : least[i % 2];
    }
    ri_free(memory);
    return least[1] < least[0] - least[0] / 10 ? PAST : PLAIN;
}

static bool past_wins(size_t footprint)
{
    static _Atomic int known;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == NOT_ASKED) {
        const int mine = measure(footprint);
        if (atomic_compare_exchange_strong(&known, &answer, mine))
            answer = mine;
    }
    return answer == PAST;
}

bool ri_stream_pays(size_t own, uint32_t ranks)
{
    const size_t second = ri_second_cache_bytes(), last = ri_cache_bytes();
    if (own <= second || !last)
        return false;
    return own > last / ranks || (second && past_wins(2 * second));
}
