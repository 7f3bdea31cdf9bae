/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - monotonic time in nanoseconds.  A deadline is a point on this clock; RI_NEVER has none. */
#ifndef RI_CLOCK_H
#define RI_CLOCK_H

#include <stdint.h>
#include <time.h>

#define RI_NEVER UINT64_MAX
#define RI_SECOND UINT64_C(1000000000)
#define RI_MILLISECOND UINT64_C(1000000)

static inline uint64_t ri_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * RI_SECOND + (uint64_t)t.tv_nsec;
}

static inline uint64_t ri_deadline(uint64_t from_now)
{
    const uint64_t now = ri_now();
    return from_now > RI_NEVER - now ? RI_NEVER : now + from_now;
}

static inline uint64_t ri_time_left(uint64_t deadline)
{
    const uint64_t now = ri_now();
    return deadline == RI_NEVER ? RI_NEVER : deadline > now ? deadline - now : 0;
}

#endif
