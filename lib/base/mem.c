/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t made, fail_from;

static bool refused(void)
{
    const uint64_t n = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1;
    const uint64_t from = atomic_load_explicit(&fail_from, memory_order_relaxed);
    return from && n >= from;
}

void ri_mem_fail_at(uint64_t n) { atomic_store(&fail_from, n ? atomic_load(&made) + n : 0); }

uint64_t ri_mem_count(void) { return atomic_load(&made); }

void *ri_new(size_t count, size_t size) { return refused() ? NULL : calloc(count ? count : 1, size ? size : 1); }

void *ri_resize(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || refused())
        return NULL;
    return realloc(p, bytes ? bytes : 1);
}

void *ri_new_aligned(size_t align, size_t bytes)
{
    if (refused() || bytes > SIZE_MAX - align)
        return NULL;
    const size_t whole = (bytes + align - 1) / align * align;
    void *p = aligned_alloc(align, whole ? whole : align);
    return p ? memset(p, 0, whole) : NULL;
}

void ri_free(void *p) { free(p); }
