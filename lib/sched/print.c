/* SPDX-License-Identifier: Apache-2.0 */
/* print.c - a program as text, one step a line, for people and for golden tests.
 *
 *     0  send         src[0,40) to 1
 *     1  recv_reduce  dst[40,80) = src[40,80) op from 2  after 0
 *
 *     2  combine      dst[0,8) = 3 operands tmp[0,8) + 64 k, operand 1 src[0,8), final  after 1
 *
 * Spans are half-open and in bytes. */
#include "lib/sched/sched.h"

#include <inttypes.h>

static void span(FILE *out, struct ri_span x)
{
    static const char *const name[] = {"src", "dst", "tmp"};
    fprintf(out, "%s[%zu,%zu)", name[x.slot], x.off, x.off + x.len);
}

static void effect(FILE *out, const struct ri_step *p)
{
    if (p->op != RI_JOIN)
        span(out, p->op == RI_SEND ? p->a : p->dst);
    switch (p->op) {
    case RI_SEND:
        fprintf(out, " to %" PRIu32, p->peer);
        break;
    case RI_RECV:
        fprintf(out, " from %" PRIu32, p->peer);
        break;
    case RI_RECV_REDUCE:
        if (p->swap)
            fprintf(out, " = from %" PRIu32 " op ", p->peer);
        else
            fputs(" = ", out);
        span(out, p->a);
        if (!p->swap)
            fprintf(out, " op from %" PRIu32, p->peer);
        break;
    case RI_COPY:
    case RI_REDUCE:
        fputs(" = ", out);
        span(out, p->a);
        if (p->op == RI_REDUCE) {
            fputs(" op ", out);
            span(out, p->b);
        }
        break;
    case RI_COMBINE:
        fprintf(out, " = %" PRIu32 " operands ", p->n);
        span(out, p->b);
        fprintf(out, " + %zu k, operand %" PRIu32 " ", p->stride, p->own);
        span(out, p->a);
        break;
    case RI_JOIN:
        break;
    }
}

void ri_sched_print(const struct ri_sched *s, FILE *out)
{
    static const char *const name[] = {"send", "recv", "recv_reduce", "copy", "reduce", "combine", "join"};
    for (uint32_t i = 0; i < s->n; i++) {
        const struct ri_step *p = &s->step[i];
        fprintf(out, "%5" PRIu32 "  %-11s  ", i, name[p->op]);
        effect(out, p);
        if (p->final)
            fputs(", final", out);
        for (int d = 0, said = 0; d < 2; d++)
            if (p->after[d] != RI_NONE)
                fprintf(out, "%s%" PRIu32, said++ ? ", " : "  after ", p->after[d]);
        fputc('\n', out);
    }
}
