/* SPDX-License-Identifier: Apache-2.0 */
/* RING_ALGO.  What is refused is refused with the variable's name and leaves the rules alone; what is taken names
 * things that exist, in ranges of which at most one serves a call. */
#include <string.h>

#include "fuzz.h"
#include "lib/base/conf.h"
#include "lib/base/error.h"
#include "lib/coll/rules.h"

static void look_up(const struct ri_rules *rules, ring_coll_t coll, uint64_t bytes)
{
    const char *name = ri_rules_find(rules, coll, bytes);
    uint32_t own = 0;
    HOLDS(!name || !strcmp(name, "node") || ri_algorithm_named(coll, name));
    for (uint32_t i = 0; i < rules->n; i++)
        own += !rules->rule[i].any && rules->rule[i].coll == coll && rules->rule[i].from <= bytes &&
               bytes < rules->rule[i].to;
    HOLDS(own <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct ri_rules rules, before;
    char text[RI_CONF_TEXT_MAX] = "";
    memcpy(text, bytes, len < sizeof text ? len : sizeof text - 1);
    before = rules;
    if (ri_rules_parse(text, &rules)) {
        HOLDS(strstr(ri_error_get(), "RING_ALGO") != NULL);
        HOLDS(!memcmp(&rules, &before, sizeof rules));
        return 0;
    }
    HOLDS(rules.n >= 1 && rules.n <= RI_RULES_MAX);
    for (uint32_t i = 0; i < rules.n; i++) {
        HOLDS(rules.rule[i].from < rules.rule[i].to);
        for (unsigned coll = 0; coll <= RING_RECV; coll++) {
            look_up(&rules, (ring_coll_t)coll, rules.rule[i].from);
            look_up(&rules, (ring_coll_t)coll, rules.rule[i].to - 1);
            look_up(&rules, (ring_coll_t)coll, rules.rule[i].to);
        }
    }
    return 0;
}
