/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ringrun_hosts.c - ringrun's host list, host file and placement.  First byte: which, and how many ranks. */
#include <string.h>

#include "fuzz.h"
#include "hosts.h"

static void check_placement(struct hosts *hosts, uint32_t wanted)
{
    char *problem = hosts_place(hosts, wanted);
    uint64_t ranks = 0, slots = 0;
    for (size_t i = 0; i < hosts->count; i++) {
        struct host *h = &hosts->list[i];
        HOLDS(problem || !h->slots || h->ranks <= h->slots);
        ranks += h->ranks;
        slots += h->slots ? h->slots : 1;
    }
    HOLDS(problem || ranks == (wanted ? wanted : slots));
    free(problem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct hosts hosts = {0};
    char *problem, *text = malloc(size), which = (char)data[0];
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    if (which & 1)
        problem = hosts_parse_list(&hosts, "list", text);
    else
        problem = hosts_parse_file(&hosts, "file", text, size - 1);
    for (size_t i = 0; i < hosts.count; i++)
        HOLDS(hosts.list[i].name[0] && hosts.list[i].name[0] != '-' && hosts.list[i].slots <= HOST_SLOTS_MAX);
    if (!problem && hosts.count)
        check_placement(&hosts, (uint32_t)(uint8_t)which >> 1);
    free(problem);
    free(text);
    hosts_free(&hosts);
    return 0;
}
