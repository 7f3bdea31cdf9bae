/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h - heap memory.  One door, so that tests can make the n-th allocation fail (ri_mem_fail_at). */
#ifndef RI_MEM_H
#define RI_MEM_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed; NULL when there is none (also when count * size overflows). */
void *ri_new(size_t count, size_t size);
/* Contents are kept, the rest is not zeroed; on failure p stays valid. */
void *ri_resize(void *p, size_t count, size_t size);
/* Zeroed and aligned to `align` bytes (a power of two). */
void *ri_new_aligned(size_t align, size_t bytes);
void ri_free(void *p);

/* For tests: the n-th allocation from now (1 is the next) and all later ones fail; 0 switches this off. */
void ri_mem_fail_at(uint64_t n);
uint64_t ri_mem_count(void); /* allocations so far */

#endif
