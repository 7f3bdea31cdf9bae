/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - between a command line as one string and as words, by the rules of the shell without its expansions. */
#ifndef RINGRUN_WORDS_H
#define RINGRUN_WORDS_H

#include <stdbool.h>

/* Split at blanks; '...' and "..." hold together, a backslash takes the next character as it is (inside "..." only
 * before ", \, $ and `).  NULL when a quote stays open.  The words are one allocation each; words_free(). */
char **words_split(const char *text);
void words_free(char **words);
/* The word as a shell reads it back: unchanged when it has letters, digits and ._-+/=:,@% only, else in single quotes.
 */
char *word_quote(const char *word);

#endif
