/* SPDX-License-Identifier: Apache-2.0 */
/* quiet.h - is there still anybody at the other end?
 *
 * A network that is cut says nothing, and left to itself TCP sends again for a quarter of an hour.  TCP_USER_TIMEOUT
 * would end that, but also end connections whose peer only does not read for a while, which is its right: it may
 * compute, or be stopped in a debugger.  So we look ourselves whether what was sent, or asked of a closed window, is
 * answered at all.  Where nothing is under way the kernel's keepalive asks.
 *
 * Cost: one system call a second for a socket in use. */
#ifndef RI_TCP_QUIET_H
#define RI_TCP_QUIET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TCP_QUIET_S = 10, TCP_ENDS_TEXT = 112 };

void tcp_quiet_init(int fd);

/* To be asked about once a second at time now; since: the caller's, starts at 0.  true: something has been waiting for
 * an answer for TCP_QUIET_S, and none has come. */
bool tcp_quiet(int fd, uint64_t now, uint64_t *since);

/* "10.0.0.1 and 10.0.0.2": between which addresses a connected socket runs.  One that has failed knows it no more. */
void tcp_ends(int fd, char text[TCP_ENDS_TEXT]);

#endif
