/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - see words.h. */
#include "words.h"

#include <stdlib.h>
#include <string.h>

#include "say.h"

static bool blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

/* Copy one word from *at to `word`, which has room for it; false: an open quote. */
static bool take_word(const char **at, char *word)
{
    const char *p = *at;
    char quote = 0;
    for (; *p && (quote || !blank(*p)); p++) {
        if (*p == quote)
            quote = 0;
        else if (!quote && (*p == '\'' || *p == '"'))
            quote = *p;
        else if (*p == '\\' && p[1] && (!quote || (quote == '"' && strchr("\"\\$`", p[1]))))
            *word++ = *++p;
        else
            *word++ = *p;
    }
    *word = 0;
    *at = p;
    return !quote;
}

char **words_split(const char *text)
{
    size_t len = strlen(text), count = 0;
    char **words = need((len / 2 + 2) * sizeof *words);
    char *word = need(len + 1);
    bool good = true;
    while (good) {
        while (blank(*text))
            text++;
        if (!*text)
            break;
        good = take_word(&text, word);
        words[count++] = need_text(word);
    }
    free(word);
    if (!good) {
        words_free(words);
        return NULL;
    }
    return words;
}

void words_free(char **words)
{
    for (char **w = words; w && *w; w++)
        free(*w);
    free(words);
}

static bool plain(const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+/=:,@%";
    return *word && word[strspn(word, safe)] == 0;
}

char *word_quote(const char *word)
{
    if (plain(word))
        return need_text(word);
    char *quoted = need(4 * strlen(word) + 3), *at = quoted;
    *at++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') {
            memcpy(at, "'\\''", 4);
            at += 4;
        } else {
            *at++ = *word;
        }
    }
    *at = '\'';
    return quoted;
}
