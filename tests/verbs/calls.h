/* SPDX-License-Identifier: Apache-2.0 */
/* calls.h - the functions of libibverbs that a test makes fail, one after the other. */
#ifndef TESTS_VERBS_CALLS_H
#define TESTS_VERBS_CALLS_H

#include <stdbool.h>

/* gives: what it should give back stays when it fails, so nobody looks for what is left. */
struct provider_call {
    const char *name;
    bool gives;
};
enum { PROVIDER_CALLS = 26 };
extern const struct provider_call provider_calls[PROVIDER_CALLS];

#endif
