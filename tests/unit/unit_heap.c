/* SPDX-License-Identifier: Apache-2.0 */
/* lib/node/heap.h: memory that peers can map, and what may become such memory. */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/node/heap.h"

enum { PAGE = RI_HEAP_PAGE };

static unsigned char *map_pages(size_t pages)
{
    void *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(p, MAP_FAILED);
    return p;
}

static void fill(unsigned char *p, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static void expect_filled(const unsigned char *p, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        cr_assert_eq(p[i], (unsigned char)(i * 7 + i / 251 + seed), "byte %zu", i);
}

static void expect_refused(ring_status_t got, ring_status_t want, const char *word)
{
    cr_assert_eq(got, want, "status %d: %s", got, ri_error_get());
    cr_assert_not_null(strstr(ri_error_get(), word), "\"%s\" is not in: %s", word, ri_error_get());
}

/* The heap as a peer has it mapped. */
static struct ri_heap_view peer_view(void)
{
    struct ri_heap_view view;
    int fd = -1;
    cr_assert_eq(ri_heap_fd(&fd), RING_OK);
    cr_assert_eq(ri_heap_map_peer(fcntl(fd, F_DUPFD_CLOEXEC, 0), &view), RING_OK, "%s", ri_error_get());
    return view;
}

static bool found(const void *p, size_t bytes, struct ri_heap_place *place)
{
    uint32_t hint = 0;
    return ri_heap_find(p, bytes, &hint, place);
}

Test(heap, allocated_memory_is_zero_and_can_be_found)
{
    struct ri_heap_view view = peer_view();
    struct ri_heap_place place;
    void *a, *b, *c;
    cr_assert_eq(ri_heap_alloc(10000, &a), RING_OK);
    cr_assert_eq(ri_heap_alloc(PAGE, &b), RING_OK);
    cr_assert_eq((uintptr_t)a % PAGE, 0);
    fill(a, 3 * PAGE, 1);
    fill(b, PAGE, 2);
    cr_assert(found((char *)a + 100, 9000, &place));
    cr_assert_eq(place.head, 0);
    cr_assert_eq(place.tail, 9000);
    cr_assert_eq(memcmp(view.base + place.at, (char *)a + 100, 9000), 0);
    cr_assert(found(b, PAGE, &place));
    cr_assert_not(found(b, PAGE + 1, &place));
    cr_assert_not(found(&view, 1, &place));
    cr_assert_eq(ri_heap_free(a), RING_OK);
    cr_assert_not(found(a, 1, &place));
    cr_assert_eq(ri_heap_alloc(3 * PAGE, &c), RING_OK);
    cr_assert_eq(c, a, "freed room is used again");
    for (size_t i = 0; i < 3 * (size_t)PAGE; i++)
        cr_assert_eq(((unsigned char *)c)[i], 0);
    expect_filled(b, PAGE, 2);
    cr_assert_eq(ri_heap_free(b), RING_OK);
    cr_assert_eq(ri_heap_free(c), RING_OK);
    cr_assert_eq(ri_heap_free(NULL), RING_OK);
    expect_refused(ri_heap_free(c), RING_ERR_INVALID, "ring_mem_alloc");
    expect_refused(ri_heap_alloc(0, &c), RING_ERR_INVALID, "0 bytes");
    expect_refused(ri_heap_alloc((size_t)1 << 60, &c), RING_ERR_NOMEM, "room for");
    ri_heap_unmap_peer(&view);
}

Test(heap, a_registered_buffer_keeps_its_content_and_its_edges_stay_private)
{
    struct ri_heap_view view = peer_view();
    struct ri_heap_place place;
    unsigned char *pages = map_pages(6), *buffer = pages + 1000;
    const size_t bytes = 5 * PAGE - 500;
    fill(pages, 6 * PAGE, 3);
    cr_assert_eq(ri_heap_register(buffer, bytes), RING_OK, "%s", ri_error_get());
    expect_filled(pages, 6 * PAGE, 3);
    cr_assert(found(buffer, bytes, &place));
    cr_assert_eq(place.head, PAGE - 1000);
    cr_assert_eq(place.tail, 5 * PAGE - 1000);
    cr_assert_eq(memcmp(view.base + place.at, buffer + place.head, place.tail - place.head), 0);
    view.base[place.at] ^= 0xff; /* what a peer writes is there, and the other way round */
    cr_assert_eq(buffer[place.head], (unsigned char)(((PAGE * 7 + PAGE / 251 + 3) & 0xff) ^ 0xff));
    buffer[place.head] ^= 0xff;
    cr_assert(found(buffer + 10, 5, &place));
    cr_assert_eq(place.head, 5);
    cr_assert(found(buffer + bytes - 5, 5, &place));
    cr_assert_eq(place.tail, 0);
    cr_assert_not(found(pages, 2000, &place), "it begins before the buffer");
    cr_assert_eq(ri_heap_deregister(buffer), RING_OK, "%s", ri_error_get());
    expect_filled(pages, 6 * PAGE, 3);
    cr_assert_not(found(buffer, 1, &place));
    expect_refused(ri_heap_deregister(buffer), RING_ERR_INVALID, "no buffer is registered");
    munmap(pages, 6 * PAGE);
    ri_heap_unmap_peer(&view);
}

Test(heap, buffers_of_less_than_a_page_may_be_registered_but_do_not_move)
{
    static unsigned char small[100];
    struct ri_heap_place place;
    cr_assert_eq(ri_heap_register(small, sizeof small), RING_OK, "%s", ri_error_get());
    cr_assert_not(found(small, sizeof small, &place));
    expect_refused(ri_heap_register(small + 50, 10), RING_ERR_INVALID, "overlaps");
    cr_assert_eq(ri_heap_deregister(small), RING_OK, "%s", ri_error_get());
}

Test(heap, memory_of_other_kinds_is_refused_and_left_alone)
{
    char name[] = "/tmp/unit_heap_XXXXXX";
    const int file = mkstemp(name);
    cr_assert_eq(ftruncate(file, 4 * PAGE), 0);
    void *of_file = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    unlink(name);
    expect_refused(ri_heap_register(of_file, 4 * PAGE), RING_ERR_UNSUPPORTED, "backed by a file");
    void *shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect_refused(ri_heap_register(shared, 4 * PAGE), RING_ERR_UNSUPPORTED, "shared");
    unsigned char *pages = map_pages(8), *frame = __builtin_frame_address(0);
    fill(pages, 8 * PAGE, 4);
    cr_assert_eq(mprotect(pages + 4 * PAGE, PAGE, PROT_READ), 0);
    expect_refused(ri_heap_register(pages, 8 * PAGE), RING_ERR_UNSUPPORTED, "not readable and writable");
    cr_assert_eq(mprotect(pages + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
    if (!syscall(SYS_mlock, pages + 5 * PAGE, PAGE)) { /* sanitizers make mlock() do nothing */
        expect_refused(ri_heap_register(pages, 8 * PAGE), RING_ERR_UNSUPPORTED, "locked");
        syscall(SYS_munlock, pages + 5 * PAGE, PAGE);
    }
    munmap(pages + 7 * PAGE, PAGE);
    expect_refused(ri_heap_register(pages, 8 * PAGE), RING_ERR_INVALID, "nothing is mapped");
    expect_refused(ri_heap_register(NULL, 8), RING_ERR_INVALID, "at least one byte");
    expect_refused(ri_heap_register(pages, 0), RING_ERR_INVALID, "at least one byte");
    expect_refused(ri_heap_register(frame - 16 * PAGE, 16 * PAGE), RING_ERR_UNSUPPORTED, "stack");
    expect_filled(pages, 7 * PAGE, 4);
    cr_assert_eq(ri_heap_register(pages, 4 * PAGE), RING_OK, "%s", ri_error_get());
    expect_refused(ri_heap_register(pages + 2 * PAGE, 4 * PAGE), RING_ERR_INVALID, "overlaps");
    expect_refused(ri_heap_deregister(pages + PAGE), RING_ERR_INVALID, "no buffer");
    cr_assert_eq(ri_heap_deregister(pages), RING_OK);
    expect_filled(pages, 7 * PAGE, 4);
    close(file);
}

Test(heap, memory_that_was_freed_while_registered_is_left_alone)
{
    struct ri_heap_place place;
    unsigned char *pages = map_pages(6);
    fill(pages, 6 * PAGE, 5);
    cr_assert_eq(ri_heap_register(pages, 6 * PAGE), RING_OK, "%s", ri_error_get());
    munmap(pages + PAGE, PAGE); /* a hole, */
    void *again = mmap(pages + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    cr_assert_eq(again, pages + 3 * PAGE); /* and something else of the program's */
    memset(again, 0x11, PAGE);
    expect_refused(ri_heap_deregister(pages), RING_ERR_STATE, "freed or mapped anew");
    cr_assert_not(found(pages, 1, &place));
    cr_assert_eq(pages[3 * PAGE + 7], 0x11);
    cr_assert_eq(
        mmap(pages + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
        pages + PAGE, "the hole is still one");
    memset(again, 0, PAGE);
    fill(pages + PAGE, 0, 5);
    for (size_t i = 0; i < PAGE; i++)
        cr_assert_eq(pages[i], (unsigned char)(i * 7 + i / 251 + 5), "what was left keeps its content");
    munmap(pages, 6 * PAGE);
}

/* The limits that ring.h states: pages are shared with the parent, calls are refused. */
Test(heap, a_forked_child_shares_the_pages_and_is_refused)
{
    unsigned char *pages = map_pages(4);
    void *more;
    int status;
    fill(pages, 4 * PAGE, 6);
    cr_assert_eq(ri_heap_register(pages, 4 * PAGE), RING_OK, "%s", ri_error_get());
    const pid_t child = fork();
    if (!child) {
        const bool refused = ri_heap_alloc(1, &more) == RING_ERR_STATE && ri_heap_deregister(pages) == RING_ERR_STATE &&
                             ri_heap_register(pages, 8) == RING_ERR_STATE && strstr(ri_error_get(), "forked");
        pages[5] = 0x77;
        _exit(refused ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert_eq(pages[5], 0x77);
    cr_assert_eq(ri_heap_deregister(pages), RING_OK, "%s", ri_error_get());
    munmap(pages, 4 * PAGE);
}

Test(heap, many_buffers_are_all_found)
{
    enum { MANY = 300 };
    static void *at[MANY];
    struct ri_heap_place place;
    uint32_t hint = 0;
    for (size_t i = 0; i < MANY; i++) {
        cr_assert_eq(ri_heap_alloc((1 + i % 5) * PAGE, &at[i]), RING_OK);
        memset(at[i], (int)i, 16);
    }
    for (size_t i = 0; i < MANY; i += 2)
        cr_assert_eq(ri_heap_free(at[i]), RING_OK);
    struct ri_heap_view view = peer_view();
    for (size_t i = 0; i < MANY; i++) {
        cr_assert_eq(ri_heap_find(at[i], PAGE, &hint, &place), i % 2 == 1, "buffer %zu", i);
        if (i % 2)
            cr_assert_eq(view.base[place.at], (unsigned char)i);
    }
    for (size_t i = 1; i < MANY; i += 2)
        cr_assert_eq(ri_heap_free(at[i]), RING_OK);
    ri_heap_unmap_peer(&view);
}
