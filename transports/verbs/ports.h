/* SPDX-License-Identifier: Apache-2.0 */
/* ports.h - the devices of a context: opened, and what they have to say. */
#ifndef RI_VERBS_PORTS_H
#define RI_VERBS_PORTS_H

#include <stdio.h>

#include "transports/verbs/ctx.h"

bool verbs_ports_usable(const struct ri_conf *conf, char *why_out, size_t cap);
bool verbs_ports_blocked(const struct ri_conf *conf);
void verbs_ports_explain(const struct ri_conf *conf, FILE *out);
/* c->rail, c->rails; what was opened is closed by verbs_ports_close(), also after a failure. */
ring_status_t verbs_ports_open(struct verbs_ctx *c);
void verbs_ports_close(struct verbs_ctx *c);
void verbs_ports_event(struct verbs_rail *rail);                        /* its channel is readable             */
void verbs_ports_trouble(struct verbs_ctx *c, struct verbs_rail *rail); /* its device has something to say     */
/* All links that use it. */
void verbs_ports_break(struct verbs_ctx *c, const struct verbs_rail *rail, const char *why);

#endif
