/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/limit.h"

#include <dirent.h>
#include <sys/resource.h>

#include "lib/base/error.h"
#include "lib/base/log.h"

enum { SPARE = 8, GUESS = 16 };

static uint32_t open_now(void)
{
    uint32_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return GUESS;
    while (readdir(d))
        n++;
    closedir(d);
    return n > 3 ? n - 3 : 0; /* ".", ".." and the folder itself */
}

ring_status_t ri_limit_files(uint32_t more, const char *why)
{
    const rlim_t need = (rlim_t)open_now() + more + SPARE;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY || need <= limit.rlim_cur)
        return RING_OK;
    const rlim_t most = limit.rlim_max;
    if (most == RLIM_INFINITY || need <= most) {
        ri_log(RI_LOG_INFO, "raising the limit of open files from %llu to %llu %s", (unsigned long long)limit.rlim_cur,
               (unsigned long long)need, why);
        limit.rlim_cur = need;
        if (!setrlimit(RLIMIT_NOFILE, &limit))
            return RING_OK;
    }
    return ri_fail(RING_ERR_LIMIT, "%llu open files are needed %s, the limit is %llu: raise it (ulimit -n %llu)",
                   (unsigned long long)need, why, (unsigned long long)most, (unsigned long long)need);
}
