/* SPDX-License-Identifier: Apache-2.0 */
/* boot.c - which bootstrap a program that passes nothing gets: the launcher's when there is one, a job of one when
 * nothing hints at a launcher, an error otherwise. */
#include "lib/boot/boot.h"

#include <stdlib.h>

#include "lib/base/error.h"

static ring_status_t refuse(const char *seen)
{
    return ri_fail(
        RING_ERR_LAUNCH,
        "a launcher started this process (%s is set), but there is no PMIx server to join: start it with "
        "ringrun, Open MPI's mpirun or srun --mpi=pmix, give rank and size to ring_comm_create_uid(), or set "
        "RING_BOOT=single for a job of one",
        seen);
}

ring_status_t ri_boot_open(const struct ri_conf *conf, uint64_t deadline, struct ri_boot **boot_out)
{
    char text[128];
    if (conf->boot == RI_BOOT_SINGLE)
        return ri_boot_single(boot_out);
    if (conf->boot == RI_BOOT_PMIX || getenv("PMIX_NAMESPACE"))
        return ri_boot_pmix(conf, deadline, boot_out);
    const char *seen = ri_boot_launcher_hint(text, sizeof text);
    return seen ? refuse(seen) : ri_boot_single(boot_out);
}
