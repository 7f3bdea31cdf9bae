/* SPDX-License-Identifier: Apache-2.0 */
/* host.h - which machine, seen from which container, as which user: the identity by which ranks are grouped into nodes.
 *
 * Not the host's name: two network namespaces with one name are two hosts, one host with two names is one.  The identity
 * is a hash of the kernel's boot id, the network namespace (abstract sockets do not cross it) and the user;
 * RING_HOST_ID replaces all of them. */
#ifndef RI_HOST_H
#define RI_HOST_H

#include <stdint.h>

#include "lib/base/conf.h"

struct ri_host {
    uint8_t id[16];
    char name[64];
};
void ri_host_get(const struct ri_conf *conf, struct ri_host *host_out);

#endif
