/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c - see calls.h. */
#include "tests/verbs/calls.h"

const struct provider_call provider_calls[PROVIDER_CALLS] = {
    {"ibv_get_device_list", false}, {"ibv_open_device", false},   {"ibv_query_device", false},
    {"ibv_query_port", false},      {"ibv_query_gid", false},     {"_ibv_query_gid_table", false},
    {"ibv_get_async_event", false}, {"ibv_alloc_pd", false},      {"ibv_reg_mr", false},
    {"ibv_reg_mr_iova2", false},    {"ibv_create_cq", false},     {"ibv_create_comp_channel", false},
    {"ibv_resize_cq", false},       {"ibv_get_cq_event", false},  {"ibv_create_qp", false},
    {"ibv_modify_qp", false},       {"ibv_post_send", false},     {"ibv_post_recv", false},
    {"ibv_poll_cq", false},         {"ibv_req_notify_cq", false}, {"ibv_close_device", true},
    {"ibv_dealloc_pd", true},       {"ibv_dereg_mr", true},       {"ibv_destroy_comp_channel", true},
    {"ibv_destroy_cq", true},       {"ibv_destroy_qp", true},
};
