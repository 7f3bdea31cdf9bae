/* SPDX-License-Identifier: Apache-2.0 */
/* conf.h - the one table of settings.
 *
 * RI_CONF_MAP has one row per setting: field, variable, type, default, lowest, highest or choices, agree, help.  The
 * struct, the parser, ring_info's listing and the check that ranks agree all come from it.  Values are parsed once per
 * communicator, strictly: the whole text, the range, the unit.  Nothing else in the project reads a RING_ variable.
 *
 * Types:  COUNT  a whole number                        uint64_t
 *         BYTES  a whole number, K M G = powers of 2    uint64_t
 *         TIME   number with ms, s (default) or min     uint64_t, nanoseconds
 *         CHOICE one of the words after '|'             uint64_t, the word's index
 *         TEXT   any text up to 511 bytes               char[512]
 * agree: 1 when all ranks must have the same value (compared when they meet). */
#ifndef RI_CONF_H
#define RI_CONF_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <ring/ring.h>

#include "lib/base/log.h"

/*    field            variable               type    default   lowest   highest / choices   agree  help */
#define RI_CONF_MAP(X)                                                                                                 \
    X(log, "RING_LOG", CHOICE, "warn", "", "error|warn|info|debug", 0, "how much to say on standard error")            \
    X(boot, "RING_BOOT", CHOICE, "auto", "", "auto|pmix|single", 0,                                                    \
      "how ring_comm_create finds the job: single makes a job of one whatever the environment says")                   \
    X(timeout, "RING_TIMEOUT", TIME, "60s", "1ms", "24h", 1, "deadline for ranks to meet when a communicator is made") \
    X(op_timeout, "RING_OP_TIMEOUT", TIME, "30min", "1ms", "168h", 1,                                                  \
      "deadline of one operation: how long a rank waits for the others in it")                                         \
    X(stall_time, "RING_STALL_TIME", TIME, "3s", "100ms", "24h", 0,                                                    \
      "after this long in one wait, say which ranks do not respond or have not come")                                  \
    X(algo, "RING_ALGO", TEXT, "auto", "", "", 1,                                                                      \
      "algorithms to use: auto, a name that ring_info lists, or rules: all_reduce:0-64K@doubling,64K-inf@ring;...")    \
    X(deterministic, "RING_DETERMINISTIC", COUNT, "0", "0", "1", 1,                                                    \
      "1: the same bits in every run, whatever the hosts, transports and sizes of pieces")                             \
    X(transport, "RING_TRANSPORT", TEXT, "auto", "", "", 1, "transport to use: auto, or names that ring_info lists, as in shm,tcp")  \
    X(segment, "RING_SEGMENT", BYTES, "256K", "1K", "1G", 1,                                                           \
      "largest piece of a buffer that travels as one message in a schedule")                                           \
    X(node, "RING_NODE", CHOICE, "auto", "", "auto|off", 1,                                                            \
      "direct shared memory among the ranks of a host; off: they use links only")                                      \
    X(cma, "RING_CMA", CHOICE, "auto", "", "auto|on|off", 1,                                                           \
      "read a peer's buffer in one copy (process_vm_readv): auto probes whether it works and pays")                    \
    X(host_id, "RING_HOST_ID", TEXT, "auto", "", "", 0,                                                                \
      "identity of this host: ranks with different ones do not share memory; auto: boot id, namespaces and user")      \
    X(ifname, "RING_SOCKET_IFNAME", TEXT, "auto", "", "", 0,                                                           \
      "network interfaces: prefixes with commas, =exact names, ^ to exclude; auto: the route to the peers")            \
    X(port_range, "RING_PORT_RANGE", TEXT, "auto", "", "", 0, "ports to listen on, LOW-HIGH; auto: any free one")      \
    X(family, "RING_SOCKET_FAMILY", CHOICE, "auto", "", "auto|ipv4|ipv6", 0, "address family to prefer")               \
    X(tcp_sockets, "RING_TCP_SOCKETS", COUNT, "1", "1", "16", 1, "sockets per neighbour and rail")                     \
    X(tcp_rails, "RING_TCP_RAILS", COUNT, "1", "1", "4", 1,                                                            \
      "network interfaces used side by side: the best so many that RING_SOCKET_IFNAME allows")                         \
    X(tcp_congestion, "RING_TCP_CONGESTION", TEXT, "auto", "", "", 0,                                                  \
      "congestion control, e.g. cubic or dctcp; auto: the system's")                                                   \
    X(tcp_zerocopy, "RING_TCP_ZEROCOPY", CHOICE, "auto", "", "auto|off", 0,                                            \
      "send large messages without a copy (MSG_ZEROCOPY): auto: where the kernel does not copy them after all")        \
    X(ib_library, "RING_IB_LIBRARY", TEXT, "libibverbs.so.1", "", "", 0, "the verbs library, by name or path")         \
    X(ib_hca, "RING_IB_HCA", TEXT, "auto", "", "", 0,                                                                  \
      "RDMA devices: prefixes with commas, each with :port or not, = exact names, ^ to exclude; auto: all")            \
    X(ib_gid_index, "RING_IB_GID_INDEX", TEXT, "auto", "", "", 0,                                                      \
      "index of the GID to use, 0 to 255; auto: by the peer's address")                                                \
    X(ib_tc, "RING_IB_TC", COUNT, "0", "0", "255", 0, "traffic class of RDMA packets: DSCP times 4 on RoCE")           \
    X(ib_sl, "RING_IB_SL", COUNT, "0", "0", "15", 0, "service level of RDMA packets")                                  \
    X(ib_timeout, "RING_IB_TIMEOUT", COUNT, "14", "1", "31", 0,                                                        \
      "how long a queue pair waits for an answer before it sends again: 4.096 us times 2 to the power of this")        \
    X(ib_retry_cnt, "RING_IB_RETRY_CNT", COUNT, "6", "0", "7", 0, "how often it sends again before the link fails")    \
    X(ib_qps, "RING_IB_QPS_PER_CONNECTION", COUNT, "1", "1", "16", 1, "queue pairs per neighbour and device")          \
    X(ib_split, "RING_IB_SPLIT", COUNT, "0", "0", "1", 1,                                                              \
      "1: every segment is split among the queue pairs; 0: each carries whole segments in turns")                      \
    X(shm_buffer, "RING_SHM_BUFFER", BYTES, "512K", "4K", "64M", 1, "bytes of a shared memory link, each direction")   \
    X(loop_seed, "RING_LOOP_SEED", COUNT, "1", "0", "18446744073709551615", 0,                                         \
      "seed of the loop transport's delays and short transfers (tests)")

enum { RI_CONF_TEXT_MAX = 512 };
enum ri_conf_type { RI_CONF_COUNT, RI_CONF_BYTES, RI_CONF_TIME, RI_CONF_CHOICE, RI_CONF_TEXT };

/* The struct: one member per row. */
#define RI_CONF_MEMBER_COUNT(field) uint64_t field;
#define RI_CONF_MEMBER_BYTES(field) uint64_t field;
#define RI_CONF_MEMBER_TIME(field) uint64_t field;
#define RI_CONF_MEMBER_CHOICE(field) uint64_t field;
#define RI_CONF_MEMBER_TEXT(field) char field[RI_CONF_TEXT_MAX];
struct ri_conf {
#define X(field, var, type, def, low, high, agree, help) RI_CONF_MEMBER_##type(field)
    RI_CONF_MAP(X)
#undef X
};

enum { RI_BOOT_AUTO, RI_BOOT_PMIX, RI_BOOT_SINGLE };
enum { RI_NODE_AUTO, RI_NODE_OFF };
enum { RI_CMA_AUTO, RI_CMA_ON, RI_CMA_OFF };
enum { RI_ZEROCOPY_AUTO, RI_ZEROCOPY_OFF };
enum { RI_FAMILY_AUTO, RI_FAMILY_IPV4, RI_FAMILY_IPV6 };

struct ri_conf_row {
    const char *variable, *fallback, *lowest, *highest, *help; /* highest: the choices for CHOICE */
    enum ri_conf_type type;
    int agree;
    size_t offset; /* of the member in struct ri_conf */
};
extern const struct ri_conf_row ri_conf_rows[];
extern const size_t ri_conf_row_count;

/* Fill conf from the environment (ignored in set-uid programs).  RING_ERR_CONFIG names variable, value and range.
 * Unknown RING_ variables are a warning with the nearest name, once per process. */
ring_status_t ri_conf_load(struct ri_conf *conf);

/* Set one row from a text, as from the environment; the boundary for fuzzing and for tests. */
ring_status_t ri_conf_set(struct ri_conf *conf, const struct ri_conf_row *row, const char *text);

void ri_conf_defaults(struct ri_conf *conf);

/* A row's value as people write it ("256K", "1min", "auto"). */
void ri_conf_print(const struct ri_conf *conf, const struct ri_conf_row *row, char *text, size_t cap);

/* A number of bytes as settings write it, "0", "4096", "64K": 1 when text is one. */
int ri_conf_bytes(const char *text, uint64_t *bytes_out);

/* TEXT settings whose default means "choose": 1 when the value is "auto". */
int ri_conf_is_auto(const char *text);

#endif
