/* SPDX-License-Identifier: Apache-2.0 */
/* api.h - libibverbs as it is found at run time.
 *
 * A machine without RDMA does not have the library, and that is normal; so nothing links with it.  What its header does
 * inline through a context's own table (ibv_post_send, ibv_post_recv, ibv_poll_cq, ibv_req_notify_cq) is called as
 * usual; everything else through this table and nothing else.  RING_IB_LIBRARY names another library than
 * libibverbs.so.1, as the tests do with theirs (tests/verbs). */
#ifndef RI_VERBS_API_H
#define RI_VERBS_API_H

#include <stdbool.h>
#include <stddef.h>
#include <infiniband/verbs.h>

/* name in the library, type of the result, arguments.  The header makes macros of some names, so they are in quotes. */
#define VERBS_FUNCTIONS(F)                                                                                           \
    F("ibv_get_device_list", struct ibv_device **, get_device_list, (int *count))                                    \
    F("ibv_free_device_list", void, free_device_list, (struct ibv_device * *list))                                   \
    F("ibv_get_device_name", const char *, get_device_name, (struct ibv_device * device))                            \
    F("ibv_open_device", struct ibv_context *, open_device, (struct ibv_device * device))                            \
    F("ibv_close_device", int, close_device, (struct ibv_context * context))                                         \
    F("ibv_query_device", int, query_device, (struct ibv_context * context, struct ibv_device_attr * attr))          \
    F("ibv_query_port", int, query_port, (struct ibv_context * context, uint8_t port, struct ibv_port_attr * attr))  \
    F("ibv_query_gid", int, query_gid, (struct ibv_context * context, uint8_t port, int index, union ibv_gid *gid))  \
    F("ibv_get_async_event", int, get_async_event, (struct ibv_context * context, struct ibv_async_event * event))   \
    F("ibv_ack_async_event", void, ack_async_event, (struct ibv_async_event * event))                                \
    F("ibv_alloc_pd", struct ibv_pd *, alloc_pd, (struct ibv_context * context))                                     \
    F("ibv_dealloc_pd", int, dealloc_pd, (struct ibv_pd * pd))                                                       \
    F("ibv_reg_mr", struct ibv_mr *, reg_mr, (struct ibv_pd * pd, void *at, size_t bytes, int access))               \
    F("ibv_dereg_mr", int, dereg_mr, (struct ibv_mr * mr))                                                           \
    F("ibv_create_comp_channel", struct ibv_comp_channel *, create_comp_channel, (struct ibv_context * context))     \
    F("ibv_destroy_comp_channel", int, destroy_comp_channel, (struct ibv_comp_channel * channel))                    \
    F("ibv_create_cq", struct ibv_cq *, create_cq,                                                                   \
      (struct ibv_context * context, int entries, void *owner, struct ibv_comp_channel *channel, int vector))        \
    F("ibv_resize_cq", int, resize_cq, (struct ibv_cq * cq, int entries))                                            \
    F("ibv_destroy_cq", int, destroy_cq, (struct ibv_cq * cq))                                                       \
    F("ibv_get_cq_event", int, get_cq_event, (struct ibv_comp_channel * channel, struct ibv_cq * *cq, void **owner)) \
    F("ibv_ack_cq_events", void, ack_cq_events, (struct ibv_cq * cq, unsigned events))                               \
    F("ibv_create_qp", struct ibv_qp *, create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr * attr))             \
    F("ibv_modify_qp", int, modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask))                    \
    F("ibv_destroy_qp", int, destroy_qp, (struct ibv_qp * qp))                                                       \
    F("ibv_wc_status_str", const char *, wc_status_str, (enum ibv_wc_status status))                                 \
    F("ibv_event_type_str", const char *, event_type_str, (enum ibv_event_type event))

/* Those that an older library may lack; NULL then. */
#define VERBS_OPTIONAL(F)                                                                                             \
    F("_ibv_query_gid_table", ssize_t, query_gid_table,                                                               \
      (struct ibv_context * context, struct ibv_gid_entry * entries, size_t most, uint32_t flags, size_t entry_size)) \
    F("ibv_reg_mr_iova2", struct ibv_mr *, reg_mr_iova2,                                                              \
      (struct ibv_pd * pd, void *at, size_t bytes, uint64_t iova, unsigned access))                                   \
    F("ibv_reg_dmabuf_mr", struct ibv_mr *, reg_dmabuf_mr,                                                            \
      (struct ibv_pd * pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access))

struct verbs_api {
#define VERBS_MEMBER(symbol, result, name, arguments) result(*name) arguments;
    VERBS_FUNCTIONS(VERBS_MEMBER)
    VERBS_OPTIONAL(VERBS_MEMBER)
#undef VERBS_MEMBER
};

/* The library's functions, for as long as the process lives; the same for all who name the same library.  NULL: it is
 * not there, or one of its functions is not; why_out (cap bytes) says which.  Any thread. */
const struct verbs_api *verbs_api_load(const char *library, char *why_out, size_t cap);

#endif
