/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h - what every target under tests/fuzz offers, and how it says that something is wrong.
 *
 * A target gets bytes from outside as they are.  It must not crash, read outside of them or loop, whatever they are,
 * and what it accepts must have the properties that HOLDS() states.  With -Dfuzz=true (clang) libFuzzer drives it;
 * otherwise driver.c feeds it the kept corpus and seeded mutations of it. */
#ifndef RI_FUZZ_H
#define RI_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static inline void ri_fuzz_holds(int yes, const char *what)
{
    if (!yes) {
        fprintf(stderr, "does not hold: %s\n", what);
        abort();
    }
}
#define HOLDS(condition) ri_fuzz_holds((condition) ? 1 : 0, #condition)

#endif
