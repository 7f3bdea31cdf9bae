/* SPDX-License-Identifier: Apache-2.0 */
/* ring_info.h - what the files of ring_info share: main.c lists what this library is, schedule.c prints programs. */
#ifndef RING_INFO_H
#define RING_INFO_H

/* "ring_info schedule COLLECTIVE ...": argv[0] is the collective.  Returns the exit code. */
int ring_info_schedule(int argc, char **argv);

#endif
