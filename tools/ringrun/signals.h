/* SPDX-License-Identifier: Apache-2.0 */
/* signals.h - ringrun's own signals, read from a descriptor. */
#ifndef RINGRUN_SIGNALS_H
#define RINGRUN_SIGNALS_H

/* Signals that were ignored when ringrun was started (nohup) stay ignored. Ends the program when it cannot. */
int signals_open(void);
/* The next one, 0: none. */
int signals_next(int fd);

#endif
