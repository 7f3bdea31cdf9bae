/* SPDX-License-Identifier: Apache-2.0 */
/* meet.h - which ports of the two ends a link uses, and by which addresses. */
#ifndef RI_VERBS_MEET_H
#define RI_VERBS_MEET_H

#include "lib/base/pack.h"
#include "transports/verbs/ctx.h"

/* The ports of this end, as they are now. */
void verbs_meet_say(struct verbs_link *l, struct ri_packer *p);
/* Those of the peer: rails and routes of the link.  RING_ERR_UNSUPPORTED: no two of them can be joined. */
ring_status_t verbs_meet_hear(struct verbs_link *l, struct ri_unpacker *u);
/* The error of a registration of so many bytes that was refused, errno. */
ring_status_t verbs_meet_no_memory(const struct verbs_rail *rail, size_t bytes);
uint32_t verbs_meet_psn(void); /* random, 24 bits */

#endif
