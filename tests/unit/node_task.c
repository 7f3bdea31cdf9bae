/* SPDX-License-Identifier: Apache-2.0 */
/* node_task.c - see node_task.h. */
#include "tests/unit/node_task.h"

#include <criterion/criterion.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "perf/ring_perf/number.h"

uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t first_seed(void)
{
    const char *text = getenv("TEST_SEED");
    const uint64_t seed = text ? strtoull(text, NULL, 0) : mix(ri_now());
    const char *filled = getenv("MALLOC_PERTURB_"); /* meson fills fresh memory with another byte each time */
    fprintf(stderr, "TEST_SEED=%llu%s%s\n", (unsigned long long)seed, filled ? " MALLOC_PERTURB_=" : "",
            filled ? filled : "");
    return seed;
}

uint64_t next(uint64_t *state) { return mix(*state += UINT64_C(0x9e3779b97f4a7c15)); }

/* A float of 16 or 8 bits between 1/2 and 8, of either sign, by its code; number_put() is slow. */
static uint64_t small_float(struct number_format f, uint64_t r)
{
    const uint64_t exponent = (1u << (f.exp - 1)) - 2 + (r & 3), fraction = r >> 8 & ((1u << f.mant) - 1);
    return (r >> 63 << f.exp | exponent) << f.mant | fraction;
}

static void store(unsigned char *to, uint64_t value, size_t bytes) /* little-endian */
{
    const uint32_t four = (uint32_t)value;
    const uint16_t two = (uint16_t)value;
    if (bytes == 8)
        memcpy(to, &value, 8);
    else if (bytes == 4)
        memcpy(to, &four, 4);
    else if (bytes == 2)
        memcpy(to, &two, 2);
    else
        *to = (unsigned char)value;
}

/* A rank's input from element `at` on: any integers, or floats whose rounding depends on the order of the ranks.  Most
 * of the time of these tests goes here: every rank makes everybody's. */
static void make_elements(const struct task *t, uint32_t rank, size_t at, size_t count, unsigned char *to)
{
    const size_t esize = ri_dtype_size(t->dtype);
    const uint64_t key = t->seed ^ mix(rank * UINT64_C(1000003) + 1);
    const bool small = number_is_small(t->dtype), large = !small && ri_dtype_is_float(t->dtype);
    const struct number_format f = small ? number_format_of(t->dtype) : (struct number_format){0};
    for (size_t i = 0; i < count; i++, to += esize) {
        const uint64_t r = mix(key ^ (at + i));
        if (large)
            number_put(t->dtype, to, (double)(int64_t)r / 1e18);
        else
            store(to, small ? small_float(f, r) : r, esize);
    }
}

static bool is_one_of(ring_coll_t coll, ring_coll_t a, ring_coll_t b, ring_coll_t c)
{
    return coll == a || coll == b || coll == c;
}

/* Elements that go from one rank to another. */
static size_t block(const struct task *t, uint32_t from, uint32_t to)
{
    if (!t->arrays)
        return t->count;
    from = is_one_of(t->coll, RING_SCATTER, RING_REDUCE_SCATTER, RING_SCATTER) ? 0 : from;
    to = is_one_of(t->coll, RING_GATHER, RING_ALL_GATHER, RING_GATHER) ? 0 : to;
    const uint64_t r = mix(t->seed ^ (from * 64 + to + 1) * UINT64_C(77777777777));
    return r % 4 ? (size_t)(r >> 8) % (t->count + 1) : 0;
}

static void layout_make(struct layout *l, const struct task *t, uint32_t rank, uint32_t size, bool of_src)
{
    const bool many = of_src ? is_one_of(t->coll, RING_SCATTER, RING_ALL_TO_ALL, RING_REDUCE_SCATTER)
                             : is_one_of(t->coll, RING_GATHER, RING_ALL_GATHER, RING_ALL_TO_ALL);
    memset(l, 0, sizeof *l);
    if (!many) {
        const bool own = of_src ? is_one_of(t->coll, RING_GATHER, RING_ALL_GATHER, RING_GATHER)
                                : is_one_of(t->coll, RING_SCATTER, RING_REDUCE_SCATTER, RING_SCATTER);
        l->total = own ? block(t, rank, rank) : t->count;
        return;
    }
    for (uint32_t r = 0; r < size; r++) {
        l->count[r] = of_src ? block(t, rank, r) : block(t, r, rank);
        l->begin[r] = l->total + (t->arrays ? mix(t->seed + r) % 3 : 0);
        l->total = l->begin[r] + l->count[r];
    }
}

bool holds(const struct task *t, uint32_t rank, bool src) /* is this buffer used on this rank? */
{
    if (t->coll == RING_BARRIER)
        return false;
    return rank == t->root || (src ? !is_one_of(t->coll, RING_BROADCAST, RING_SCATTER, RING_SCATTER)
                                   : !is_one_of(t->coll, RING_REDUCE, RING_GATHER, RING_GATHER));
}

static void expect_reduced(const struct task *t, uint32_t size, size_t at, size_t count, unsigned char *dst)
{
    const size_t esize = ri_dtype_size(t->dtype);
    const struct ri_reduction red = ri_reduction_from(0, t->dtype, t->redop);
    unsigned char *all = malloc(size * (count + 1) * esize);
    const void *from[RANKS];
    void *to[1] = {dst};
    for (uint32_t r = 0; r < size; r++) {
        from[r] = all + r * count * esize;
        make_elements(t, r, at, count, all + r * count * esize);
    }
    const struct ri_combine c = {
        .from = from, .to = to, .n = size, .outs = 1, .count = count, .divisor = red.divide ? size : 0};
    if (count)
        red.combine(&red, &c);
    free(all);
}

/* What dst must hold: one case a collective, said independently of lib/node/flow.c. */
static void expect(const struct task *t, uint32_t rank, uint32_t size, const struct buffers *b, unsigned char *dst)
{
    const size_t esize = ri_dtype_size(t->dtype);
    struct layout src;
    if (!holds(t, rank, false))
        return;
    switch (t->coll) {
    case RING_ALL_REDUCE:
    case RING_REDUCE:
        expect_reduced(t, size, 0, t->count, dst);
        break;
    case RING_REDUCE_SCATTER:
        expect_reduced(t, size, b->from.begin[rank], b->from.count[rank], dst);
        break;
    case RING_BROADCAST:
        make_elements(t, t->root, 0, t->count, dst);
        break;
    case RING_SCATTER:
        layout_make(&src, t, t->root, size, true);
        make_elements(t, t->root, src.begin[rank], src.count[rank], dst);
        break;
    case RING_ALL_TO_ALL:
        for (uint32_t r = 0; r < size; r++) {
            layout_make(&src, t, r, size, true);
            make_elements(t, r, src.begin[rank], src.count[rank], dst + b->to.begin[r] * esize);
        }
        break;
    default: /* gather, all_gather */
        for (uint32_t r = 0; r < size; r++)
            make_elements(t, r, 0, b->to.count[r], dst + b->to.begin[r] * esize);
    }
}

/* In place: where src lies in dst, or dst in src; as NCCL has it. */
static void place_buffers(struct buffers *b, const struct task *t, uint32_t rank, size_t src_room)
{
    const size_t esize = ri_dtype_size(t->dtype);
    b->dst = b->src + src_room;
    if (!t->in_place || !holds(t, rank, true) || !holds(t, rank, false) || (t->coll == RING_ALL_TO_ALL && t->arrays))
        return;
    b->dst = b->src;
    if (is_one_of(t->coll, RING_GATHER, RING_ALL_GATHER, RING_GATHER))
        b->src = b->dst + b->to.begin[rank] * esize;
    if (is_one_of(t->coll, RING_SCATTER, RING_REDUCE_SCATTER, RING_SCATTER))
        b->dst = b->src + b->from.begin[rank] * esize;
}

static void *new_memory(enum memory kind, size_t bytes)
{
    void *memory = NULL;
    if (kind == ALLOCATED)
        CHECK(!ri_heap_alloc(bytes, &memory), "%s", ri_error_get());
    return memory ? memory : malloc(bytes);
}

static void register_memory(struct buffers *b, const struct task *t, uint32_t rank)
{
    const size_t esize = ri_dtype_size(t->dtype);
    unsigned char *at = b->kind == SRC_REGISTERED ? b->src : b->kind == DST_REGISTERED ? b->dst : b->memory;
    const size_t bytes = b->kind == SRC_REGISTERED   ? b->from.total * esize
                         : b->kind == DST_REGISTERED ? b->to.total * esize
                                                     : b->total;
    const bool used = b->kind == REGISTERED || holds(t, rank, b->kind == SRC_REGISTERED);
    if (b->kind < REGISTERED || !bytes || !used)
        return;
    CHECK(!ri_heap_register(at, bytes), "%s", ri_error_get());
    b->registered = at;
}

void buffers_free(struct buffers *b)
{
    if (b->registered)
        CHECK(!ri_heap_deregister(b->registered), "%s", ri_error_get());
    if (b->kind == ALLOCATED)
        CHECK(!ri_heap_free(b->memory), "%s", ri_error_get());
    else
        free(b->memory);
    free(b->wanted);
}

void buffers_make(struct buffers *b, const struct task *t, uint32_t rank, uint32_t size)
{
    const size_t esize = ri_dtype_size(t->dtype), shift = mix(t->seed + rank) % 16 * esize;
    layout_make(&b->from, t, rank, size, true);
    layout_make(&b->to, t, rank, size, false);
    const size_t most = b->from.total > b->to.total ? b->from.total : b->to.total;
    const size_t room = (GUARD + 128 + most * esize + 7) / 8 * 8;
    b->total = 2 * room + GUARD;
    b->kind = t->shared ? (enum memory)(mix(t->seed ^ (rank + 99)) % t->shared) : PLAIN;
    b->registered = NULL;
    b->memory = new_memory(b->kind, b->total);
    b->wanted = malloc(b->total);
    memset(b->memory, 0xa5, b->total);
    b->src = b->memory + GUARD + shift;
    place_buffers(b, t, rank, room);
    if (holds(t, rank, true))
        make_elements(t, rank, 0, b->from.total, b->src);
    memcpy(b->wanted, b->memory, b->total);
    expect(t, rank, size, b, b->wanted + (b->dst - b->memory));
    register_memory(b, t, rank);
}

void buffers_check(const struct buffers *b, const struct task *t, uint32_t rank, uint32_t size)
{
    if (!memcmp(b->memory, b->wanted, b->total))
        return;
    size_t at = 0;
    while (b->memory[at] == b->wanted[at])
        at++;
    CHECK(false, "%s %s %s of %u ranks, root %u, %zu elements%s%s, %s: rank %u, byte %td of dst (src %td) is wrong",
          ring_coll_str(t->coll), ri_dtype_name(t->dtype), ri_redop_name(t->redop), size, t->root, t->count,
          t->arrays ? ", arrays" : "", t->in_place ? ", in place" : "", t->way ? t->way->name : "auto", rank,
          b->memory + at - b->dst, b->memory + at - b->src);
}

struct ri_call call_for(const struct task *t, const struct buffers *b, uint32_t rank)
{
    struct ri_call call = {.coll = t->coll,
                           .dtype = t->dtype,
                           .redop = t->redop,
                           .root = t->root,
                           .src = holds(t, rank, true) ? b->src : NULL,
                           .dst = holds(t, rank, false) ? b->dst : NULL,
                           .count = t->count};
    if (!t->arrays)
        return call;
    if (is_one_of(t->coll, RING_SCATTER, RING_GATHER, RING_SCATTER))
        call.count = t->coll == RING_SCATTER ? block(t, 0, rank) : block(t, rank, 0);
    if (holds(t, rank, true) && is_one_of(t->coll, RING_SCATTER, RING_ALL_TO_ALL, RING_REDUCE_SCATTER)) {
        call.scounts = b->from.count;
        call.sdispls = b->from.begin;
    }
    if (holds(t, rank, false) && is_one_of(t->coll, RING_GATHER, RING_ALL_TO_ALL, RING_ALL_GATHER)) {
        call.rcounts = b->to.count;
        call.rdispls = b->to.begin;
    }
    return call;
}

static const struct way *pick_way(uint64_t r, ring_coll_t coll)
{
    static const struct way *const ways[] = {&ri_node_pull, &ri_node_two_shot, &ri_node_cma, &ri_node_shares};
    const bool reduces = coll == RING_ALL_REDUCE || coll == RING_REDUCE;
    if (r % 2 || !reduces)
        return NULL;
    return ways[coll == RING_REDUCE ? r / 2 % 2 : r / 2 % 4];
}

struct task pick_task(uint64_t *state, uint32_t size, size_t most)
{
    const uint64_t r = next(state);
    struct task t = {.seed = next(state),
                     .coll = (ring_coll_t)(r >> 40 & 1 ? (uint64_t)RING_ALL_REDUCE : (r >> 41) % (RING_BARRIER + 1)),
                     .dtype = (ring_dtype_t)(r % RI_DTYPES),
                     .redop = (ring_redop_t)((r >> 8) % RI_REDOPS),
                     .root = (uint32_t)(r >> 24) % size,
                     .arrays = r >> 21 & 1,
                     .in_place = r >> 20 & 1};
    const size_t limits[] = {1, 8, 64, 1000, most / 16, most};
    const bool whole = is_one_of(t.coll, RING_ALL_REDUCE, RING_REDUCE, RING_BROADCAST);
    const size_t bytes = next(state) % (limits[next(state) % 6] + 1);
    if (!ri_redop_fits(t.dtype, t.redop))
        t.redop = RING_SUM;
    t.count = t.coll == RING_BARRIER ? 0 : bytes / (whole ? 1 : size) / ri_dtype_size(t.dtype);
    t.arrays = t.arrays && !whole && t.coll != RING_BARRIER;
    t.way = t.count ? pick_way(next(state), t.coll) : NULL;
    t.shared = r >> 50 & 3 ? MEMORIES : 0;
    t.pays = (struct ri_pays){r >> 52 & 1 ? 64 : SIZE_MAX, SIZE_MAX, r >> 53 & 1 ? 0 : SIZE_MAX};
    return t;
}
