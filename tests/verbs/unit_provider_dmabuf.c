/* SPDX-License-Identifier: Apache-2.0 */
/* dma-bufs of the provider: what they are, who knows them, and when what is written to one is seen. */
#include "tests/verbs/rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void expect_only(const unsigned char *bytes, unsigned char value, size_t n)
{
    size_t i = 0;
    while (i < n && bytes[i] == value)
        i++;
    cr_assert_eq(i, n, "byte %zu is %u, not %u", i, bytes[i], value);
}

static uint64_t hidden(void)
{
    struct provider_counters n;
    provider_control.counters(&n);
    return n.hidden;
}

static void know_no_dmabuf(void)
{
    struct provider_world w;
    provider_control.get_world(&w);
    w.device[0].dmabuf = false;
    provider_control.set_world(&w);
}

Test(verbs, a_dmabuf_is_what_it_maps)
{
    enum { BYTES = 8192, OFFSET = 4096 + 64 };
    struct rig r;
    struct ibv_wc wc;
    const int fd = memfd_create("test", MFD_CLOEXEC);
    cr_assert(fd >= 0 && !ftruncate(fd, BYTES));
    unsigned char *view = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    provider_control.reset(1);
    rig_open(&r);
    rig_connect(&r);
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(r.b.pd, OFFSET, 1000, OFFSET, fd, RIG_ACCESS);
    cr_assert(mr);
    memset(r.a.bytes, 7, 1000);
    struct ibv_sge sge = rig_sge(&r.a, 0, 1000);
    struct ibv_send_wr wr = rig_wr(&r.b, 0, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
    wr.wr.rdma.remote_addr = OFFSET;
    wr.wr.rdma.rkey = mr->rkey;
    cr_assert_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
    rig_poll(&r.a, 1, &wc);
    cr_assert_eq(wc.status, IBV_WC_SUCCESS);
    expect_only(view + OFFSET, 0, 1000);
    wr.opcode = IBV_WR_RDMA_READ;
    sge = rig_sge(&r.a, 5000, 1);
    cr_assert_eq(ibv_post_send(r.a.qp, &wr, &bad), 0);
    rig_poll(&r.a, 1, &wc);
    cr_assert_arr_eq(view + OFFSET, r.a.bytes, 1000);
    cr_assert_eq(hidden(), 0);
    cr_assert_eq(ibv_dereg_mr(mr), 0);
    know_no_dmabuf();
    cr_assert(!ibv_reg_dmabuf_mr(r.a.pd, 0, 1000, 0, fd, RIG_ACCESS) && errno == EOPNOTSUPP);
    munmap(view, BYTES);
    close(fd);
    rig_close(&r);
}

/* A queue pair connected to itself: what it reads of a dma-buf pushes in front of it what has been written there. */
Test(verbs, what_is_written_to_a_dmabuf_is_seen_behind_a_read)
{
    enum { BYTES = 4096 };
    struct rig r;
    struct ibv_wc wc;
    const int fd = memfd_create("test", MFD_CLOEXEC);
    cr_assert(fd >= 0 && !ftruncate(fd, BYTES));
    const unsigned char *view = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    provider_control.reset(1);
    rig_open(&r);
    struct end loop = r.a;
    loop.attr.dest_qp_num = loop.qp->qp_num;
    loop.attr.rq_psn = loop.attr.sq_psn;
    loop.attr.ah_attr.grh.dgid = r.b.attr.ah_attr.grh.dgid;
    rig_init(&loop);
    rig_ready(&loop);
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(loop.pd, 0, BYTES, 0, fd, RIG_ACCESS);
    cr_assert(mr);
    struct ibv_sge sge = rig_sge(&loop, 0, BYTES), byte = rig_sge(&loop, RIG_BYTES - 1, 1);
    struct ibv_send_wr write = rig_wr(&loop, 0, &sge, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), *bad;
    struct ibv_send_wr read = rig_wr(&loop, 1, &byte, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED);
    write.wr.rdma.remote_addr = read.wr.rdma.remote_addr = 0;
    write.wr.rdma.rkey = read.wr.rdma.rkey = mr->rkey;
    for (unsigned char round = 1; round < 20; round++) {
        memset(loop.bytes, round, BYTES);
        cr_assert_eq(ibv_post_send(loop.qp, &write, &bad), 0);
        rig_poll(&loop, 1, &wc);
        expect_only(view, round - 1, BYTES);
        cr_assert_eq(ibv_post_send(loop.qp, &read, &bad), 0);
        expect_only(view, round - 1, BYTES);
        rig_poll(&loop, 1, &wc);
        cr_assert(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == 1);
        expect_only(view, round, BYTES);
    }
    cr_assert_eq(ibv_dereg_mr(mr), 0);
    munmap((void *)(uintptr_t)view, BYTES);
    close(fd);
    rig_close(&r);
}
