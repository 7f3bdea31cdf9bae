/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - see host.h.  Where the kernel hides one of the facts (no /proc), the rest still tells hosts apart: then the
 * name takes part too. */
#include "lib/boot/host.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

static size_t read_text(const char *path, char *text, size_t cap)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t n = read(fd, text, cap - 1);
    close(fd);
    const size_t len = n > 0 ? (size_t)n : 0;
    text[len] = 0;
    text[strcspn(text, "\n")] = 0;
    return strlen(text);
}

/* Device and inode: the inode alone is unique only within one nsfs. */
static void describe(char *text, size_t cap, const char *name)
{
    char boot[64] = "";
    struct stat net = {0};
    const size_t known = read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    const int netns = stat("/proc/self/ns/net", &net);
    snprintf(text, cap, "boot=%s net=%llx:%llx user=%u name=%s", boot, (unsigned long long)net.st_dev,
             (unsigned long long)net.st_ino, (unsigned)geteuid(), known && !netns ? "" : name);
}

void ri_host_get(const struct ri_conf *conf, struct ri_host *host_out)
{
    struct utsname names;
    char text[RI_CONF_TEXT_MAX + 8];
    snprintf(host_out->name, sizeof host_out->name, "%.63s", uname(&names) ? "unknown" : names.nodename);
    if (ri_conf_is_auto(conf->host_id))
        describe(text, sizeof text, host_out->name);
    else
        snprintf(text, sizeof text, "given=%s", conf->host_id);
    crypto_generichash(host_out->id, sizeof host_out->id, (const uint8_t *)text, strlen(text), NULL, 0);
}
