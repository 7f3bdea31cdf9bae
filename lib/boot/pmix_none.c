/* SPDX-License-Identifier: Apache-2.0 */
/* pmix_none.c - stands in for pmix.c in a build without PMIx. */
#include "lib/boot/boot.h"

#include "lib/base/error.h"

ring_status_t ri_boot_pmix(const struct ri_conf *conf, uint64_t deadline, struct ri_boot **boot_out)
{
    (void)conf;
    (void)deadline;
    (void)boot_out;
    return ri_fail(RING_ERR_LAUNCH, "this libring was built without PMIx: it cannot join a launcher; use "
                                    "ring_comm_create_uid(), or build with -Dpmix=enabled");
}
