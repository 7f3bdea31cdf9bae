/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ringrun_protocol.c - the bytes between ringrun and its agents: frames, the job, and what the exchange decodes.
 * First byte: whether a login's noise may come before. */
#include <string.h>

#include "fuzz.h"
#include "channel.h"
#include "exchange.h"
#include "protocol.h"

static char host[] = "h";
static struct place places[] = {{host, 0, 2}, {host, 2, 1}, {host, 3, 4}};
static const struct job fixed = {.size = 7, .places = places, .place_count = 3};

static void answer(void *owner, const struct answer *a)
{
    size_t *sum = owner;
    HOLDS(a->place < fixed.place_count);
    for (size_t i = 0; i < a->len; i++)
        *sum += a->data[i]; /* all of it can be read */
}

/* What was decoded comes out the same when it is sent on. */
static void take_job(struct cursor body)
{
    struct job job;
    struct bytes again = {0};
    const uint8_t *at = body.at;
    size_t len = (size_t)(body.end - body.at);
    if (!job_get(&body, &job))
        return;
    HOLDS(job_place(&job, job.size - 1) == job.place_count - 1);
    job_put(&again, &job, job.here);
    HOLDS(again.len == len && memcmp(again.data, at, 4) == 0);
    bytes_free(&again);
    job_free(&job);
}

static void take(struct exchange_state *x, uint32_t type, struct cursor body)
{
    uint32_t place = type >> 8;
    place %= fixed.place_count;
    switch (type & 0xff) {
    case MSG_JOB:
        take_job(body);
        break;
    case MSG_FENCE:
        exchange_fence(x, place, &body);
        break;
    case MSG_FETCH:
        exchange_fetch(x, place, &body);
        break;
    case MSG_FOUND:
        exchange_found(x, &body);
        break;
    case MSG_EXIT:
        exchange_gone(x, get_u32(&body) % fixed.size);
        break;
    default:
        get_u32(&body);
        free(get_text(&body));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct channel c = {.in = -1, .out = -1, .awaits_magic = data[0] & 1};
    struct exchange_state x;
    size_t sum = 0;
    exchange_init(&x, &fixed, answer, &sum);
    put_raw(&c.rx, data + 1, size - 1);
    uint32_t type;
    struct cursor body;
    while (!c.ended && channel_next(&c, &type, &body))
        take(&x, type, body);
    exchange_tick(&x, UINT64_MAX - 1);
    exchange_free(&x);
    channel_close(&c);
    return 0;
}
