/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - runs a fuzz target without libFuzzer: the files of a corpus folder, then mutations of them from a seed.
 *
 *     TARGET CORPUS_FOLDER [ROUNDS]        RING_TEST_SEED changes the seed, which is printed
 *
 * A mutation that breaks the target is left in the file crash-TARGET of the current folder. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

enum { INPUT_MAX = 1 << 16, FILES_MAX = 256, ROUNDS = 20000 };

static struct input {
    uint8_t *bytes;
    size_t len;
} corpus[FILES_MAX];
static size_t corpus_size;
static uint64_t state;

/* splitmix64 */
static uint64_t next(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static size_t below(size_t n) { return (size_t)(next() % n); }

static void load(const char *folder, const char *name)
{
    static uint8_t buffer[INPUT_MAX];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f || corpus_size == FILES_MAX)
        exit(2);
    const size_t len = fread(buffer, 1, sizeof buffer, f);
    fclose(f);
    uint8_t *bytes = malloc(len ? len : 1);
    if (!bytes)
        exit(2);
    memcpy(bytes, buffer, len);
    corpus[corpus_size++] = (struct input){bytes, len};
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static void load_all(const char *folder)
{
    struct dirent **names = NULL;
    const int n = scandir(folder, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.')
            load(folder, names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

/* On a heap block of the exact length, so that the address sanitizer sees one byte too far. */
static void feed(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    if (!copy)
        exit(2);
    memcpy(copy, bytes, len);
    LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static void mutate(uint8_t *bytes, size_t *len)
{
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, ' ', ',', '-', '=', '^', ':', '%', '\n'};
    const size_t at = *len ? below(*len) : 0;
    const size_t n = 1 + below(8);
    switch (below(6)) {
    case 0: /* a bit */
        if (*len)
            bytes[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1: /* a byte */
        if (*len)
            bytes[at] = (uint8_t)next();
        break;
    case 2: /* a byte that often means something */
        if (*len)
            bytes[at] = telling[below(sizeof telling)];
        break;
    case 3: /* cut the end off */
        *len = at;
        break;
    case 4: /* more of the same in the middle */
        if (*len && *len + n <= INPUT_MAX && at + n <= *len) {
            memmove(bytes + at + n, bytes + at, *len - at);
            *len += n;
        }
        break;
    default: /* less of it */
        if (at + n <= *len) {
            memmove(bytes + at, bytes + at + n, *len - at - n);
            *len -= n;
        }
    }
}

static const char *crash_file(const char *target)
{
    static char path[256];
    const char *slash = strrchr(target, '/');
    snprintf(path, sizeof path, "crash-%.200s", slash ? slash + 1 : target);
    return path;
}

/* Kept beforehand, because afterwards there may be no process to do it. */
static void keep(int fd, const uint8_t *bytes, size_t len)
{
    if (ftruncate(fd, 0) || pwrite(fd, bytes, len, 0) != (ssize_t)len)
        exit(2);
}

int main(int argc, char **argv)
{
    static uint8_t bytes[INPUT_MAX];
    const char *seed = getenv("RING_TEST_SEED");
    const unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : ROUNDS;
    if (argc < 2)
        return 2;
    load_all(argv[1]);
    if (!corpus_size) {
        fprintf(stderr, "no corpus in %s\n", argv[1]);
        return 2;
    }
    for (size_t i = 0; i < corpus_size; i++)
        feed(corpus[i].bytes, corpus[i].len);
    state = seed ? strtoull(seed, NULL, 10) : 1;
    printf("# seed %llu (RING_TEST_SEED), %zu files, %lu mutations\n", (unsigned long long)state, corpus_size, rounds);
    fflush(stdout);
    const int fd = open(crash_file(argv[0]), O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
    for (unsigned long r = 0; r < rounds; r++) {
        const struct input *from = &corpus[below(corpus_size)];
        size_t len = from->len;
        memcpy(bytes, from->bytes, len);
        for (size_t n = 1 + below(4); n; n--)
            mutate(bytes, &len);
        keep(fd, bytes, len);
        feed(bytes, len);
    }
    unlink(crash_file(argv[0]));
    return 0;
}
