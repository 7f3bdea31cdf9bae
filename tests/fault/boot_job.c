/* SPDX-License-Identifier: Apache-2.0 */
/* boot_job - a rank that does nothing but meet the others: for boot_launch.py, under each launcher.
 *
 *     boot_job COMMUNICATORS FENCES [absent RANK | die RANK | late RANK]
 *
 * Prints "rank R of N: ok" or "rank R of N: STATUS: sentence" (status 1). absent: that rank joins, but does not come to
 * the last fence in time; die: it is killed there. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/boot/boot.h"

static char **args;

static bool told_to(const char *what, uint32_t rank)
{
    return args[3] && !strcmp(args[3], what) && (uint32_t)strtoul(args[4], NULL, 10) == rank;
}

static void fill(uint8_t *card, uint32_t rank, uint64_t comm_id, unsigned fence)
{
    for (size_t i = 0; i < 300; i++)
        card[i] = (uint8_t)(rank * 7 + comm_id + fence + i); /* zero bytes among them */
}

static ring_status_t compare(struct ri_boot *b, uint32_t rank, unsigned fence, const char *key)
{
    uint8_t want[300], got[RI_BOOT_BLOB_MAX];
    size_t len = 0;
    const ring_status_t status = b->ops->get(b, rank, key, got, &len);
    fill(want, rank, b->comm_id, fence);
    if (!status && (len != sizeof want || memcmp(want, got, len)))
        return ri_fail(RING_ERR_INTERNAL, "the card of rank %u has changed", rank);
    return status;
}

static ring_status_t meet(struct ri_boot *b, unsigned fence, bool last, uint64_t deadline)
{
    uint8_t card[300];
    char key[RI_BOOT_KEY_MAX];
    snprintf(key, sizeof key, "card%u", fence);
    fill(card, b->rank, b->comm_id, fence);
    if (last && told_to("die", b->rank))
        raise(SIGKILL);
    if (last && told_to("absent", b->rank))
        sleep(4);
    ring_status_t status = b->ops->put(b, key, card, sizeof card);
    if (!status)
        status = b->ops->fence(b, deadline);
    for (uint32_t r = 0; r < b->size && !status; r++)
        status = compare(b, r, fence, key);
    return status;
}

static ring_status_t run(unsigned communicators, unsigned fences, uint32_t *rank, uint32_t *size)
{
    struct ri_conf conf;
    uint64_t before = 0;
    ring_status_t status = ri_conf_load(&conf);
    for (unsigned c = 0; c < communicators && !status; c++) {
        struct ri_boot *b;
        const uint64_t deadline = ri_deadline(conf.timeout);
        if ((status = ri_boot_open(&conf, deadline, &b)))
            return status;
        *rank = b->rank;
        *size = b->size;
        if (b->comm_id == before)
            status = ri_fail(RING_ERR_INTERNAL, "two communicators have one identity");
        before = b->comm_id;
        for (unsigned f = 0; f < fences && !status; f++)
            status = meet(b, f, c + 1 == communicators && f + 1 == fences, deadline);
        b->ops->close(b);
    }
    return status;
}

int main(int argc, char **argv)
{
    uint32_t rank = 0, size = 0;
    if (argc != 3 && argc != 5)
        return 2;
    args = argv;
    const ring_status_t status =
        run((unsigned)strtoul(argv[1], NULL, 10), (unsigned)strtoul(argv[2], NULL, 10), &rank, &size);
    if (status)
        printf("rank %u of %u: %s: %s\n", rank, size, ring_status_str(status), ring_last_error());
    else
        printf("rank %u of %u: ok\n", rank, size);
    return status ? 1 : 0;
}
