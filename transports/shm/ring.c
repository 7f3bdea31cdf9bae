/* SPDX-License-Identifier: Apache-2.0 */
#include "transports/shm/ring.h"

size_t shm_area_bytes(size_t cap) { return sizeof(struct shm_area) + 2 * cap; }

static void set_up(struct shm_ring *r, struct shm_area *a, unsigned way, size_t cap)
{
    *r = (struct shm_ring){.bytes = (unsigned char *)(a + 1) + way * cap, .cap = cap};
}

void shm_ring_writer(struct shm_ring *r, struct shm_area *a, unsigned way, size_t cap)
{
    set_up(r, a, way, cap);
    r->mine = &a->way[way].head;
    r->other = &a->way[way].tail;
}

void shm_ring_reader(struct shm_ring *r, struct shm_area *a, unsigned way, size_t cap)
{
    set_up(r, a, way, cap);
    r->mine = &a->way[way].tail;
    r->other = &a->way[way].head;
}

static size_t until_wrap(const struct shm_ring *r, uint64_t n)
{
    const size_t end = r->cap - r->off;
    return n < end ? (size_t)n : end;
}

/* A look at the other's counter costs a cache miss when it has moved, so it is only taken when what is known is used
 * up. Whatever is there is only believed as a distance from our own position of at most cap. */
static uint64_t look(struct shm_ring *r)
{
    const uint64_t seen = atomic_load_explicit(r->other, memory_order_seq_cst);
    return seen & ~(uint64_t)(SHM_ALIGN - 1);
}

size_t shm_ring_room(struct shm_ring *r)
{
    if (r->at - r->seen < r->cap)
        return until_wrap(r, r->cap - (r->at - r->seen));
    const uint64_t tail = look(r);
    if (r->at - tail > r->cap) {
        r->broken = true;
        return 0;
    }
    r->seen = tail;
    return until_wrap(r, r->cap - (r->at - tail));
}

size_t shm_ring_data(struct shm_ring *r)
{
    if (r->seen == r->at) {
        const uint64_t head = look(r);
        if (head - r->at > r->cap) {
            r->broken = true;
            return 0;
        }
        r->seen = head;
    }
    return until_wrap(r, r->seen - r->at);
}

size_t shm_ring_advance(struct shm_ring *r, size_t n)
{
    n = (n + SHM_ALIGN - 1) & ~(size_t)(SHM_ALIGN - 1);
    r->at += n;
    r->off += n;
    if (r->off >= r->cap)
        r->off -= r->cap;
    return n;
}

bool shm_ring_publish(struct shm_ring *r)
{
    if (r->told == r->at)
        return false;
    r->told = r->at;
    atomic_store_explicit(r->mine, r->at, memory_order_seq_cst);
    return true;
}
