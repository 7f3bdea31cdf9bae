/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - protection domains, registered memory, and who may touch it. */
#include "tests/verbs/inner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#undef ibv_reg_mr

enum { KNOWN = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

/* ---- protection domains ---------------------------------------------------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    pv_lock();
    int error = pv_fault(CALL_alloc_pd);
    if (!error && world.fatal[pv_index(context)])
        error = EIO;
    errno = error;
    struct pd *pd = error ? NULL : pv_new(PD, sizeof *pd, offsetof(struct pd, object));
    if (pd) {
        pd->base.context = context;
        ((struct context *)context)->uses++;
    }
    pv_unlock();
    return pd ? &pd->base : NULL;
}

static int dealloc(struct pd *pd)
{
    const int error = pv_fault(CALL_dealloc_pd);
    if (error)
        return error;
    if (pd->uses)
        return pv_violation(EBUSY, "a protection domain freed while %d things are in it", pd->uses);
    ((struct context *)pd->base.context)->uses--;
    pv_free(PD, pd);
    return 0;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    pv_lock();
    const int error = dealloc((struct pd *)pd);
    pv_unlock();
    return error;
}

/* ---- registering ----------------------------------------------------------------------------------------------- */

static size_t pages(const void *at, size_t bytes)
{
    const size_t before = (uintptr_t)at % PAGE;
    return (before + bytes + PAGE - 1) / PAGE * PAGE;
}

static int check_access(const struct ibv_pd *pd, size_t bytes, unsigned access)
{
    if (world.fatal[pv_index(pd->context)])
        return EIO;
    if (!bytes)
        return pv_violation(EINVAL, "0 bytes registered");
    if (access & ~(unsigned)(KNOWN | IBV_ACCESS_OPTIONAL_RANGE))
        return pv_violation(EINVAL, "memory registered with access 0x%x, of which not all is known", access);
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
        return pv_violation(EINVAL, "memory registered for remote writes and not for local ones");
    return 0;
}

/* Keys are not used again, so that one of memory that is gone is known for what it is; even ones are local. */
static struct mr *new_mr(struct ibv_pd *pd, char *at, size_t bytes, uint64_t iova, unsigned access)
{
    struct mr *mr = pv_new(MR, sizeof *mr, offsetof(struct mr, object));
    if (!mr)
        return NULL;
    if (!pv_device(pd->context)->relaxed_ordering)
        access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
    mr->base.context = pd->context;
    mr->base.pd = pd;
    mr->base.length = bytes;
    mr->base.lkey = world.next_key;
    mr->base.rkey = world.next_key + 1;
    world.next_key += 2;
    mr->at = at;
    mr->iova = iova;
    mr->access = access;
    ((struct pd *)pd)->uses++;
    world.count.registrations++;
    world.count.relaxed += !!(access & IBV_ACCESS_RELAXED_ORDERING);
    world.count.readable += !!(access & IBV_ACCESS_REMOTE_READ);
    return mr;
}

static struct ibv_mr *reg(enum call call, struct ibv_pd *pd, char *at, size_t bytes, uint64_t iova, unsigned access)
{
    const uint64_t limit = pv_device(pd->context)->locked_memory;
    int error = pv_fault(call);
    if (!error)
        error = check_access(pd, bytes, access);
    if (!error && (iova ^ (uintptr_t)at) % PAGE)
        error = pv_violation(EINVAL, "memory registered at %p under an address whose offset in its page differs",
                             (void *)at);
    const size_t locked = pages(at, bytes);
    if (!error && limit && world.count.locked + locked > limit)
        error = ENOMEM;
    errno = error;
    struct mr *mr = error ? NULL : new_mr(pd, at, bytes, iova, access);
    if (!mr)
        return NULL;
    mr->base.addr = at;
    mr->locked = locked;
    world.count.locked += locked;
    return &mr->base;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
    pv_lock();
    if (access & IBV_ACCESS_OPTIONAL_RANGE)
        pv_violation(0, "optional access flags given to ibv_reg_mr(), which in an older library hands them on to a "
                        "kernel that may not know them");
    struct ibv_mr *mr = reg(CALL_reg_mr, pd, at, bytes, (uintptr_t)at, (unsigned)access);
    pv_unlock();
    return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t bytes, uint64_t iova, unsigned access)
{
    pv_lock();
    struct ibv_mr *mr = reg(CALL_reg_mr_iova2, pd, at, bytes, iova, access);
    pv_unlock();
    return mr;
}

static struct mr *reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, unsigned access)
{
    const uint64_t skipped = offset % PAGE;
    const size_t mapped = skipped + bytes;
    const int prot = PROT_READ | (access & IBV_ACCESS_LOCAL_WRITE ? PROT_WRITE : 0);
    void *map = mmap(NULL, mapped, prot, MAP_SHARED, fd, (off_t)(offset - skipped));
    if (map == MAP_FAILED)
        return NULL;
    struct mr *mr = new_mr(pd, (char *)map + skipped, bytes, iova, access);
    if (!mr) {
        munmap(map, mapped);
        return NULL;
    }
    mr->base.addr = (void *)(uintptr_t)offset;
    mr->map = map;
    mr->mapped = mapped;
    world.count.dmabufs++;
    return mr;
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
                                        int access)
{
    pv_lock();
    int error = pv_fault(CALL_reg_dmabuf_mr);
    if (!error && !pv_device(pd->context)->dmabuf)
        error = EOPNOTSUPP;
    if (!error)
        error = check_access(pd, bytes, (unsigned)access);
    if (!error && (iova ^ offset) % PAGE)
        error = pv_violation(EINVAL, "a dma-buf registered under an address whose offset in its page differs");
    errno = error;
    struct mr *mr = error ? NULL : reg_dmabuf(pd, offset, bytes, iova, fd, (unsigned)access);
    pv_unlock();
    return mr ? &mr->base : NULL;
}

/* ---- who may touch it ------------------------------------------------------------------------------------------ */

struct mr *pv_mr_find(uint32_t key)
{
    for (struct object *o = world.all[MR]; o; o = o->next) {
        struct mr *mr = o->self;
        if ((mr->base.lkey | 1) == (key | 1))
            return mr;
    }
    return NULL;
}

static bool inside(const struct mr *mr, uint64_t addr, uint64_t bytes)
{
    return addr >= mr->iova && bytes <= mr->base.length && addr - mr->iova <= mr->base.length - bytes;
}

char *pv_local(const struct qp *q, const struct ibv_sge *sge, unsigned access, const char **why_out)
{
    const struct mr *mr = pv_mr_find(sge->lkey);
    const char *why = !mr || mr->base.lkey != sge->lkey     ? "is no lkey of any memory"
                      : mr->base.pd != q->base.pd           ? "is of another protection domain"
                      : !inside(mr, sge->addr, sge->length) ? "is of memory that ends before or begins after that"
                      : (mr->access & access) != access     ? "is of memory that may not be written"
                                                            : NULL;
    *why_out = why;
    return why ? NULL : mr->at + (sge->addr - mr->iova);
}

/* A key that was valid once is no violation: one end may be gone before the other knows. */
char *pv_remote(const struct qp *q, uint64_t addr, uint64_t bytes, uint32_t key, unsigned access)
{
    const struct mr *mr = pv_mr_find(key);
    const char *why = !mr || mr->base.rkey != key       ? "no rkey of any memory"
                      : mr->base.pd != q->base.pd       ? "of another protection domain than the queue pair"
                      : !inside(mr, addr, bytes)        ? "of memory that ends before or begins after that"
                      : (mr->access & access) != access ? "of memory that was not registered for it"
                      : (q->attr.qp_access_flags & access) != access ? "good, but not on this queue pair"
                                                                     : NULL;
    if (!why)
        return mr->at + (addr - mr->iova);
    world.count.denied++;
    if (mr || key >= world.next_key || !(key & 1))
        pv_violation(0, "remote access 0x%x to %llu bytes at 0x%llx denied: key 0x%x is %s", access,
                     (unsigned long long)bytes, (unsigned long long)addr, key, why);
    return NULL;
}

/* ---- what is written to a device's memory ----------------------------------------------------------------------- */

/* A dma-buf stands for the memory of a GPU.  A write to that may still be on its way when the completion that tells of
 * it has reached the processor, which it does by another; a read by the same way pushes it in front of itself. */
char *pv_hide(uint32_t key, char *at, uint64_t bytes)
{
    struct mr *mr = pv_mr_find(key);
    if (!mr || !mr->map)
        return at;
    struct hidden *h = calloc(1, sizeof *h + (size_t)bytes);
    if (!h)
        abort();
    h->to = at;
    h->bytes = (size_t)bytes;
    *(mr->first ? mr->last : &mr->first) = h;
    mr->last = &h->next;
    world.count.hidden++;
    return h->data;
}

uint64_t pv_read(uint32_t key)
{
    const struct mr *mr = pv_mr_find(key);
    const uint64_t read = (uint64_t)key << 32 | ++world.reads;
    for (struct hidden *h = mr ? mr->first : NULL; h; h = h->next)
        h->before = h->before ? h->before : read;
    return read;
}

static void take_first(struct mr *mr, bool show)
{
    struct hidden *h = mr->first;
    mr->first = h->next;
    if (show) {
        memcpy(h->to, h->data, h->bytes);
        world.count.hidden--;
    }
    free(h);
}

void pv_uncover(uint64_t read)
{
    struct mr *mr = pv_mr_find((uint32_t)(read >> 32));
    while (mr && mr->first && mr->first->before && mr->first->before <= read)
        take_first(mr, true);
}

/* ---- deregistering --------------------------------------------------------------------------------------------- */

static bool names(const struct ibv_sge *sge, int sges, uint32_t lkey)
{
    for (int i = 0; i < sges; i++)
        if (sge[i].lkey == lkey && sge[i].length)
            return true;
    return false;
}

/* A send refers to its memory until it is known to have ended; in a queue pair that failed, nothing does. */
static bool is_used(struct qp *q, uint32_t lkey)
{
    if (q->state == IBV_QPS_ERR || q->state == IBV_QPS_RESET)
        return false;
    for (uint64_t i = q->sq.freed; i < q->sq.next; i++) {
        const struct send *s = pv_send(q, i);
        if (!s->inlined && names(s->sge, s->wr.num_sge, lkey))
            return true;
    }
    for (uint64_t i = q->rq.done; i < q->rq.next; i++) {
        const struct recv *r = pv_recv(q, i);
        if (names(r->sge, r->sges, lkey))
            return true;
    }
    return false;
}

void pv_mr_free(struct mr *mr)
{
    ((struct pd *)mr->base.pd)->uses--;
    world.count.locked -= mr->locked;
    while (mr->first)
        take_first(mr, false);
    if (mr->map)
        munmap(mr->map, mr->mapped);
    pv_free(MR, mr);
}

static int dereg(struct mr *mr)
{
    const int error = pv_fault(CALL_dereg_mr);
    if (error)
        return error;
    for (struct object *o = world.all[QP]; o; o = o->next)
        if (is_used(o->self, mr->base.lkey))
            return pv_violation(EBUSY, "memory deregistered that a work request posted on queue pair 0x%x may use",
                                ((struct qp *)o->self)->base.qp_num);
    pv_mr_free(mr);
    return 0;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
    pv_lock();
    const int error = dereg((struct mr *)mr);
    pv_unlock();
    return error;
}
