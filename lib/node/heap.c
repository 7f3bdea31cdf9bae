/* SPDX-License-Identifier: Apache-2.0 */
/* heap.c - the heap, what is allocated and registered in it, and where a buffer is.
 *
 * Blocks are kept in a table, sorted by the address at which this process sees them, which is changed under the lock.
 * Who looks for a buffer takes no lock: it reads the table between two looks at `version`, and again when that was odd
 * or has changed.  A table that is full is replaced by one of twice the size; old ones stay, since somebody may still
 * read them, which is less than the last one is long in all.
 *
 * Free room is what is between blocks by offset; finding it is quadratic in blocks at worst, which registration, that
 * copies pages and reads /proc/self/maps, does not feel. */
#include "lib/node/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/base/seg.h"
#include "lib/node/maps.h"

/* Of address space for all heaps of a host together, and of memory for one: much more than there can be. */
#define SPACE_FOR_ALL (UINT64_C(1) << 45)
enum { TIMES_MEMORY = 4, FIRST_TABLE = 64 };

struct block {
    _Atomic uintptr_t begin, end;       /* of the buffer                               */
    _Atomic uintptr_t inner, inner_end; /* of its whole pages; equal when there are none */
    _Atomic uint64_t offset;            /* of the whole pages in the heap              */
    _Atomic uint64_t serial;            /* no other block ever has it                  */
    _Atomic uint32_t registered;        /* else allocated                              */
};

struct table {
    uint32_t room;
    struct block block[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ri_seg *heap;
static pid_t owner;
static _Atomic(struct table *) table;
static _Atomic uint32_t blocks, version;

/* ---- the table ------------------------------------------------------------------------------------------------- */

static uintptr_t get(const _Atomic uintptr_t *word) { return atomic_load_explicit(word, memory_order_acquire); }

static void copy_block(struct block *to, const struct block *from)
{
    atomic_store_explicit(&to->begin, from->begin, memory_order_release);
    atomic_store_explicit(&to->end, from->end, memory_order_release);
    atomic_store_explicit(&to->inner, from->inner, memory_order_release);
    atomic_store_explicit(&to->inner_end, from->inner_end, memory_order_release);
    atomic_store_explicit(&to->offset, from->offset, memory_order_release);
    atomic_store_explicit(&to->serial, from->serial, memory_order_release);
    atomic_store_explicit(&to->registered, from->registered, memory_order_release);
}

/* Where the first block that ends behind `at` is. */
static uint32_t position(const struct table *t, uint32_t n, uintptr_t at)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (get(&t->block[mid].end) <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static ring_status_t make_room(void)
{
    struct table *old = table;
    const uint32_t n = blocks, room = old ? 2 * old->room : FIRST_TABLE;
    if (old && n < old->room)
        return RING_OK;
    struct table *t = ri_new(1, sizeof *t + room * sizeof t->block[0]);
    if (!t)
        return ri_fail(RING_ERR_NOMEM, "no memory for a table of %u buffers", room);
    t->room = room;
    for (uint32_t i = 0; i < n; i++)
        copy_block(&t->block[i], &old->block[i]);
    atomic_store_explicit(&table, t, memory_order_release);
    return RING_OK;
}

static void insert(const struct block *b)
{
    static uint64_t serials;
    struct table *t = table;
    const uint32_t at = position(t, blocks, b->begin);
    atomic_fetch_add(&version, 1);
    for (uint32_t i = blocks; i > at; i--)
        copy_block(&t->block[i], &t->block[i - 1]);
    copy_block(&t->block[at], b);
    atomic_store_explicit(&t->block[at].serial, ++serials, memory_order_release);
    blocks++;
    atomic_fetch_add(&version, 1);
}

static void erase(uint32_t at)
{
    struct table *t = table;
    atomic_fetch_add(&version, 1);
    blocks--;
    for (uint32_t i = at; i < blocks; i++)
        copy_block(&t->block[i], &t->block[i + 1]);
    atomic_fetch_add(&version, 1);
}

/* Of the block that begins at ptr; blocks when there is none. */
static uint32_t block_at(const void *ptr, bool registered)
{
    const struct table *t = table;
    const uint32_t at = t ? position(t, blocks, (uintptr_t)ptr) : 0;
    const bool it = at < blocks && t->block[at].begin == (uintptr_t)ptr && t->block[at].registered == registered;
    return it ? at : blocks;
}

/* ---- finding --------------------------------------------------------------------------------------------------- */

static bool place_in(const struct block *b, uintptr_t ptr, size_t bytes, struct ri_heap_place *place_out)
{
    const uintptr_t begin = get(&b->begin), end = get(&b->end);
    const uintptr_t inner = get(&b->inner), inner_end = get(&b->inner_end);
    if (ptr < begin || ptr >= end || bytes > end - ptr || inner == inner_end)
        return false;
    const size_t to_inner = ptr < inner ? inner - ptr : 0, to_end = ptr < inner_end ? inner_end - ptr : 0;
    place_out->head = (uint32_t)(to_inner < bytes ? to_inner : bytes);
    place_out->tail = to_end < bytes ? to_end : bytes;
    place_out->at = atomic_load_explicit(&b->offset, memory_order_acquire) + (ptr > inner ? ptr - inner : 0);
    return true;
}

static bool look(uintptr_t ptr, size_t bytes, uint32_t *hint, struct ri_heap_place *place_out)
{
    const struct table *t = atomic_load_explicit(&table, memory_order_acquire);
    uint32_t n = atomic_load_explicit(&blocks, memory_order_acquire);
    if (!t || !n)
        return false;
    n = n < t->room ? n : t->room; /* counted after the table was read */
    if (*hint < n && place_in(&t->block[*hint], ptr, bytes, place_out))
        return true;
    const uint32_t at = position(t, n, ptr);
    if (at == n || !place_in(&t->block[at], ptr, bytes, place_out))
        return false;
    *hint = at;
    return true;
}

uint32_t ri_heap_version(void) { return atomic_load_explicit(&version, memory_order_acquire); }

/* Until it was not changed meanwhile. */
static bool settled(uint32_t before)
{
    if (before % 2 == 0 && ri_heap_version() == before)
        return true;
    if (before % 2) { /* somebody is changing it, for less than it takes to get the lock */
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
    }
    return false;
}

bool ri_heap_find(const void *ptr, size_t bytes, uint32_t *hint, struct ri_heap_place *place_out)
{
    bool found;
    uint32_t before;
    do {
        before = ri_heap_version();
        found = look((uintptr_t)ptr, bytes, hint, place_out);
    } while (!settled(before));
    return found;
}

static bool look_for_block(uintptr_t ptr, size_t bytes, struct ri_heap_block *block_out)
{
    const struct table *t = atomic_load_explicit(&table, memory_order_acquire);
    const uint32_t n = atomic_load_explicit(&blocks, memory_order_acquire);
    const uint32_t at = t ? position(t, n < t->room ? n : t->room, ptr) : 0;
    if (!t || at >= n || at >= t->room)
        return false;
    const struct block *b = &t->block[at];
    const uintptr_t begin = get(&b->begin), end = get(&b->end);
    if (ptr < begin || ptr >= end || bytes > end - ptr)
        return false;
    *block_out =
        (struct ri_heap_block){(void *)begin, end - begin, atomic_load_explicit(&b->serial, memory_order_acquire)};
    return true;
}

bool ri_heap_block(const void *ptr, size_t bytes, struct ri_heap_block *block_out)
{
    struct ri_heap_block block;
    bool found;
    uint32_t before;
    do {
        before = ri_heap_version();
        found = look_for_block((uintptr_t)ptr, bytes, &block);
    } while (!settled(before));
    if (found)
        *block_out = block;
    return found;
}

/* ---- the heap -------------------------------------------------------------------------------------------------- */

static uint64_t size_of_heap(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE),
               processors = sysconf(_SC_NPROCESSORS_CONF);
    const uint64_t memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 32;
    const uint64_t share = SPACE_FOR_ALL / (uint64_t)(processors > 0 ? processors : 1);
    return (TIMES_MEMORY * memory < share ? TIMES_MEMORY * memory : share) / RI_HEAP_PAGE * RI_HEAP_PAGE;
}

/* Under the lock.  Where address space is limited (ulimit -v), a smaller one. */
static ring_status_t ready(void)
{
    if (heap && owner != getpid())
        return ri_fail(RING_ERR_STATE,
                       "this process was forked from one that has shared memory; it has none of its own");
    ring_status_t status = heap ? RING_OK : RING_ERR_NOMEM;
    for (uint64_t bytes = size_of_heap(); status && bytes >= RI_HEAP_PAGE;
         bytes = bytes / 2 / RI_HEAP_PAGE * RI_HEAP_PAGE)
        status = ri_seg_create_sparse("libring-heap", bytes, &heap);
    if (!status)
        owner = getpid();
    return status;
}

ring_status_t ri_heap_fd(int *fd_out)
{
    pthread_mutex_lock(&lock);
    const ring_status_t status = ready();
    if (!status)
        *fd_out = ri_seg_fd(heap);
    pthread_mutex_unlock(&lock);
    return status;
}

static size_t inner_bytes(const struct block *b) { return b->inner_end - b->inner; }

static bool overlaps(uint64_t offset, size_t bytes, uint64_t *end_out)
{
    const struct table *t = table;
    for (uint32_t i = 0; i < blocks; i++) {
        const struct block *b = &t->block[i];
        if (inner_bytes(b) && b->offset < offset + bytes && offset < b->offset + inner_bytes(b)) {
            *end_out = b->offset + inner_bytes(b);
            return true;
        }
    }
    return false;
}

/* Pages for `bytes`, which exist from here on: a full machine is an error now, not a SIGBUS later. */
static ring_status_t take(size_t bytes, uint64_t *offset_out)
{
    uint64_t offset = 0;
    while (overlaps(offset, bytes, &offset))
        ;
    if (bytes > ri_seg_bytes(heap) || offset > ri_seg_bytes(heap) - bytes)
        return ri_fail(RING_ERR_NOMEM, "%zu bytes of shared memory: there is room for %zu in all", bytes,
                       ri_seg_bytes(heap));
    if (fallocate(ri_seg_fd(heap), 0, (off_t)offset, (off_t)bytes)) {
        const int cause = errno;
        (void)fallocate(ri_seg_fd(heap), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
        errno = cause == ENOSPC ? ENOMEM : cause;
        return ri_fail_errno("%zu bytes of shared memory", bytes);
    }
    *offset_out = offset;
    return RING_OK;
}

static void give_back(uint64_t offset, size_t bytes)
{
    (void)fallocate(ri_seg_fd(heap), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

static unsigned char *at_offset(uint64_t offset) { return (unsigned char *)ri_seg_base(heap) + offset; }

/* ---- allocating ------------------------------------------------------------------------------------------------ */

static ring_status_t allocate(size_t bytes, void **ptr_out)
{
    uint64_t offset = 0;
    const size_t whole = (bytes + RI_HEAP_PAGE - 1) / RI_HEAP_PAGE * RI_HEAP_PAGE;
    ring_status_t status = ready();
    if (!status)
        status = make_room();
    if (!status)
        status = take(whole, &offset);
    if (status)
        return status;
    const uintptr_t begin = (uintptr_t)at_offset(offset);
    insert(&(struct block){
        .begin = begin, .end = begin + whole, .inner = begin, .inner_end = begin + whole, .offset = offset});
    *ptr_out = at_offset(offset);
    return RING_OK;
}

ring_status_t ri_heap_alloc(size_t bytes, void **ptr_out)
{
    if (!bytes || bytes > SIZE_MAX - RI_HEAP_PAGE)
        return ri_fail(RING_ERR_INVALID, "%zu bytes of memory were asked for", bytes);
    pthread_mutex_lock(&lock);
    const ring_status_t status = allocate(bytes, ptr_out);
    pthread_mutex_unlock(&lock);
    return status;
}

static ring_status_t release(const void *ptr)
{
    const ring_status_t status = ready();
    const uint32_t at = status ? 0 : block_at(ptr, false);
    if (status)
        return status;
    if (at == blocks)
        return ri_fail(RING_ERR_INVALID, "%p was not given by ring_mem_alloc(), or has been freed", ptr);
    const uint64_t offset = table->block[at].offset;
    const size_t bytes = inner_bytes(&table->block[at]);
    erase(at);
    give_back(offset, bytes);
    return RING_OK;
}

ring_status_t ri_heap_free(void *ptr)
{
    if (!ptr)
        return RING_OK;
    pthread_mutex_lock(&lock);
    const ring_status_t status = release(ptr);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- registering ----------------------------------------------------------------------------------------------- */

struct check {
    uintptr_t next; /* up to here all is well */
};

static ring_status_t may_move(void *arg, const struct ri_mapping *m)
{
    struct check *c = arg;
    const char *why = NULL;
    if (m->begin != c->next)
        return ri_fail(RING_ERR_INVALID, "nothing is mapped at 0x%lx", (unsigned long)c->next);
    if (m->shared)
        why = "shared already";
    else if (!m->anonymous)
        why = "backed by a file";
    else if (!m->readable || !m->writable)
        why = "not readable and writable";
    else if (m->locked)
        why = "locked in memory (mlock)";
    else if (!strcmp(m->name, "[stack]"))
        why = "the stack";
    if (why)
        return ri_fail(RING_ERR_UNSUPPORTED,
                       "the memory at 0x%lx is %s: only private anonymous memory can be registered (malloc, mmap)",
                       (unsigned long)m->begin, why);
    c->next = m->end;
    return RING_OK;
}

/* A thread's stack looks like any memory, but its pages must not be moved while it runs: here, ours. */
static ring_status_t check_pages(uintptr_t begin, uintptr_t end)
{
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    struct check c = {.next = begin};
    if (here >= begin && here < end)
        return ri_fail(RING_ERR_UNSUPPORTED, "the memory at %p is the stack of the calling thread", (void *)begin);
    const ring_status_t status = ri_maps_each(begin, end, may_move, &c);
    if (!status && c.next != end)
        return ri_fail(RING_ERR_INVALID, "nothing is mapped at 0x%lx", (unsigned long)c.next);
    return status;
}

static ring_status_t check_overlap(const struct block *b)
{
    const struct table *t = table;
    const uint32_t at = position(t, blocks, b->begin);
    if (at == blocks || t->block[at].begin >= b->end)
        return RING_OK;
    return ri_fail(RING_ERR_INVALID, "[0x%lx, 0x%lx) overlaps [0x%lx, 0x%lx), which is %s", (unsigned long)b->begin,
                   (unsigned long)b->end, (unsigned long)t->block[at].begin, (unsigned long)t->block[at].end,
                   t->block[at].registered ? "registered" : "from ring_mem_alloc()");
}

static ring_status_t move_in(struct block *b)
{
    const size_t bytes = inner_bytes(b);
    void *inner = (void *)b->inner;
    uint64_t offset;
    ring_status_t status = check_pages(b->inner, b->inner_end);
    if (!status)
        status = take(bytes, &offset);
    if (status)
        return status;
    memcpy(at_offset(offset), inner, bytes);
    if (mmap(inner, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, ri_seg_fd(heap),
             (off_t)offset) == MAP_FAILED) {
        status = ri_fail_errno("mapping %zu bytes of shared memory at %p", bytes, inner);
        give_back(offset, bytes);
        return status;
    }
    b->offset = offset;
    return RING_OK;
}

static ring_status_t enter(uintptr_t begin, size_t bytes)
{
    const uintptr_t end = begin + bytes, inner = (begin + RI_HEAP_PAGE - 1) / RI_HEAP_PAGE * RI_HEAP_PAGE;
    const uintptr_t inner_end = end / RI_HEAP_PAGE * RI_HEAP_PAGE;
    struct block b = {.begin = begin, .end = end, .inner = inner, .inner_end = inner_end, .registered = 1};
    if (inner_end <= inner)
        b.inner = b.inner_end = begin; /* smaller than a page: nothing moves */
    ring_status_t status = ready();
    if (!status)
        status = make_room();
    if (!status)
        status = check_overlap(&b);
    if (!status && inner_bytes(&b))
        status = move_in(&b);
    if (!status)
        insert(&b);
    return status;
}

ring_status_t ri_heap_register(void *ptr, size_t bytes)
{
    if (!ptr || !bytes || (uintptr_t)ptr > UINTPTR_MAX - bytes - RI_HEAP_PAGE)
        return ri_fail(RING_ERR_INVALID, "a buffer to register has an address and at least one byte; got %p, %zu bytes",
                       ptr, bytes);
    pthread_mutex_lock(&lock);
    const ring_status_t status = enter((uintptr_t)ptr, bytes);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- deregistering --------------------------------------------------------------------------------------------- */

struct leave {
    const struct block *block;
    uint64_t inode;
    uintptr_t next;
    bool replaced;
};

/* Private pages with the same content take the place of ours in one step: no other thread sees a gap. */
static ring_status_t move_out(void *arg, const struct ri_mapping *m)
{
    struct leave *l = arg;
    const size_t bytes = m->end - m->begin;
    if (m->begin != l->next)
        l->replaced = true;
    l->next = m->end;
    if (!m->shared || m->inode != l->inode || m->offset != l->block->offset + (m->begin - l->block->inner)) {
        l->replaced = true;
        return RING_OK;
    }
    void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return ri_fail_errno("%zu bytes for a buffer that is deregistered", bytes);
    memcpy(copy, (const void *)m->begin, bytes);
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)m->begin) == MAP_FAILED) {
        const ring_status_t status = ri_fail_errno("giving back %zu bytes at %p", bytes, (void *)m->begin);
        munmap(copy, bytes);
        return status;
    }
    return RING_OK;
}

static ring_status_t leave(const void *ptr)
{
    struct stat st;
    ring_status_t status = ready();
    if (status)
        return status;
    const uint32_t at = block_at(ptr, true);
    if (at == blocks)
        return ri_fail(RING_ERR_INVALID, "no buffer is registered that begins at %p", ptr);
    struct block b;
    copy_block(&b, &table->block[at]);
    if (fstat(ri_seg_fd(heap), &st))
        return ri_fail_errno("fstat of the shared memory");
    struct leave l = {.block = &b, .inode = st.st_ino, .next = b.inner};
    if (inner_bytes(&b))
        status = ri_maps_each(b.inner, b.inner_end, move_out, &l);
    if (status)
        return status; /* stays registered: what has been moved out is skipped next time */
    erase(at);
    if (inner_bytes(&b))
        give_back(b.offset, inner_bytes(&b));
    if (l.replaced || l.next != b.inner_end)
        return ri_fail(RING_ERR_STATE,
                       "the buffer at %p was freed or mapped anew while it was registered; its memory is left alone",
                       ptr);
    return RING_OK;
}

ring_status_t ri_heap_deregister(void *ptr)
{
    pthread_mutex_lock(&lock);
    const ring_status_t status = leave(ptr);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- peers ----------------------------------------------------------------------------------------------------- */

ring_status_t ri_heap_map_peer(int fd, struct ri_heap_view *view_out)
{
    struct ri_seg *seg;
    const ring_status_t status = ri_seg_adopt(fd, RI_HEAP_PAGE, &seg);
    if (status)
        return status;
    ri_seg_keep_mapping(seg);
    *view_out = (struct ri_heap_view){.base = ri_seg_base(seg), .bytes = ri_seg_bytes(seg), .seg = seg};
    return RING_OK;
}

void ri_heap_unmap_peer(struct ri_heap_view *view)
{
    ri_seg_close(view->seg);
    *view = (struct ri_heap_view){0};
}
