/* SPDX-License-Identifier: Apache-2.0 */
/* hca.c - see hca.h. */
#include "transports/verbs/hca.h"

#include <string.h>

#include "lib/base/conf.h"
#include "lib/base/error.h"

/* 1 to 255 in at most three digits; 0 when it is none. */
static uint8_t port_of(const char *text, size_t len)
{
    unsigned port = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || i == 3)
            return 0;
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    return port <= UINT8_MAX ? (uint8_t)port : 0;
}

static bool take(const char *text, size_t len, struct verbs_hca_word *word)
{
    const char *colon = memchr(text, ':', len);
    const size_t name = colon ? (size_t)(colon - text) : len;
    if (!name || name >= sizeof word->name)
        return false;
    for (size_t i = 0; i < name; i++)
        if (text[i] <= ' ' || text[i] > '~' || strchr("/^=", text[i]))
            return false;
    memcpy(word->name, text, name);
    word->port = colon ? port_of(colon + 1, len - name - 1) : 0;
    return !colon || word->port;
}

ring_status_t verbs_hca_parse(const char *spec, struct verbs_hca *hca_out)
{
    struct verbs_hca hca = {.exclude = *spec == '^'};
    const char *w = spec + hca.exclude;
    bool good = true;
    hca.exact = *w == '=';
    w += hca.exact;
    for (size_t n; good && !ri_conf_is_auto(spec); w += n + 1) {
        n = strcspn(w, ",");
        good = hca.count < VERBS_HCA_WORDS && take(w, n, &hca.word[hca.count]);
        hca.count++;
        if (!w[n])
            break;
    }
    if (!good)
        return ri_fail(
            RING_ERR_CONFIG,
            "RING_IB_HCA=\"%.80s\" is not accepted: it takes up to %d names of RDMA devices with commas between "
            "them: mlx5_0,mlx5_1:1 are prefixes, one with a port of 1 to 255, =mlx5_0 is exact, ^mlx5_0 and "
            "^=mlx5_0:1 exclude",
            spec, VERBS_HCA_WORDS);
    *hca_out = hca;
    return RING_OK;
}

static bool match(const struct verbs_hca *hca, const struct verbs_hca_word *w, const char *device, unsigned port)
{
    const size_t n = strlen(w->name);
    /* Of an unknown port: an exclusion of one port leaves others, and a wish for one port is a wish for the device. */
    const bool port_fits = !w->port || (port ? w->port == port : !hca->exclude);
    return port_fits && !strncmp(device, w->name, n) && (!hca->exact || !device[n]);
}

bool verbs_hca_wanted(const struct verbs_hca *hca, const char *device, unsigned port)
{
    bool found = false;
    if (!hca->count)
        return true;
    for (unsigned i = 0; i < hca->count; i++)
        found = found || match(hca, &hca->word[i], device, port);
    return found != hca->exclude;
}
