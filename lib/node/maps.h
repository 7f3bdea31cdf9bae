/* SPDX-License-Identifier: Apache-2.0 */
/* maps.h - what the kernel says is mapped at an address range of this process (/proc/self/maps). */
#ifndef RI_MAPS_H
#define RI_MAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <ring/ring.h>

struct ri_mapping {
    uintptr_t begin, end; /* cut to the range that was asked for */
    bool readable, writable, shared;
    bool anonymous; /* no file; the main stack and the heap are anonymous */
    bool locked;    /* in memory (mlock) */
    uint64_t inode, offset;
    char name[64];
};

/* Called for each mapping in the range, in order; a status that is not RING_OK ends it. */
typedef ring_status_t ri_mapping_fn(void *arg, const struct ri_mapping *mapping);

ring_status_t ri_maps_each(uintptr_t begin, uintptr_t end, ri_mapping_fn *fn, void *arg);

#endif
