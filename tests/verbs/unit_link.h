/* SPDX-License-Identifier: Apache-2.0 */
/* unit_link.h - what the tests of links share: two ends (tests/conformance) over devices that obey (provider.h). */
#ifndef TESTS_VERBS_UNIT_LINK_H
#define TESTS_VERBS_UNIT_LINK_H

#include "tests/conformance/rig.h"
#include "tests/verbs/provider.h"

/* Fewer rounds where a sanitizer looks at each step; it sees in one what it would see in all. */
#ifdef __SANITIZE_ADDRESS__
#define LINK_SLOW 1
#else
#define LINK_SLOW RIG_SANITIZED
#endif

typedef void shape_fn(struct provider_world *w);

/* Devices of all kinds, and settings for the links over them. */
struct link_kind {
    const char *name;
    shape_fn *change;
    const char *settings;
};
enum { LINK_KINDS = 15 };
extern const struct link_kind link_kinds[LINK_KINDS];

/* The default world of this seed, changed; NULL: as it is. */
void link_world(uint64_t seed, shape_fn *change);
void link_change(shape_fn *change);
struct provider_counters link_counted(void);
const struct ri_transport *link_transport(void);

/* One message each way, so the link is up. */
void link_meet(struct rig *rig);
/* All of that: a link that is up, over such devices. */
void link_open(struct rig *rig, uint64_t seed, shape_fn *change, const char *settings);
/* End 1 goes, and what it had posted counts as lost. */
void link_leave(struct rig *rig);

/* What the ends take for the caller's registered memory; whoever changes it changes the number, which is even. */
extern struct ri_region link_regions[2];
extern uint32_t link_regions_changed;
bool link_find_region(const void *at, size_t bytes, struct ri_region *region_out);
uint32_t link_regions_version(void);

/* `n` messages each way of up to `most` bytes. */
void link_post(struct rig *rig, uint64_t *random, uint32_t n, size_t most);
/* Steps until all jobs are back; false: not within so many milliseconds. */
bool link_run(struct rig *rig, unsigned ms);
/* Every job is back, and lost or whole; how many are lost. */
unsigned link_judge(struct rig *rig);

/* As rig_close(), but what is left and what was wrong is not looked at. */
void link_put_away(struct rig *rig);

/* What is logged goes to a file meanwhile, and then to text_out. */
int link_listen(int *kept_out);
void link_heard(int file, int kept, char *text_out, size_t cap);
unsigned link_times_said(const char *text, const char *what);

#endif
