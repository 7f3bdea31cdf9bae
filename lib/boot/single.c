/* SPDX-License-Identifier: Apache-2.0 */
/* single.c - the bootstrap of a job of one: what is put is kept in a list until close. */
#include "lib/boot/boot.h"

#include <string.h>

#include "lib/base/error.h"
#include "lib/base/mem.h"
#include "lib/boot/auth.h"

struct entry {
    struct entry *next;
    char key[RI_BOOT_KEY_MAX];
    size_t len;
    uint8_t blob[];
};

struct single {
    struct ri_boot base;
    struct entry *entries; /* newest first: a second put of a key hides the first */
};

static ring_status_t put(struct ri_boot *b, const char *key, const void *blob, size_t len)
{
    struct single *s = (struct single *)b;
    if (strlen(key) >= RI_BOOT_KEY_MAX || len > RI_BOOT_BLOB_MAX)
        return ri_fail(RING_ERR_INTERNAL, "bootstrap entry \"%s\" of %zu bytes is too large", key, len);
    struct entry *e = ri_new(1, sizeof *e + len);
    if (!e)
        return ri_fail(RING_ERR_NOMEM, "no memory for a bootstrap entry");
    memcpy(e->key, key, strlen(key) + 1);
    e->len = len;
    if (len)
        memcpy(e->blob, blob, len);
    e->next = s->entries;
    s->entries = e;
    return RING_OK;
}

static ring_status_t fence(struct ri_boot *b, uint64_t deadline)
{
    (void)b;
    (void)deadline;
    return RING_OK;
}

static ring_status_t get(struct ri_boot *b, uint32_t rank, const char *key, void *blob, size_t *len_out)
{
    for (const struct entry *e = ((struct single *)b)->entries; e && !rank; e = e->next)
        if (!strcmp(e->key, key)) {
            memcpy(blob, e->blob, e->len);
            *len_out = e->len;
            return RING_OK;
        }
    return ri_fail(RING_ERR_INTERNAL, "rank %u has not put \"%s\"", rank, key);
}

static void shut(struct ri_boot *b)
{
    struct single *s = (struct single *)b;
    while (s->entries) {
        struct entry *e = s->entries;
        s->entries = e->next;
        ri_free(e);
    }
    ri_free(s);
}

ring_status_t ri_boot_single(struct ri_boot **boot_out)
{
    static const struct ri_boot_ops ops = {.name = "single", .put = put, .fence = fence, .get = get, .close = shut};
    struct single *s = ri_new(1, sizeof *s);
    if (!s)
        return ri_fail(RING_ERR_NOMEM, "no memory for the bootstrap");
    s->base = (struct ri_boot){.ops = &ops, .rank = 0, .size = 1};
    ri_random(&s->base.comm_id, sizeof s->base.comm_id);
    *boot_out = &s->base;
    return RING_OK;
}
