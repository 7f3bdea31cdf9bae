/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - when stores that pass the caches pay.
 *
 * A plain store first reads its line into the cache, and pushes another one out.  That is wanted while what is touched
 * stays in the caches until it is used again.  Once all that is touched between two uses of a line is more than the
 * last cache holds, the reading is in vain: a store past the caches then moves two thirds of the bytes of a sum.  So
 * the size decides, against the last cache of this processor as the system describes it; where it does not, nothing is
 * streamed. Looked up once; any thread. */
#include "lib/reduce/reduce.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* Of the cache of processor 0 with this index, in bytes; 0 when there is none. */
static size_t described(int index)
{
    char path[80], unit = 0;
    unsigned long size = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    const int read = fscanf(f, "%lu%c", &size, &unit);
    fclose(f);
    return read < 1 ? 0 : size << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
}

/* What libc works out from the processor alone is larger than the share that a virtual machine has of it, so the
 * system's description counts first. */
static size_t look_up(void)
{
    size_t most = 0;
    for (int i = 0; i < 16; i++) {
        const size_t size = described(i);
        most = size > most ? size : most;
    }
#ifdef _SC_LEVEL3_CACHE_SIZE
    for (int level = 0; level < 3 && !most; level++) {
        static const int names[] = {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE};
        const long size = sysconf(names[level]);
        most = size > 0 ? (size_t)size : 0;
    }
#endif
    return most;
}

size_t ri_cache_bytes(void)
{
    static _Atomic size_t known; /* and 1, so that it is not 0; two threads find the same */
    size_t size = atomic_load_explicit(&known, memory_order_relaxed);
    if (!size) {
        size = look_up() + 1;
        atomic_store_explicit(&known, size, memory_order_relaxed);
    }
    return size - 1;
}

bool ri_stream_pays(size_t footprint)
{
    const size_t cache = ri_cache_bytes();
    return cache && footprint > cache;
}
