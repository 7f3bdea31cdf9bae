/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c - one rank for the tests that need processes.
 *
 *     worker MODE [--uid FILE --rank R --size N] [NAME=VALUE ...]
 *
 * Without --uid it joins its launcher.  With it, rank 0 makes a ticket and leaves it in FILE, and the others fetch it.
 * It prints "joined RANK SIZE PID NODE NODES LOCAL LOCALS", then what the mode prints.  A failing call prints
 * "failed STATUS TEXT" and ends with exit code 3; a wrong result "wrong ..." and 4. */
#include <errno.h>
#include <fcntl.h>
#include <ring/ring.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FAILED = 3, WRONG = 4 };

static const char *uid_file;
static uint32_t given_rank, given_size;
static int setting_count;
static char **settings;
static ring_uid_t ticket;

/* NAME=VALUE from the command line. */
static long long setting(const char *name, long long fallback)
{
    const size_t n = strlen(name);
    for (int i = 0; i < setting_count; i++)
        if (!strncmp(settings[i], name, n) && settings[i][n] == '=')
            return strtoll(settings[i] + n + 1, NULL, 0);
    return fallback;
}

static void nap(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    while (nanosleep(&t, &t) && errno == EINTR)
        ;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void need(ring_status_t status)
{
    if (!status)
        return;
    printf("failed %d %s\n", (int)status, ring_last_error());
    fflush(stdout);
    exit(FAILED);
}

static void need_true(bool right, const char *what, uint64_t index)
{
    if (right)
        return;
    printf("wrong %s at %llu\n", what, (unsigned long long)index);
    fflush(stdout);
    exit(WRONG);
}

static void fetch_ticket(int round)
{
    char path[600], temporary[640];
    snprintf(path, sizeof path, "%s.%d", uid_file, round);
    if (!given_rank) {
        need(ring_uid_create(&ticket));
        snprintf(temporary, sizeof temporary, "%s.new", path);
        FILE *f = fopen(temporary, "w");
        need_true(f && fputs(ticket.text, f) >= 0 && !fclose(f) && !rename(temporary, path), "ticket file", 0);
        return;
    }
    for (int i = 0; i < 6000; i++) {
        FILE *f = fopen(path, "r");
        if (f) {
            need_true(fgets(ticket.text, sizeof ticket.text, f) != NULL, "ticket", 0);
            fclose(f);
            return;
        }
        nap(0.01);
    }
    need_true(false, "no ticket", 0);
}

static ring_comm_t *join(int round)
{
    ring_comm_t *comm = NULL;
    if (uid_file) {
        fetch_ticket(round);
        need(ring_comm_create_uid(&ticket, given_rank, given_size, &comm));
    } else
        need(ring_comm_create(&comm));
    return comm;
}

static ring_comm_t *join_aloud(void)
{
    ring_comm_t *c = join(0);
    printf("joined %u %u %d %u %u %u %u\n", ring_comm_rank(c), ring_comm_size(c), (int)getpid(), ring_comm_node(c),
           ring_comm_node_count(c), ring_comm_local_rank(c), ring_comm_local_size(c));
    fflush(stdout);
    return c;
}

static void *buffer(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    need_true(p != NULL, "malloc", bytes);
    return p;
}

/* ---- modes ----------------------------------------------------------------------------------------------------- */

/* Element i of rank r is r + i % 1000; so the sum over n ranks is known. */
static void check_sum(ring_comm_t *c, size_t count, bool in_place)
{
    const uint32_t n = ring_comm_size(c), r = ring_comm_rank(c);
    float *src = buffer(count * sizeof *src), *dst = in_place ? src : buffer(count * sizeof *dst);
    for (size_t i = 0; i < count; i++)
        src[i] = (float)(r + i % 1000);
    need(ring_all_reduce(c, src, dst, count, RING_FLOAT, RING_SUM));
    for (size_t i = 0; i < count; i++)
        need_true(dst[i] == (float)(n * (n - 1) / 2 + n * (i % 1000)), "sum", i);
    if (dst != src)
        free(dst);
    free(src);
}

static int sums(ring_comm_t *c)
{
    static const size_t counts[] = {0, 1, 2, 3, 17, 1000, 4097, 65536, 100003, 2000000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_sum(c, counts[i], false);
        check_sum(c, counts[i], true);
    }
    return 0;
}

/* Until something ends it, or for rounds=N.  Sizes from max= bytes down, different ones by a fixed pattern. */
static int loop(ring_comm_t *c)
{
    const long long rounds = setting("rounds", -1), max = setting("max", 1 << 20);
    uint32_t state = 12345;
    for (long long i = 0; rounds < 0 || i < rounds; i++) {
        state = state * 1664525 + 1013904223;
        check_sum(c, (size_t)(state >> 8) % (size_t)(max / 4) >> (state % 4 * 4), i % 2);
        if (i == 10) {
            printf("looping\n");
            fflush(stdout);
        }
    }
    return 0;
}

/* rounds= all-reduces of bytes=, and how long they took. */
static int timed(ring_comm_t *c)
{
    const size_t count = (size_t)setting("bytes", 1 << 20) / sizeof(float);
    float *src = buffer(count * sizeof *src), *dst = buffer(count * sizeof *dst);
    memset(src, 0, count * sizeof *src);
    need(ring_all_reduce(c, src, dst, 1, RING_FLOAT, RING_SUM));
    const double begun = now();
    for (long long i = 0; i < setting("rounds", 1); i++)
        need(ring_all_reduce(c, src, dst, count, RING_FLOAT, RING_SUM));
    printf("took %.6f s\n", now() - begun);
    free(src);
    free(dst);
    return 0;
}

/* Rank odd= calls with another count, type or operation; guards around the buffer must stay. */
static int mismatch(ring_comm_t *c)
{
    const bool odd = ring_comm_rank(c) == (uint32_t)setting("odd", 1);
    const size_t count = (size_t)setting("count", 1000), guard = 4096;
    const size_t mine = odd ? (size_t)setting("other_count", (long long)count) : count;
    const ring_dtype_t dtype = (ring_dtype_t)(odd ? setting("other_dtype", RING_FLOAT) : RING_FLOAT);
    const ring_redop_t redop = (ring_redop_t)(odd ? setting("other_redop", RING_SUM) : RING_SUM);
    const size_t bytes = mine * ring_dtype_size(dtype);
    unsigned char *src = buffer(bytes + 2 * guard), *dst = buffer(bytes + 2 * guard);
    memset(src, 0, bytes + 2 * guard);
    memset(dst, 0x5a, bytes + 2 * guard);
    float x = 0; /* all have joined; who is late here may hear already how the next one ended */
    const ring_status_t first = ring_all_reduce(c, &x, &x, 1, RING_FLOAT, RING_SUM);
    need(first == RING_ERR_MISMATCH ? RING_OK : first);
    const double begun = now();
    const ring_status_t status = ring_all_reduce(c, src + guard, dst + guard, mine, dtype, redop);
    printf("status %d after %.3f s: %s\n", (int)status, now() - begun, ring_last_error());
    for (size_t i = 0; i < guard; i++)
        need_true(dst[i] == 0x5a && dst[guard + bytes + i] == 0x5a, "guard", i);
    for (size_t i = 0; i < bytes + 2 * guard; i++)
        need_true(src[i] == 0, "send buffer", i);
    const ring_status_t again = ring_all_reduce(c, src + guard, dst + guard, mine, dtype, redop);
    need_true(again == status && !strcmp(ring_comm_error(c), ring_last_error()), "the second call's error", 0);
    free(src);
    free(dst);
    return 0;
}

static int flight(ring_comm_t *c)
{
    enum { OPS = 12 };
    const uint32_t n = ring_comm_size(c), r = ring_comm_rank(c);
    ring_op_t *op[OPS];
    int64_t *src[OPS], *dst[OPS];
    size_t count[OPS];
    for (int round = 0; round < 20; round++) {
        for (size_t k = 0; k < OPS; k++) {
            count[k] = (size_t)(k * k * 977 + (size_t)round);
            src[k] = buffer(count[k] * 8);
            dst[k] = k % 3 ? buffer(count[k] * 8) : src[k];
            for (size_t i = 0; i < count[k]; i++)
                src[k][i] = (int64_t)(r + i + k);
            need(ring_all_reduce_start(c, src[k], dst[k], count[k], RING_INT64, RING_SUM, &op[k]));
        }
        check_sum(c, 500, false); /* a blocking call among them */
        for (size_t k = OPS; k-- > 0;) {
            int done = 0;
            if (k % 2)
                need(ring_op_wait(op[k]));
            while (!done)
                need(ring_op_test(op[k], &done));
            ring_op_free(op[k]);
            for (size_t i = 0; i < count[k]; i++)
                need_true(dst[k][i] == (int64_t)(n * (n - 1) / 2 + n * (i + k)), "sum in flight", i);
            if (dst[k] != src[k])
                free(dst[k]);
            free(src[k]);
        }
    }
    return 0;
}

static int huge(ring_comm_t *c)
{
    const size_t count = (size_t)setting("count", (1LL << 31) + 5);
    const uint32_t n = ring_comm_size(c), r = ring_comm_rank(c);
    uint8_t *p = buffer(count);
    memset(p, (int)r + 1, count);
    p[count - 1] = (uint8_t)(10 + r);
    need(ring_all_reduce(c, p, p, count, RING_UINT8, RING_SUM));
    for (size_t i = 0; i + 1 < count; i++)
        need_true(p[i] == (uint8_t)(n * (n + 1) / 2), "byte", i);
    need_true(p[count - 1] == (uint8_t)(10 * n + n * (n - 1) / 2), "last byte", count - 1);
    free(p);
    return 0;
}

static long open_descriptors(void)
{
    long n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static long resident_kib(void)
{
    long pages = 0, ignored = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &ignored, &pages) != 2)
        pages = -1;
    if (f)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* rounds= times create, all-reduce, destroy; memory and descriptors are printed at the start and the end. */
static int churn(ring_comm_t *c)
{
    const int rounds = (int)setting("rounds", 100);
    long descriptors = 0, memory = 0;
    check_sum(c, 1000, false);
    for (int i = 1; i <= rounds; i++) {
        ring_comm_t *other = join(i);
        check_sum(other, 1000, false);
        need(ring_comm_destroy(other));
        if (uid_file && !given_rank) {
            char path[600];
            snprintf(path, sizeof path, "%s.%d", uid_file, i);
            unlink(path);
        }
        if (i == rounds / 5) {
            descriptors = open_descriptors();
            memory = resident_kib();
        }
    }
    for (int i = 0; i < 100 && open_descriptors() > descriptors; i++)
        nap(0.02); /* the last ticket's port is closed in the background */
    printf("grown %ld descriptors, %ld KiB\n", open_descriptors() - descriptors, resident_kib() - memory);
    return 0;
}

/* The child of a fork may not use the parent's communicator; the parent goes on. */
static int forked(ring_comm_t *c)
{
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        float x = 1;
        const ring_status_t status = ring_all_reduce(c, &x, &x, 1, RING_FLOAT, RING_SUM);
        _exit(status == RING_ERR_STATE && ring_comm_destroy(c) == RING_ERR_STATE ? 0 : 1);
    }
    int status = 0;
    need_true(waitpid(child, &status, 0) == child && !status, "the child's answer", (uint64_t)status);
    check_sum(c, 1000, false);
    return 0;
}

static void forever(ring_comm_t *c)
{
    for (;;)
        check_sum(c, 1000, false);
}

static int aborting(ring_comm_t *c)
{
    check_sum(c, 1000, false);
    if (ring_comm_rank(c) == (uint32_t)setting("who", 0)) {
        nap(0.2);
        ring_comm_abort(c, "enough of this");
    }
    forever(c);
    return 0;
}

/* Rank who= stays away for seconds=. */
static int lazy(ring_comm_t *c)
{
    check_sum(c, 1000, false);
    if (ring_comm_rank(c) == (uint32_t)setting("who", 1))
        nap((double)setting("seconds", 2));
    check_sum(c, 1000, false);
    return 0;
}

/* Rank who= ends without a word. */
static int leaver(ring_comm_t *c)
{
    check_sum(c, 1000, false);
    if (ring_comm_rank(c) == (uint32_t)setting("who", 1))
        _exit(7);
    forever(c);
    return 0;
}

/* Rank who= becomes another program. */
static int becomes(ring_comm_t *c)
{
    check_sum(c, 1000, false);
    if (ring_comm_rank(c) == (uint32_t)setting("who", 1)) {
        execlp("sleep", "sleep", "2", (char *)NULL);
        return WRONG;
    }
    forever(c);
    return 0;
}

/* Rank who= dies, but a child that it has forked lives on. */
static int survived(ring_comm_t *c)
{
    check_sum(c, 1000, false);
    if (ring_comm_rank(c) == (uint32_t)setting("who", 1)) {
        fflush(stdout);
        if (!fork()) {
            nap(2);
            _exit(0);
        }
        nap(0.1);
        kill(getpid(), SIGKILL);
    }
    forever(c);
    return 0;
}

/* Rank who= leaves while the others go on. */
static int deserter(ring_comm_t *c)
{
    check_sum(c, 1000, false);
    if (ring_comm_rank(c) != (uint32_t)setting("who", 1))
        forever(c);
    return 0;
}

/* Who is lost to a part is lost to all, which the next split says: the other part may be in it already. */
static void split_once(ring_comm_t *c)
{
    static bool lost;
    ring_comm_t *part;
    need(ring_comm_split(c, (int32_t)(ring_comm_rank(c) % 2), 0, &part));
    if (lost) {
        printf("a part failed, and the whole went on\n");
        exit(1);
    }
    lost = ring_barrier(part) != RING_OK;
    ring_comm_destroy(part);
}

/* Communicators are made from others and destroyed, again and again. */
static int splits(ring_comm_t *c)
{
    for (long long i = 0, rounds = setting("rounds", -1); i != rounds; i++) {
        split_once(c);
        if (!i) {
            printf("looping\n");
            fflush(stdout);
        }
    }
    return 0;
}

/* Every rank sends to every other in groups, over links that are made when they are wanted. */
static int exchanges(ring_comm_t *c)
{
    const uint32_t n = ring_comm_size(c);
    const size_t count = (size_t)setting("count", 20000);
    float *p = buffer((n + 1) * count * sizeof *p);
    memset(p, 0, (n + 1) * count * sizeof *p);
    for (long long i = 0, rounds = setting("rounds", -1); i != rounds; i++) {
        need(ring_group_start(c));
        for (uint32_t r = 0; r < n; r++) {
            need(ring_send(c, p, count, RING_FLOAT, r));
            need(ring_recv(c, p + (r + 1) * count, count, RING_FLOAT, r));
        }
        need(ring_group_end(c));
        if (!i) {
            printf("looping\n");
            fflush(stdout);
        }
    }
    free(p);
    return 0;
}

/* Rank who= has no descriptor left when it wants a link to rank peer=; how=: 0 waits, 1 starts, 2 a group, 3 prepares.
 */
static int starved(ring_comm_t *c)
{
    const struct rlimit few = {64, 64};
    const uint32_t peer = (uint32_t)setting("peer", 3);
    const long long how = setting("how", 0);
    float x = 1;
    ring_op_t *op = NULL;
    const ring_call_t call = {.coll = RING_SEND, .dtype = RING_FLOAT, .src = &x, .count = 1, .root = peer};
    if (ring_comm_rank(c) != (uint32_t)setting("who", 1))
        forever(c);
    need_true(!setrlimit(RLIMIT_NOFILE, &few), "setrlimit", 0);
    while (dup(STDOUT_FILENO) >= 0)
        ;
    if (how == 0)
        need(ring_send(c, &x, 1, RING_FLOAT, peer));
    if (how == 1)
        need(ring_send_start(c, &x, 1, RING_FLOAT, peer, &op));
    if (how == 3)
        need(ring_op_prepare(c, &call, &op));
    need(ring_group_start(c));
    need(ring_send(c, &x, 1, RING_FLOAT, peer));
    need(ring_group_end(c));
    return WRONG;
}

static const struct mode {
    const char *name;
    int (*run)(ring_comm_t *c);
} modes[] = {{"sums", sums},        {"loop", loop},     {"mismatch", mismatch}, {"flight", flight},
             {"huge", huge},        {"churn", churn},   {"forked", forked},     {"abort", aborting},
             {"lazy", lazy},        {"leaver", leaver}, {"becomes", becomes},   {"survived", survived},
             {"deserter", deserter}, {"timed", timed}, {"starved", starved}, {"splits", splits}, {"exchanges", exchanges}};

static const struct mode *find_mode(const char *name)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(modes[i].name, name))
            return &modes[i];
    fprintf(stderr, "worker: no mode \"%s\"\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    const struct mode *mode = find_mode(argv[1]);
    int i = 2;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (!strcmp(argv[i], "--uid"))
            uid_file = argv[i + 1];
        else if (!strcmp(argv[i], "--rank"))
            given_rank = (uint32_t)strtoul(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--size"))
            given_size = (uint32_t)strtoul(argv[i + 1], NULL, 0);
    }
    settings = argv + i;
    setting_count = argc - i;
    ring_comm_t *c = join_aloud();
    const int code = mode->run(c);
    const ring_status_t status = ring_comm_destroy(c);
    if (mode->run != mismatch)
        need(status);
    printf("left\n");
    fflush(stdout);
    nap((double)setting("linger", 0));
    return code;
}
