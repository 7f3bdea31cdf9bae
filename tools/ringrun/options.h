/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - ringrun's command line.  Wrong options end the program with EXIT_LAUNCHER and a sentence; --help and
 * --version end it with 0. */
#ifndef RINGRUN_OPTIONS_H
#define RINGRUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "hosts.h"

struct options {
    uint32_t ranks;     /* 0: not said */
    struct hosts hosts; /* as given; count 0: none */
    char **rsh;         /* words; NULL: the default */
    char **set;         /* NAME=VALUE, ends in NULL */
    bool tag_output;
    uint64_t timeout_ms; /* 0: none */
    char *folder;        /* NULL: not said */
    char **argv;         /* the program and its arguments, within main's argv */
};

void options_parse(int argc, char **argv, struct options *options_out);
void options_free(struct options *options);

#endif
