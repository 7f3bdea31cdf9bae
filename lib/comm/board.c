/* SPDX-License-Identifier: Apache-2.0 */
/* board.c - what the ranks of one host share besides data.  Lives in the node's segment, or in private memory when a
 * rank is alone on its host. */
#include "lib/comm/comm.h"

#include <string.h>

#include "lib/base/clock.h"

size_t ri_board_bytes(uint32_t size)
{
    const size_t bytes = sizeof(struct ri_board) + size * sizeof(struct ri_notice);
    return (bytes + 4095) / 4096 * 4096;
}

/* Whoever wins the claim writes, then raises the word.  A writer may die in between: so the others wait for the word a
 * little, and then write over what is there. */
bool ri_board_fail(struct ri_board *b, const struct ri_failure *failure)
{
    uint32_t none = 0;
    const bool first = atomic_compare_exchange_strong(&b->claim, &none, 1);
    if (!first) {
        struct ri_wait w;
        ri_wait_begin(&w, &b->abort, ri_deadline(50 * RI_MILLISECOND), (struct ri_patience){.yields = 10});
        ring_status_t status;
        while (!(status = ri_wait_round(&w, NULL, NULL)))
            ;
        if (status == RING_ERR_ABORTED)
            return false;
    }
    memcpy(&b->failure, failure, sizeof *failure);
    b->failure.text[RI_FAILURE_TEXT - 1] = '\0';
    atomic_store_explicit(&b->abort, 1, memory_order_release);
    ri_word_wake(&b->all_left);
    return true;
}

void ri_board_note(struct ri_board *b, uint32_t rank, const struct ri_signature *signature)
{
    struct ri_notice *n = &b->notice[rank];
    uint64_t word[RI_SIGNATURE_WORDS];
    memcpy(word, signature, sizeof word);
    atomic_fetch_add(&n->version, 1);
    for (int i = 0; i < RI_SIGNATURE_WORDS; i++)
        atomic_store(&n->word[i], word[i]);
    atomic_store(&n->since, ri_now());
    atomic_fetch_add(&n->version, 1);
}

uint32_t ri_board_read(struct ri_board *b, uint32_t rank, struct ri_signature *signature_out, uint64_t *since_out)
{
    struct ri_notice *n = &b->notice[rank];
    uint64_t word[RI_SIGNATURE_WORDS];
    const uint32_t version = atomic_load(&n->version);
    if (!version || version % 2)
        return 0;
    for (int i = 0; i < RI_SIGNATURE_WORDS; i++)
        word[i] = atomic_load(&n->word[i]);
    const uint64_t since = atomic_load(&n->since);
    if (atomic_load(&n->version) != version)
        return 0;
    memcpy(signature_out, word, sizeof word);
    *since_out = since;
    return version;
}
