/* SPDX-License-Identifier: Apache-2.0 */
/* figures.h - what was measured of links, and what it says of messages.  Arithmetic only; model.c measures.
 *
 * Times in nanoseconds; 0: no rank has such a link. */
#ifndef RI_FIGURES_H
#define RI_FIGURES_H

#include "lib/coll/coll.h"

enum { RI_FIGURE_BURST = 8, RI_FIGURE_LARGE = 256 << 10 };

struct ri_class {
    double small; /* one small message each way                    */
    double burst; /* RI_FIGURE_BURST of them                       */
    double large; /* one of RI_FIGURE_LARGE bytes                  */
    double round; /* one small message, all in the same direction  */
};

/* Doubles only, because ranks take the largest of each. */
struct ri_figures {
    struct ri_class far, near; /* links across hosts, and within one */
    double reduce_byte;
    double took; /* all of the measurement until now */
};

/* Whether no other program can have spoilt them.  crowd: ranks of the fullest host. */
bool ri_figures_believable(const struct ri_figures *f, uint32_t crowd);

/* Change in m what the figures tell; what cannot be believed leaves m as it is. */
void ri_figures_apply(const struct ri_figures *f, uint32_t crowd, struct ri_cost_model *m);

#endif
