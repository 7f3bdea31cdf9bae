/* SPDX-License-Identifier: Apache-2.0 */
/* boot.h - how the ranks of a communicator find each other: a small all-gather, nothing more.
 *
 * Three ways behind one table: pmix (the launcher's PMIx server), uid (a ticket; the maker of the ticket serves), single
 * (a job of one).  Each rank puts blobs under short keys, all meet in a fence, and then anybody's blobs can be got.
 * Nothing secret is ever put. */
#ifndef RI_BOOT_H
#define RI_BOOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <ring/ring.h>

#include "lib/base/conf.h"

enum { RI_BOOT_BLOB_MAX = 4096, RI_BOOT_KEY_MAX = 24, RI_SECRET = 32 };

struct ri_boot {
    const struct ri_boot_ops *ops;
    uint32_t rank, size;
    uint64_t comm_id;          /* the same on all ranks, different for each communicator of the job        */
    uint8_t secret[RI_SECRET]; /* uid: the ticket's; pmix and single: zero                                 */
    struct sockaddr_storage toward; /* an address of the job, for choosing an interface by route to it; ss_family 0: none */
};

struct ri_boot_ops {
    const char *name;
    ring_status_t (*put)(struct ri_boot *b, const char *key, const void *blob, size_t len);
    /* All ranks have put; deadline as in clock.h.  RING_ERR_TIMEOUT names the ranks that are missing. */
    ring_status_t (*fence)(struct ri_boot *b, uint64_t deadline);
    /* After a fence. *len_out <= RI_BOOT_BLOB_MAX. */
    ring_status_t (*get)(struct ri_boot *b, uint32_t rank, const char *key, void *blob, size_t *len_out);
    void (*close)(struct ri_boot *b);
    /* After the last fence, while the ranks make their connections: a descriptor that becomes readable when the meeting
     * place has something to say, and what it says (RING_OK: nothing that matters; errors: a rank was lost).  Never
     * waits, and may run on another thread than the rest.  Both NULL: this bootstrap cannot tell. */
    int (*alert_fd)(const struct ri_boot *b);
    ring_status_t (*alert)(struct ri_boot *b);
};

/* By RING_BOOT and the environment: PMIx when there is a server, a job of one when nothing hints at a launcher, else
 * RING_ERR_LAUNCH with a sentence that says what was seen and what to do. */
ring_status_t ri_boot_open(const struct ri_conf *conf, uint64_t deadline, struct ri_boot **boot_out);

/* By a ticket. */
ring_status_t ri_boot_open_uid(const struct ri_conf *conf, const ring_uid_t *uid, uint32_t rank, uint32_t size,
                               uint64_t deadline, struct ri_boot **boot_out);
ring_status_t ri_uid_create(const struct ri_conf *conf, ring_uid_t *uid_out);

/* The parts, for the files of this folder. */
ring_status_t ri_boot_pmix(const struct ri_conf *conf, uint64_t deadline, struct ri_boot **boot_out);
ring_status_t ri_boot_single(struct ri_boot **boot_out);
/* "PMIX_RANK", "SLURM_NTASKS=4" ...: what in the environment hints at a launcher; NULL: nothing. */
const char *ri_boot_launcher_hint(char *text, size_t cap);

#endif
