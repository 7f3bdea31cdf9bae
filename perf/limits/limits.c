/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c - what this machine allows: bounds that no collective of two processes can beat by much.
 *
 * Two processes on two processors run bare loops, without any library: an exchange of cache lines, a sum over buffers
 * that both have mapped, copies, reads of the other's memory, and an exchange over a socket on the loopback.  Every
 * figure is the median of a few rounds of many repetitions on buffers that are used again and again, as benchmarks do;
 * sums are made with vectors of every width that the processor has, what comes over a socket is added in pieces of
 * several lengths, and the best counts.
 * The socket may also join two network namespaces: then the second process's end is in the other one.
 * Nothing here verifies a collective; it only says how fast one could be.  Uses libc and the compiler only. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    MOST = 64 << 20,
    ROUNDS = 7,
    ROUND_US = 10000,
    MOST_TIMES = 100000,
    LINES = 2,
    GIVE_UP_SECONDS = 60,
    LOOKS_BEFORE_YIELD = 20000,
    LOOKS_BEFORE_YIELD_ON_SOCKET = 100,
    PIECES = 4,
    PIECE_LEAST = 64 << 10
};

struct line {
    _Alignas(128) _Atomic uint32_t seq;
};

/* What both processes share. */
struct arena {
    struct line line[2][LINES];
    _Alignas(128) uint64_t address[2];
    pid_t pid[2];
    size_t times;
    _Alignas(4096) float src[2][MOST / sizeof(float)], dst[2][MOST / sizeof(float)];
};

/* One process's side. */
struct side {
    struct arena *arena;
    int me;
    uint32_t seq;
    size_t variant; /* of those in which the bound is tried */
    int sock;
    float *src, *dst, *piece; /* private memory */
};

struct bound {
    const char *name, *help;
    void (*work)(struct side *s, size_t bytes);
    double moved;             /* bytes that a process moves, for each byte of the buffer, one way */
    size_t (*variants)(void); /* of which the best counts; NULL: there is one */
    size_t sizes[12];         /* 0: no more */
};

static const char *progress = "starting";

static void die(const char *what)
{
    fprintf(stderr, "limits: %s: %s: %s\n", progress, what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- the bare loops -------------------------------------------------------------------------------------------- */

/* Each stores one line and waits for the other's: two take turns, so the store never meets a reader. */
static void exchange_lines(struct side *s, size_t bytes)
{
    const uint32_t seq = ++s->seq;
    (void)bytes;
    atomic_store_explicit(&s->arena->line[s->me][seq % LINES].seq, seq, memory_order_release);
    for (uint64_t look = 1; atomic_load_explicit(&s->arena->line[!s->me][seq % LINES].seq, memory_order_acquire) != seq;
         look++)
        if (look % LOOKS_BEFORE_YIELD == 0)
            sched_yield();
}

/* x = y = a + b of n floats.  Several vectors of each buffer at a time: a processor that goes on a while in one buffer
 * before it turns to the next is faster than one that turns with every vector. */
typedef void sum_loop(float *x, float *y, const float *a, const float *b, size_t n);

enum { STEP = 4, LINE_FLOATS = 64 / sizeof(float) };

/* `flags` are those of the function; V: a vector, with what adds and stores it; buffers of whole steps are aligned. */
#define SUM_LOOP(name, flags, V, plus, store, end)                                         \
    flags static void name(float *x, float *y, const float *a, const float *b, size_t n)   \
    {                                                                                      \
        const size_t lanes = sizeof(V) / sizeof(float), whole = n / (STEP * lanes) * STEP; \
        const V *p = (const V *)(const void *)a, *q = (const V *)(const void *)b;          \
        for (size_t i = 0; i < whole; i += STEP) {                                         \
            V sum[STEP];                                                                   \
            for (size_t k = 0; k < STEP; k++)                                              \
                sum[k] = plus(p[i + k], q[i + k]);                                         \
            for (size_t k = 0; k < STEP; k++)                                              \
                store(x + (i + k) * lanes, sum[k]);                                        \
            for (size_t k = 0; k < STEP; k++)                                              \
                store(y + (i + k) * lanes, sum[k]);                                        \
        }                                                                                  \
        for (size_t i = whole * lanes; i < n; i++)                                         \
            x[i] = y[i] = a[i] + b[i];                                                     \
        end;                                                                               \
    }

#if defined(__x86_64__)
#define WITH(set) __attribute__((target(set)))
SUM_LOOP(sum_sse2, , __m128, _mm_add_ps, _mm_store_ps, )
SUM_LOOP(sum_avx2, WITH("avx2"), __m256, _mm256_add_ps, _mm256_store_ps, )
SUM_LOOP(sum_avx512, WITH("avx512f"), __m512, _mm512_add_ps, _mm512_store_ps, )
SUM_LOOP(sum_past_sse2, , __m128, _mm_add_ps, _mm_stream_ps, _mm_sfence())
SUM_LOOP(sum_past_avx2, WITH("avx2"), __m256, _mm256_add_ps, _mm256_stream_ps, _mm_sfence())
SUM_LOOP(sum_past_avx512, WITH("avx512f"), __m512, _mm512_add_ps, _mm512_stream_ps, _mm_sfence())
static sum_loop *const sum_loops[] = {sum_sse2, sum_avx2, sum_avx512};
static sum_loop *const sum_past_loops[] = {sum_past_sse2, sum_past_avx2, sum_past_avx512};

/* Wider is not always faster, so each width that there is is tried. */
static size_t widths(void) { return __builtin_cpu_supports("avx512f") ? 3 : __builtin_cpu_supports("avx2") ? 2 : 1; }
#else
typedef float lanes4 __attribute__((vector_size(16)));
#define PLUS(p, q) ((p) + (q))
#define STORE(to, v) (*(lanes4 *)(void *)(to) = (v))
SUM_LOOP(sum_portable, , lanes4, PLUS, STORE, )
static sum_loop *const sum_loops[] = {sum_portable};

static size_t widths(void) { return 1; }
#endif

/* Each process has a half, which begins with a line. */
static void sum_shared_by(struct side *s, size_t bytes, sum_loop *loop)
{
    struct arena *m = s->arena;
    const size_t n = bytes / sizeof(float), half = n / 2 / LINE_FLOATS * LINE_FLOATS, at = s->me ? half : 0;
    loop(m->dst[s->me] + at, m->dst[!s->me] + at, m->src[0] + at, m->src[1] + at, s->me ? n - half : half);
    exchange_lines(s, 0);
}

static void sum_shared(struct side *s, size_t bytes) { sum_shared_by(s, bytes, sum_loops[s->variant]); }

#if defined(__x86_64__)
static void sum_shared_past_cache(struct side *s, size_t bytes) { sum_shared_by(s, bytes, sum_past_loops[s->variant]); }
#endif

static inline __attribute__((always_inline)) void add_each(float *x, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = a[i] + b[i];
}

#if defined(__x86_64__)
WITH("avx2") static void add_wide(float *x, const float *a, const float *b, size_t n) { add_each(x, a, b, n); }
#endif

static void add(float *x, const float *a, const float *b, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        add_wide(x, a, b, n);
        return;
    }
#endif
    add_each(x, a, b, n);
}

static void copy(struct side *s, size_t bytes)
{
    memcpy(s->dst, s->src, bytes);
    __asm__ volatile("" ::: "memory");
}

static void read_peer(struct side *s, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const struct iovec here = {.iov_base = (char *)s->dst + done, .iov_len = bytes - done};
        const struct iovec there = {.iov_base = (char *)(uintptr_t)s->arena->address[!s->me] + done,
                                    .iov_len = bytes - done};
        const ssize_t n = process_vm_readv(s->arena->pid[!s->me], &here, 1, &there, 1, 0);
        if (n <= 0)
            die("process_vm_readv");
        done += (size_t)n;
    }
}

/* Both send and receive `bytes` at the same time.  With a sum what comes goes into a piece of memory that stays in a
 * cache, and is added from there. */
static void exchange_socket_bytes(struct side *s, size_t bytes, bool sum)
{
    const size_t piece = (size_t)PIECE_LEAST << s->variant;
    char *const to = (char *)(sum ? s->piece : s->dst);
    size_t sent = 0, come = 0, added = 0, before = 0;
    for (uint64_t look = 1; sent < bytes || come < bytes; look++) {
        if (look % LOOKS_BEFORE_YIELD_ON_SOCKET == 0) {
            if (before == sent + come)
                sched_yield();
            before = sent + come;
        }
        if (sent < bytes) {
            const ssize_t n = send(s->sock, (char *)s->src + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN)
                die("send");
            sent += n > 0 ? (size_t)n : 0;
        }
        const size_t at = sum ? come % piece : come, room = piece - come % piece;
        const size_t most = bytes - come < room ? bytes - come : room;
        const ssize_t n = most ? recv(s->sock, to + at, most, MSG_DONTWAIT) : 0;
        if (most && (n == 0 || (n < 0 && errno != EAGAIN)))
            die("recv");
        come += n > 0 ? (size_t)n : 0;
        const size_t whole = come / sizeof(float);
        if (sum)
            add(s->dst + added, s->src + added, s->piece + added % (piece / sizeof(float)), whole - added);
        added = whole;
    }
}

static size_t pieces(void) { return PIECES; }
static void exchange_socket(struct side *s, size_t bytes) { exchange_socket_bytes(s, bytes, false); }

static void exchange_socket_and_sum(struct side *s, size_t bytes) { exchange_socket_bytes(s, bytes, true); }

static const struct bound bounds[] = {
    {"line", "each process stores a cache line and waits for the other's", exchange_lines, 1, NULL, {8}},
    {"shared-sum",
     "each process adds half of two shared buffers, stores to two others, then a line each way",
     sum_shared,
     1,
     widths,
     {8 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 32 << 20, 64 << 20}},
#if defined(__x86_64__)
    {"shared-sum-nt",
     "the same with stores that pass the caches",
     sum_shared_past_cache,
     1,
     widths,
     {64 << 10, 256 << 10, 1 << 20, 8 << 20, 32 << 20, 64 << 20}},
#endif
    {"copy", "each process copies its own buffer", copy, 1, NULL, {64 << 10, 1 << 20, 32 << 20}},
    {"peer-read",
     "each process reads the other's buffer with process_vm_readv",
     read_peer,
     1,
     NULL,
     {4 << 10, 64 << 10, 1 << 20, 32 << 20}},
    {"tcp",
     "both send and receive at once over one TCP connection on the loopback",
     exchange_socket,
     1,
     NULL,
     {8, 64 << 10, 1 << 20, 8 << 20, 32 << 20}},
    {"tcp-sum",
     "the same, and what has come is added",
     exchange_socket_and_sum,
     1,
     pieces,
     {8, 64 << 10, 1 << 20, 8 << 20, 32 << 20, 64 << 20}},
};

enum { BOUNDS = sizeof bounds / sizeof *bounds, SIZES = sizeof bounds->sizes / sizeof *bounds->sizes };

/* ---- two processes --------------------------------------------------------------------------------------------- */

struct options {
    bool json;
    const char *only, *congestion, *address, *netns;
    size_t sizes[SIZES]; /* instead of each bound's own, when there are any */
};

static const size_t *sizes_of(const struct options *o, size_t bound)
{
    return o->sizes[0] ? o->sizes : bounds[bound].sizes;
}

static bool wanted(const struct options *o, size_t bound)
{
    const char *name = bounds[bound].name, *found = o->only;
    const size_t len = strlen(name);
    while (found && (found = strstr(found, name)) &&
           ((found != o->only && found[-1] != ',') || (found[len] && found[len] != ',')))
        found += len;
    return !o->only || found;
}

/* The two processors are the first of those that this process may use; with one, figures are those of taking turns. */
static int pin(int me)
{
    cpu_set_t all, one;
    int seen = 0;
    if (sched_getaffinity(0, sizeof all, &all))
        return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && seen++ == me % CPU_COUNT(&all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
        }
    return CPU_COUNT(&all);
}

static void give_up(int signal)
{
    (void)signal;
    static const char text[] = "limits: no progress for a minute; giving up\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(2);
    _exit(1);
}

/* A socket in the namespace of that name, or in ours. */
static int socket_in(const char *netns)
{
    char path[300];
    snprintf(path, sizeof path, "/run/netns/%s", netns ? netns : "");
    const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there = netns ? open(path, O_RDONLY) : -1;
    if (netns && (there < 0 || home < 0 || setns(there, CLONE_NEWNET)))
        die(path);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (netns && setns(home, CLONE_NEWNET))
        die("coming back from the other namespace");
    close(home);
    if (there >= 0)
        close(there);
    return fd;
}

static void set_congestion(int fd, const char *congestion)
{
    if (!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)))
        return;
    fprintf(stderr,
            "limits: congestion control '%s': %s; /proc/sys/net/ipv4/tcp_available_congestion_control lists "
            "what there is\n",
            congestion, strerror(errno));
    exit(2);
}

static void connect_pair(int pair[2], const struct options *o)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    const int one = 1, listener = socket_in(NULL);
    progress = "a TCP connection";
    if (inet_pton(AF_INET, o->address, &at.sin_addr) != 1) {
        fprintf(stderr, "limits: '%s' is no IPv4 address\n", o->address);
        exit(2);
    }
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &len))
        die("listening");
    pair[1] = socket_in(o->netns);
    set_congestion(listener, o->congestion);
    set_congestion(pair[1], o->congestion);
    if (connect(pair[1], (struct sockaddr *)&at, sizeof at) || (pair[0] = accept(listener, NULL, NULL)) < 0)
        die("connecting");
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(listener);
}

static void prepare(struct side *s)
{
    s->src = aligned_alloc(4096, MOST);
    s->dst = aligned_alloc(4096, MOST);
    s->piece = aligned_alloc(4096, (size_t)PIECE_LEAST << (PIECES - 1));
    if (!s->src || !s->dst || !s->piece)
        die("memory");
    for (size_t i = 0; i < MOST / sizeof(float); i++) {
        s->src[i] = 1;
        s->dst[i] = 0;
        s->arena->src[s->me][i] = 1;
        s->arena->dst[s->me][i] = 0;
    }
    s->arena->address[s->me] = (uintptr_t)s->src;
    s->arena->pid[s->me] = getpid();
    exchange_lines(s, 0);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double repeat(struct side *s, const struct bound *b, size_t bytes, size_t times)
{
    exchange_lines(s, 0);
    const double from = now_us();
    for (size_t i = 0; i < times; i++)
        b->work(s, bytes);
    return (now_us() - from) / (double)times;
}

/* Both processes run this and repeat as often as the first one says; the median of this one's rounds, in microseconds.
 * The rounds before are for the caches and the processor's clock to settle. */
static double measure_variant(struct side *s, const struct bound *b, size_t bytes)
{
    double took[ROUNDS];
    repeat(s, b, bytes, 2);
    const double times = ROUND_US / (repeat(s, b, bytes, 3) + 0.001);
    if (!s->me)
        s->arena->times = times < 2 ? 2 : times > MOST_TIMES ? MOST_TIMES : (size_t)times;
    exchange_lines(s, 0);
    for (int round = -1; round < ROUNDS; round++) {
        const double each = repeat(s, b, bytes, s->arena->times);
        took[round < 0 ? 0 : round] = each;
    }
    exchange_lines(s, 0);
    qsort(took, ROUNDS, sizeof *took, compare);
    return took[ROUNDS / 2];
}

/* The fastest variant of the first process, which is the one that tells. */
static double measure(struct side *s, const struct bound *b, size_t bytes)
{
    double least = 0;
    alarm(GIVE_UP_SECONDS);
    progress = b->name;
    for (s->variant = 0; s->variant < (b->variants ? b->variants() : 1); s->variant++) {
        const double took = measure_variant(s, b, bytes);
        least = s->variant && least < took ? least : took;
    }
    return least;
}

typedef double table[BOUNDS][SIZES];

static void measure_all(struct side *s, const struct options *o, table times)
{
    for (size_t i = 0; i < BOUNDS; i++)
        for (size_t k = 0; wanted(o, i) && k < SIZES && sizes_of(o, i)[k]; k++)
            times[i][k] = measure(s, &bounds[i], sizes_of(o, i)[k]);
}

/* ---- telling --------------------------------------------------------------------------------------------------- */

static double gigabytes(const struct bound *b, size_t bytes, double us) { return b->moved * (double)bytes / us / 1e3; }

static void print_table(const struct options *o, table times, int processors)
{
    printf("# bounds of two processes on %d processor%s; TCP with %s\n", processors < 2 ? processors : 2,
           processors < 2 ? " (they take turns: figures are not bounds)" : "s", o->congestion);
    printf("# %-14s %12s %12s %10s\n", "bound", "bytes", "time (us)", "GB/s");
    for (size_t i = 0; i < BOUNDS; i++)
        for (size_t k = 0; k < SIZES && sizes_of(o, i)[k]; k++)
            if (times[i][k] > 0)
                printf("  %-14s %12zu %12.3f %10.3f\n", bounds[i].name, sizes_of(o, i)[k], times[i][k],
                       gigabytes(&bounds[i], sizes_of(o, i)[k], times[i][k]));
}

static void print_json(const struct options *o, table times, int processors)
{
    const char *comma = "";
    printf("{\"processors\":%d,\"congestion\":\"%s\",\"limits\":[", processors, o->congestion);
    for (size_t i = 0; i < BOUNDS; i++)
        for (size_t k = 0; k < SIZES && sizes_of(o, i)[k]; k++)
            if (times[i][k] > 0) {
                printf("%s{\"bound\":\"%s\",\"bytes\":%zu,\"time\":%.4f,\"bandwidth\":%.4f}", comma, bounds[i].name,
                       sizes_of(o, i)[k], times[i][k], gigabytes(&bounds[i], sizes_of(o, i)[k], times[i][k]));
                comma = ",";
            }
    printf("]}\n");
}

/* ---- options --------------------------------------------------------------------------------------------------- */

static void print_help(void)
{
    printf("Usage: limits [-j] [-o BOUNDS] [-s SIZES] [-C NAME] [-A ADDRESS] [-N NETNS]\n"
           "Measure what two processes on this machine can do at best, without any library.\n\n"
           "  -j, --json             print JSON: times in microseconds, bandwidths in GB/s (1e9)\n"
           "  -o, --only BOUNDS      measure these only, with commas between\n"
           "  -s, --sizes SIZES      up to 12 sizes in bytes, with commas between, instead of each bound's own\n"
           "  -C, --congestion NAME  TCP congestion control (default cubic)\n"
           "  -A, --address ADDRESS  where the connection is made (default 127.0.0.1)\n"
           "  -N, --netns NAME       the second process's end of it is in this network namespace (ip netns)\n"
           "  -h, --help             print this\n\n"
           "Bounds:\n");
    for (size_t i = 0; i < BOUNDS; i++)
        printf("  %-14s %s\n", bounds[i].name, bounds[i].help);
}

static void check_bounds(const char *names)
{
    for (const char *p = names; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        bool known = false;
        for (size_t i = 0; i < BOUNDS; i++)
            known |= strlen(bounds[i].name) == strcspn(p, ",") && !strncmp(p, bounds[i].name, strcspn(p, ","));
        if (known)
            continue;
        fprintf(stderr, "limits: no bound is called '%.*s'; there are:", (int)strcspn(p, ","), p);
        for (size_t i = 0; i < BOUNDS; i++)
            fprintf(stderr, " %s", bounds[i].name);
        fprintf(stderr, "\n");
        exit(2);
    }
}

/* Sizes are multiples of 8: both processes have as many whole elements. */
static void read_sizes(const char *text, size_t sizes[SIZES])
{
    size_t count = 0;
    for (const char *p = text; p; p = *p ? p + 1 : NULL) {
        char *end;
        const unsigned long long bytes = strtoull(p, &end, 10);
        if (end == p || (*end && *end != ',') || !bytes || bytes % 8 || bytes > MOST || count == SIZES) {
            fprintf(stderr, "limits: sizes '%s': it takes up to %d multiples of 8 up to %d, with commas between\n",
                    text, SIZES, MOST);
            exit(2);
        }
        sizes[count++] = bytes;
        p = end;
    }
}

static struct options parse(int argc, char **argv)
{
    static const struct option names[] = {
        {"json", no_argument, NULL, 'j'},          {"only", required_argument, NULL, 'o'},
        {"sizes", required_argument, NULL, 's'},   {"congestion", required_argument, NULL, 'C'},
        {"address", required_argument, NULL, 'A'}, {"netns", required_argument, NULL, 'N'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    struct options o = {.congestion = "cubic", .address = "127.0.0.1"};
    for (int c; (c = getopt_long(argc, argv, "jo:s:C:A:N:h", names, NULL)) != -1;)
        switch (c) {
        case 'j':
            o.json = true;
            break;
        case 'o':
            check_bounds(o.only = optarg);
            break;
        case 's':
            read_sizes(optarg, o.sizes);
            break;
        case 'A':
            o.address = optarg;
            break;
        case 'N':
            o.netns = optarg;
            break;
        case 'C':
            o.congestion = optarg;
            break;
        case 'h':
            print_help();
            exit(0);
        default:
            fprintf(stderr, "limits: --help lists the options\n");
            exit(2);
        }
    if (optind < argc) {
        fprintf(stderr, "limits: '%s' is no option; limits takes no other arguments\n", argv[optind]);
        exit(2);
    }
    return o;
}

/* The child ends with its parent and the parent reports the child's end. */
static int run(struct side *s, const struct options *o, int sockets[2])
{
    static table times;
    const pid_t parent = getpid(), child = fork();
    if (child < 0)
        die("fork");
    s->me = child == 0;
    s->sock = sockets[s->me];
    close(sockets[!s->me]);
    if (!child && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent))
        return 1;
    const int processors = pin(s->me);
    prepare(s);
    measure_all(s, o, times);
    if (!child)
        return 0;
    int status = 0;
    waitpid(child, &status, 0);
    if (status) {
        fprintf(stderr, "limits: the second process failed\n");
        return 1;
    }
    (o->json ? print_json : print_table)(o, times, processors);
    return 0;
}

int main(int argc, char **argv)
{
    const struct options o = parse(argc, argv);
    struct side s = {.sock = -1};
    int sockets[2];
    s.arena = mmap(NULL, sizeof *s.arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s.arena == MAP_FAILED)
        die("shared memory");
    signal(SIGALRM, give_up);
    alarm(GIVE_UP_SECONDS);
    connect_pair(sockets, &o);
    return run(&s, &o, sockets);
}
