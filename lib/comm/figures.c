/* SPDX-License-Identifier: Apache-2.0 */
/* figures.c - from times of messages to the cost model, and which times cannot be, see figures.h.
 *
 * A rank that loses its processor to another program for a slice of some milliseconds in every try has measured the
 * slice.  Such figures contradict each other (a large message in no more time than a small one), or are far from what
 * memory of one host does.  Across hosts nothing is known of how slow a link may be, so only the first is asked. */
#include "lib/comm/figures.h"

/* No link is as fast as the first, in nanoseconds a byte.  The others are for each rank of a host, which may all share
 * one processor: some ten times what loopback takes. */
static const double LEAST_BYTE = 0.01, MOST_SMALL = 100e3, MOST_LARGE = 1e6;

static double above(double x, double least) { return x > least ? x : least; }

static double below(double x, double most) { return x < most ? x : most; }

/* One message takes no longer than some, and some no longer than one after the other. */
static struct ri_class tidy(struct ri_class x)
{
    x.small = below(x.small, x.burst);
    x.burst = below(x.burst, RI_FIGURE_BURST * x.small);
    return x;
}

static bool there(const struct ri_class *x) { return x->small > 0; }

static bool consistent(const struct ri_class *x) { return tidy(*x).small + LEAST_BYTE * RI_FIGURE_LARGE <= x->large; }

static bool near_possible(const struct ri_class *x, uint32_t crowd)
{
    return consistent(x) && tidy(*x).small <= MOST_SMALL * crowd && x->large <= MOST_LARGE * crowd;
}

bool ri_figures_believable(const struct ri_figures *f, uint32_t crowd)
{
    return (!there(&f->far) || consistent(&f->far)) && (!there(&f->near) || near_possible(&f->near, crowd));
}

static double message_of(struct ri_class x) { return above((x.burst - x.small) / (2 * (RI_FIGURE_BURST - 1)), 20); }

/* The message's own cost is known. */
static void fit(struct ri_class x, double *latency, double *byte)
{
    const double one = x.round > 0 ? below(x.round, x.small) : x.small;
    *latency = above(one - 2 * message_of(x), one / 4);
    *byte = (x.large - x.small) / RI_FIGURE_LARGE;
}

static void set_pace(struct ri_class x, struct ri_cost_model *m)
{
    m->message = message_of(x);
    m->link = x.round > 0 ? above(x.small - x.round - 2 * m->message, 0) : 0;
    fit(x, &m->latency, &m->byte);
}

void ri_figures_apply(const struct ri_figures *f, uint32_t crowd, struct ri_cost_model *m)
{
    const bool far = there(&f->far), near = there(&f->near) && near_possible(&f->near, crowd);
    m->reduce_byte = f->reduce_byte;
    if (far ? consistent(&f->far) : near)
        set_pace(tidy(far ? f->far : f->near), m);
    if (near)
        fit(tidy(f->near), &m->near_latency, &m->near_byte);
    else if (!there(&f->near)) {
        m->near_latency = m->latency;
        m->near_byte = m->byte;
    }
}
