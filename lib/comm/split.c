/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - new communicators from old ones.
 *
 * The ranks of the old one gather colors and keys; those of one color then meet as any ranks do (meet.c), with the old
 * communicator in place of a launcher: each round of the meeting is one all-gather over it.  All its ranks take part in
 * the same number of rounds, also those that join nothing or failed, so that nobody waits for a round that does not
 * come.  The secret of the new one is derived from the old one's and never travels. */
#include "lib/comm/comm.h"

#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/boot/auth.h"

enum { ROUNDS = 3 }; /* of meet.c: card, end, memory */

struct member {
    int32_t color, key;
};

/* What a rank says in a round. */
struct word {
    uint32_t len;
    char key[RI_BOOT_KEY_MAX];
    uint8_t blob[RI_BOOT_BLOB_MAX];
};

struct family {
    struct ri_boot base;
    struct ring_comm *parent;
    uint32_t *ranks;    /* by rank of the new communicator: the parent's */
    struct word *words; /* by rank of the parent: the last round's       */
    struct word mine;
    uint32_t rounds;
};

static void free_family(struct family *f)
{
    ri_free(f->ranks);
    ri_free(f->words);
    ri_free(f);
}

static ring_status_t gather(struct ring_comm *parent, const void *src, void *dst, size_t bytes)
{
    const struct ri_call call = {
        .coll = RING_ALL_GATHER, .dtype = RING_UINT8, .root = RI_ROOT_SPLIT, .src = src, .dst = dst, .count = bytes};
    return ri_op_run(parent, &call);
}

static ring_status_t put(struct ri_boot *b, const char *key, const void *blob, size_t len)
{
    struct family *f = (struct family *)b;
    const size_t n = strlen(key);
    if (n >= sizeof f->mine.key || len > sizeof f->mine.blob)
        return ri_fail(RING_ERR_INTERNAL, "bootstrap entry \"%s\" of %zu bytes is too large", key, len);
    memset(&f->mine, 0, sizeof f->mine);
    memcpy(f->mine.key, key, n);
    memcpy(f->mine.blob, blob, len);
    f->mine.len = (uint32_t)len;
    return RING_OK;
}

static ring_status_t fence(struct ri_boot *b, uint64_t deadline)
{
    struct family *f = (struct family *)b;
    (void)deadline; /* the parent's operations have one */
    if (f->rounds++ == ROUNDS)
        return ri_fail(RING_ERR_INTERNAL, "a meeting of more than %d rounds", ROUNDS);
    return gather(f->parent, &f->mine, f->words, sizeof f->mine);
}

static ring_status_t get(struct ri_boot *b, uint32_t rank, const char *key, void *blob, size_t *len_out)
{
    const struct family *f = (const struct family *)b;
    const struct word *w = &f->words[f->ranks[rank]];
    if (strncmp(w->key, key, sizeof w->key) || w->len > sizeof w->blob)
        return ri_fail(RING_ERR_PEER_LOST, "%s gave up before it told its \"%s\"",
                       ri_comm_name(f->parent, f->ranks[rank]), key);
    memcpy(blob, w->blob, w->len);
    *len_out = w->len;
    return RING_OK;
}

static void shut(struct ri_boot *b)
{
    struct family *f = (struct family *)b;
    memset(&f->mine, 0, sizeof f->mine);
    while (f->words && f->rounds < ROUNDS && !fence(b, 0))
        ;
    free_family(f);
}

/* ---- who is with whom ------------------------------------------------------------------------------------------ */

static bool before(const struct member *all, uint32_t a, uint32_t b)
{
    return all[a].key != all[b].key ? all[a].key < all[b].key : a < b;
}

/* Those of this rank's color, in their new order. */
static void find_family(struct family *f, const struct member *all)
{
    const struct ring_comm *p = f->parent;
    for (uint32_t r = 0; r < p->size; r++) {
        if (all[r].color != all[p->rank].color)
            continue;
        uint32_t at = f->base.size++;
        for (; at && before(all, r, f->ranks[at - 1]); at--)
            f->ranks[at] = f->ranks[at - 1];
        f->ranks[at] = r;
    }
    while (f->ranks[f->base.rank] != p->rank)
        f->base.rank++;
}

/* Before anybody is told anything, so that a rank without memory harms nobody. */
static ring_status_t make_family(struct ring_comm *parent, struct family **family_out)
{
    static const struct ri_boot_ops ops = {.name = "split", .put = put, .fence = fence, .get = get, .close = shut};
    struct family *f = ri_new(1, sizeof *f);
    if (f) {
        f->parent = parent;
        f->base.ops = &ops;
        f->ranks = ri_new(parent->size, sizeof *f->ranks);
        f->words = ri_new(parent->size, sizeof *f->words);
    }
    if (!f || !f->ranks || !f->words) {
        if (f)
            free_family(f);
        return ri_fail(RING_ERR_NOMEM, "no memory for a split of %u ranks", parent->size);
    }
    *family_out = f;
    return RING_OK;
}

static ring_status_t join(struct family *f, const struct member *all, struct ring_comm **comm_out)
{
    struct ring_comm *parent = f->parent, *c = NULL;
    const int32_t color = all[parent->rank].color;
    ring_status_t status = RING_OK;
    find_family(f, all);
    ri_derive(parent->secret, parent->comm_id, parent->children++, (uint32_t)color, f->base.secret, &f->base.comm_id);
    if (color != RING_NO_COLOR)
        status = ri_comm_create(&f->base, &parent->conf, parent, ri_deadline(parent->conf.timeout), &c);
    f->base.ops->close(&f->base);
    if (!status)
        *comm_out = c;
    /* Who leaves or dies meanwhile fails the old one too, which knows why and by which number. */
    const ring_status_t why = status == RING_ERR_PEER_LOST ? ri_comm_hear(parent) : RING_OK;
    return why ? why : status;
}

ring_status_t ri_comm_split(struct ring_comm *parent, int32_t color, int32_t key, struct ring_comm **comm_out)
{
    const struct member mine = {color, key};
    struct member *all = ri_new(parent->size, sizeof *all);
    struct family *f = NULL;
    ring_status_t status =
        all ? make_family(parent, &f) : ri_fail(RING_ERR_NOMEM, "no memory for a split of %u ranks", parent->size);
    if (!status && (status = gather(parent, &mine, all, sizeof mine)))
        free_family(f);
    else if (!status)
        status = join(f, all, comm_out);
    ri_free(all);
    return status;
}
