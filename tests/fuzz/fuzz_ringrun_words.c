/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ringrun_words.c - splitting --rsh into words, and quoting a word so that it splits into itself. */
#include <string.h>

#include "fuzz.h"
#include "words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    words_free(words_split(text));
    char *quoted = word_quote(text), **words = words_split(quoted);
    HOLDS(words && words[0] && strcmp(words[0], text) == 0 && !words[1]);
    words_free(words);
    free(quoted);
    free(text);
    return 0;
}
