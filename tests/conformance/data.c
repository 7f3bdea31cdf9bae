/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport promises about bytes: all of them, in order, to where they belong. */
#include "tests/conformance/rig.h"

#include <stdio.h>
#include <unistd.h>

static const char small[] = "RING_SHM_BUFFER=4K RING_TCP_SOCKETS=3";

/* Lengths at and around every size at which a transport changes its ways. */
static size_t edges(size_t *len_out)
{
    static const size_t around[] = {8, 64, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288};
    size_t n = 0;
    len_out[n++] = 0;
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        for (size_t off = 0; off < 3; off++)
            len_out[n++] = around[i] + off - 1;
    len_out[n++] = 1;
    len_out[n++] = 3;
    len_out[n++] = 0;
    return n;
}

static void one_by_one(const struct ri_transport *t, const char *settings)
{
    struct rig rig;
    size_t len[64];
    const size_t n = edges(len);
    rig_open(&rig, t, 1, settings);
    for (size_t i = 0; i < n; i++) {
        rig_send(&rig, i & 1, 0, len[i], (uint32_t)i);
        rig_recv(&rig, !(i & 1), 0, len[i], (uint32_t)i, 0);
        rig_run(&rig);
    }
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

CHECK(every_length_alone)
{
    one_by_one(t, "");
    if (rig_repeats(t))
        one_by_one(t, small);
}

static void all_at_once(const struct ri_transport *t, const char *settings, bool receive_first)
{
    struct rig rig;
    size_t len[64];
    const size_t n = edges(len);
    rig_open(&rig, t, 1, settings);
    for (int round = 0; round < 2; round++)
        for (int end = 0; end < 2; end++)
            for (size_t i = 0; i < n; i++)
                if ((round == 0) == receive_first)
                    rig_recv(&rig, end, 0, len[i], (uint32_t)i, 0);
                else
                    rig_send(&rig, end, 0, len[i], (uint32_t)i);
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

CHECK(both_ways_at_once_in_order)
{
    all_at_once(t, "", true);
    all_at_once(t, "", false);
    if (rig_repeats(t)) {
        all_at_once(t, small, true);
        all_at_once(t, small, false);
    }
}

CHECK(forty_megabytes_both_ways)
{
    const size_t len = (size_t)(RIG_SLOW ? 4 : 40) << 20;
    struct rig rig;
    rig_open(&rig, t, 1, small);
    for (int end = 0; end < 2; end++) {
        rig_send(&rig, end, 0, len, 1);
        rig_recv(&rig, end, 0, len, 1, end ? 8 : 0);
    }
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

CHECK(a_thousand_small_ones_in_one_go)
{
    struct rig rig;
    rig_open(&rig, t, 1, "");
    for (uint32_t i = 0; i < 1000; i++) {
        rig_send(&rig, 0, 0, i % 41, i);
        rig_recv(&rig, 1, 0, i % 41, i, i % 7 ? 0 : 1);
    }
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

CHECK(receives_posted_after_the_data_has_come)
{
    struct rig rig;
    rig_open(&rig, t, 1, "");
    for (uint32_t i = 0; i < 20; i++)
        rig_send(&rig, 0, 0, 100 + i, i);
    for (int i = 0; i < 2000 && rig.end[0].out; i++) {
        rig_step(&rig.end[0]);
        rig_step(&rig.end[1]); /* nothing is posted here: it may take nothing from anybody */
    }
    for (uint32_t i = 0; i < 20; i++) {
        rig_recv(&rig, 1, 0, 100 + i, i, 0);
        rig_run(&rig);
    }
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

/* Odd plain messages between those with sinks, so that elements start anywhere in the stream. */
static void sinks(const struct ri_transport *t, const char *settings, uint32_t unit)
{
    static const size_t odd[] = {1, 3, 0, 7, 13, 4095, 70001, 129};
    static const size_t elements[] = {1, 2, 3, 500, 511, 512, 513, 9000, 20000, 40001};
    struct rig rig;
    uint32_t salt = 0;
    rig_open(&rig, t, 1, settings);
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
            rig_send(&rig, 0, 0, odd[k], salt);
            rig_recv(&rig, 1, 0, odd[k], salt++, 0);
            rig_send(&rig, 0, 0, elements[i] * unit, salt);
            rig_recv(&rig, 1, 0, elements[i] * unit, salt++, unit);
        }
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

CHECK(sinks_get_whole_aligned_units_in_order)
{
    for (uint32_t unit = 1; unit <= 8; unit *= 2) {
        sinks(t, "", unit);
        if (rig_repeats(t))
            sinks(t, small, unit);
    }
}

CHECK(empty_messages_keep_their_place)
{
    struct rig rig;
    rig_open(&rig, t, 1, "");
    struct job *big = rig_recv(&rig, 1, 0, 100, 1, 0);
    const struct job *empty = rig_recv(&rig, 1, 0, 0, 2, 0);
    for (int i = 0; i < 100; i++)
        rig_step(&rig.end[1]);
    cr_assert(!big->back && !empty->back);
    rig_send(&rig, 0, 0, 100, 1);
    rig_send(&rig, 0, 0, 0, 2);
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

CHECK(many_links_do_not_mix)
{
    struct rig rig;
    uint64_t state = 7;
    rig_open(&rig, t, RIG_LINKS, small);
    for (uint32_t i = 0; i < 400; i++) {
        const uint32_t link = (uint32_t)(rig_random(&state) % RIG_LINKS);
        const size_t len = rig_random(&state) % (i % 10 ? 300 : 100000);
        const int end = (int)(rig_random(&state) & 1);
        rig_recv(&rig, end, link, len, i, 0);
        rig_send(&rig, !end, link, len, i);
        if (i % 50 == 0)
            rig_run(&rig);
    }
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

/* ---- random schedules against the simplest model: the k-th send meets the k-th receive -------------------------- */

enum { MESSAGES = 120 };

static size_t some_length(uint64_t *state, uint32_t unit)
{
    static const size_t most[] = {0, 9, 100, 5000, 70000, 300000};
    const size_t cap = most[rig_random(state) % 6];
    return rig_random(state) % (cap + 1) / unit * unit;
}

static void random_schedule(const struct ri_transport *t, const char *settings, uint64_t seed)
{
    struct rig rig;
    uint64_t state = seed;
    size_t len[2][MESSAGES];
    uint32_t unit[2][MESSAGES], sent[2] = {0}, received[2] = {0};
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < MESSAGES; i++) {
            const uint32_t u = (uint32_t)(rig_random(&state) % 8);
            unit[d][i] = u < 4 ? 1u << u : 0;
            len[d][i] = some_length(&state, unit[d][i] ? unit[d][i] : 1);
        }
    rig_open(&rig, t, 1, settings);
    while (sent[0] + sent[1] + received[0] + received[1] < 4 * MESSAGES) {
        const int d = (int)(rig_random(&state) & 1); /* messages of direction d go from end d to end !d */
        const uint64_t what = rig_random(&state) % 4;
        if (what == 0 && sent[d] < MESSAGES) {
            rig_send(&rig, d, 0, len[d][sent[d]], sent[d]);
            sent[d]++;
        } else if (what == 1 && received[d] < MESSAGES) {
            rig_recv(&rig, !d, 0, len[d][received[d]], received[d], unit[d][received[d]]);
            received[d]++;
        } else {
            rig_step(&rig.end[d]);
        }
    }
    rig_run(&rig);
    rig_expect_all(&rig, RING_OK);
    rig_close(&rig);
}

CHECK(random_schedules)
{
    const char *given = getenv("SEED");
    const uint64_t first = given ? strtoull(given, NULL, 0) : (uint64_t)getpid() * 1000;
    for (uint64_t seed = first; seed < first + (given ? 1 : RIG_SLOW ? 2 : 12); seed++) {
        fprintf(stderr, "%s: SEED=%llu\n", t->name, (unsigned long long)seed);
        random_schedule(t, seed & 1 ? small : "", seed);
    }
}
