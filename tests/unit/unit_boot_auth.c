/* SPDX-License-Identifier: Apache-2.0 */
/* lib/boot: keys, the handshake's messages, host identity, launcher hints, the job of one. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/boot/auth.h"
#include "lib/boot/boot.h"
#include "lib/boot/host.h"

static const uint8_t secret[RI_KEY] = {7, 1};

struct talk {
    uint8_t key[RI_KEY], hello[RI_HELLO_BYTES], challenge[RI_CHALLENGE_BYTES], proof[RI_PROOF_BYTES];
};

static void say_all(struct talk *t)
{
    struct ri_hello h = {.comm_id = 0x1122334455667788, .from = 3, .to = 5, .purpose = RI_FOR_LINK, .lane = 65};
    uint8_t nonce[RI_NONCE];
    ri_random(t->key, sizeof t->key);
    ri_random(h.nonce, sizeof h.nonce);
    ri_random(nonce, sizeof nonce);
    ri_hello_encode(&h, t->key, t->hello);
    ri_challenge_encode(t->hello, nonce, t->key, t->challenge);
    ri_proof_encode(t->hello, t->challenge, t->key, t->proof);
}

static bool all_true(const struct talk *t)
{
    struct ri_hello h;
    return ri_hello_decode(t->hello, &h) && ri_hello_verify(t->hello, t->key) &&
           ri_challenge_verify(t->hello, t->challenge, t->key) &&
           ri_proof_verify(t->hello, t->challenge, t->key, t->proof);
}

Test(auth, both_ranks_find_the_same_key_and_nobody_else_does)
{
    struct ri_identity a, b, c;
    uint8_t ab[RI_KEY], ba[RI_KEY], other[RI_KEY], wrong[RI_KEY] = {9};
    cr_assert_eq(ri_identity_make(&a), RING_OK);
    cr_assert_eq(ri_identity_make(&b), RING_OK);
    cr_assert_eq(ri_identity_make(&c), RING_OK);
    cr_assert_eq(ri_pair_key(&a, 0, b.public_half, 1, 42, secret, ab), RING_OK);
    cr_assert_eq(ri_pair_key(&b, 1, a.public_half, 0, 42, secret, ba), RING_OK);
    cr_assert_arr_eq(ab, ba, RI_KEY);
    cr_assert_eq(ri_pair_key(&c, 1, a.public_half, 0, 42, secret, other), RING_OK);
    cr_assert_neq(memcmp(ab, other, RI_KEY), 0);
    cr_assert_eq(ri_pair_key(&a, 0, b.public_half, 1, 43, secret, other), RING_OK);
    cr_assert_neq(memcmp(ab, other, RI_KEY), 0, "another communicator has another key");
    cr_assert_eq(ri_pair_key(&a, 0, b.public_half, 2, 42, secret, other), RING_OK);
    cr_assert_neq(memcmp(ab, other, RI_KEY), 0, "the ranks are part of it");
    cr_assert_eq(ri_pair_key(&a, 0, b.public_half, 1, 42, wrong, other), RING_OK);
    cr_assert_neq(memcmp(ab, other, RI_KEY), 0, "so is the ticket's secret");
}

Test(auth, a_key_that_fixes_the_result_is_refused)
{
    struct ri_identity a;
    uint8_t key[RI_KEY];
    const uint8_t zero[RI_KEY] = {0}, low[RI_KEY] = {1};
    cr_assert_eq(ri_identity_make(&a), RING_OK);
    cr_assert_eq(ri_pair_key(&a, 0, zero, 1, 42, secret, key), RING_ERR_INVALID);
    cr_assert_eq(ri_pair_key(&a, 0, low, 1, 42, secret, key), RING_ERR_INVALID);
    cr_assert_not_null(strstr(ri_error_get(), "rank 1"));
}

Test(auth, a_hello_carries_its_fields)
{
    struct talk t;
    struct ri_hello h;
    say_all(&t);
    cr_assert(ri_hello_decode(t.hello, &h));
    cr_assert_eq(h.comm_id, 0x1122334455667788);
    cr_assert_eq(h.from, 3);
    cr_assert_eq(h.to, 5);
    cr_assert_eq(h.purpose, RI_FOR_LINK);
    cr_assert_eq(h.lane, 65);
}

/* Each message is covered as a whole, and so is all that was said before it. */
Test(auth, every_flipped_bit_of_every_message_is_seen)
{
    struct talk t, u;
    say_all(&t);
    cr_assert(all_true(&t));
    for (size_t bit = RI_KEY * 8; bit < sizeof t * 8; bit++) {
        u = t;
        ((uint8_t *)&u)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert(!all_true(&u), "bit %zu", bit);
        const size_t at = bit / 8;
        if (at < offsetof(struct talk, challenge))
            cr_assert(!ri_challenge_verify(u.hello, u.challenge, u.key) &&
                      !ri_proof_verify(u.hello, u.challenge, u.key, u.proof));
        else
            cr_assert(!ri_proof_verify(u.hello, u.challenge, u.key, u.proof));
    }
    for (size_t bit = 0; bit < RI_KEY * 8; bit++) {
        u = t;
        u.key[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert(!ri_hello_verify(u.hello, u.key) && !ri_challenge_verify(u.hello, u.challenge, u.key) &&
                  !ri_proof_verify(u.hello, u.challenge, u.key, u.proof));
    }
}

Test(auth, a_recorded_talk_is_of_no_use_against_fresh_nonces)
{
    struct talk t;
    uint8_t fresh[RI_NONCE], challenge[RI_CHALLENGE_BYTES], hello[RI_HELLO_BYTES];
    struct ri_hello h;
    say_all(&t);
    ri_random(fresh, sizeof fresh);
    ri_challenge_encode(t.hello, fresh, t.key, challenge); /* the hello again: the acceptor has a new nonce */
    cr_assert(!ri_proof_verify(t.hello, challenge, t.key, t.proof));
    cr_assert(ri_hello_decode(t.hello, &h)); /* the challenge again: the initiator has a new nonce */
    ri_random(h.nonce, sizeof h.nonce);
    ri_hello_encode(&h, t.key, hello);
    cr_assert(!ri_challenge_verify(hello, t.challenge, t.key));
}

Test(auth, one_message_is_never_another)
{
    struct talk t;
    say_all(&t);
    cr_assert(!ri_proof_verify(t.hello, t.challenge, t.key, t.challenge + RI_NONCE));
    cr_assert(!ri_proof_verify(t.hello, t.challenge, t.key, t.hello + RI_HELLO_BYTES - RI_MAC));
}

Test(host, the_identity_is_not_the_name)
{
    struct ri_conf conf;
    struct ri_host a, b;
    ri_conf_defaults(&conf);
    ri_host_get(&conf, &a);
    ri_host_get(&conf, &b);
    cr_assert_arr_eq(a.id, b.id, sizeof a.id);
    cr_assert_neq(a.name[0], 0);
    strcpy(conf.host_id, "left");
    ri_host_get(&conf, &b);
    cr_assert_neq(memcmp(a.id, b.id, sizeof a.id), 0);
    ri_host_get(&conf, &a);
    cr_assert_arr_eq(a.id, b.id, sizeof a.id);
    strcpy(conf.host_id, "right");
    ri_host_get(&conf, &b);
    cr_assert_neq(memcmp(a.id, b.id, sizeof a.id), 0);
}

static const char *const launchers[] = {
    "PMIX_RANK",  "PMIX_NAMESPACE",  "OMPI_COMM_WORLD_RANK", "PMI_RANK",     "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
    "PMI_FD",     "PMI_PORT",        "SLURM_PROCID",         "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID",
    "WORLD_SIZE", "PMIX_SERVER_URI2"};

static const struct hint_case {
    const char *env[4][2], *hint;
} hint_cases[] = {
    {{{NULL, NULL}}, NULL},
    {{{"PMIX_RANK", "0"}}, "PMIX_RANK=0"},
    {{{"PMIX_NAMESPACE", "job-1"}}, "PMIX_NAMESPACE=job-1"},
    {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE=4"},
    {{{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}, NULL},
    {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_FD", "7"}}, "PMI_SIZE=2"},
    {{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"PMI_FD", "7"}}, NULL},
    {{{"PMI_RANK", "3"}}, "PMI_RANK=3"},
    {{{"SLURM_JOB_ID", "12"}}, NULL},
    {{{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}}, "SLURM_PROCID=0"},
    {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, NULL},
    {{{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}}, "SLURM_STEP_NUM_TASKS=4"},
    {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}}, NULL},
    {{{"SLURM_NTASKS", "4"}}, "SLURM_NTASKS=4"},
    {{{"WORLD_SIZE", "8"}}, "WORLD_SIZE=8"},
    {{{"WORLD_SIZE", "1"}}, NULL},
    {{{"WORLD_SIZE", ""}}, NULL},
    {{{"WORLD_SIZE", "two"}}, "WORLD_SIZE=two"},
};

static void set_environment(const struct hint_case *c)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        unsetenv(launchers[i]);
    for (size_t i = 0; i < 4 && c->env[i][0]; i++)
        setenv(c->env[i][0], c->env[i][1], 1);
}

Test(hint, only_what_means_one_of_several_tasks_is_a_hint)
{
    for (size_t i = 0; i < sizeof hint_cases / sizeof *hint_cases; i++) {
        char text[128];
        set_environment(&hint_cases[i]);
        const char *hint = ri_boot_launcher_hint(text, sizeof text);
        if (hint_cases[i].hint)
            cr_assert_str_eq(hint ? hint : "none", hint_cases[i].hint, "case %zu", i);
        else
            cr_assert_null(hint, "case %zu: %s", i, hint);
    }
}

Test(boot, a_launcher_that_cannot_be_joined_is_never_a_job_of_one)
{
    struct ri_conf conf;
    struct ri_boot *boot = NULL;
    ri_conf_defaults(&conf);
    for (size_t i = 0; i < sizeof hint_cases / sizeof *hint_cases; i++) {
        set_environment(&hint_cases[i]);
        unsetenv("PMIX_NAMESPACE");
        if (!hint_cases[i].hint || !strncmp(hint_cases[i].hint, "PMIX_NAMESPACE", 14))
            continue;
        cr_assert_eq(ri_boot_open(&conf, 0, &boot), RING_ERR_LAUNCH, "case %zu", i);
        cr_assert_not_null(strstr(ri_error_get(), hint_cases[i].hint));
        cr_assert_not_null(strstr(ri_error_get(), "RING_BOOT=single"));
        cr_assert_null(boot);
    }
    conf.boot = RI_BOOT_SINGLE;
    cr_assert_eq(ri_boot_open(&conf, 0, &boot), RING_OK);
    boot->ops->close(boot);
}

Test(boot, a_job_of_one_keeps_what_is_put)
{
    struct ri_boot *boot, *other;
    uint8_t blob[RI_BOOT_BLOB_MAX];
    size_t len = 0;
    cr_assert_eq(ri_boot_single(&boot), RING_OK);
    cr_assert_eq(ri_boot_single(&other), RING_OK);
    cr_assert_eq(boot->rank, 0);
    cr_assert_eq(boot->size, 1);
    cr_assert_neq(boot->comm_id, other->comm_id);
    other->ops->close(other);
    cr_assert_eq(boot->ops->put(boot, "card", "\0\1\2", 3), RING_OK);
    cr_assert_eq(boot->ops->put(boot, "empty", NULL, 0), RING_OK);
    cr_assert_eq(boot->ops->fence(boot, 0), RING_OK);
    cr_assert_eq(boot->ops->get(boot, 0, "card", blob, &len), RING_OK);
    cr_assert_eq(len, 3);
    cr_assert_arr_eq(blob, "\0\1\2", 3);
    cr_assert_eq(boot->ops->get(boot, 0, "empty", blob, &len), RING_OK);
    cr_assert_eq(len, 0);
    cr_assert_eq(boot->ops->get(boot, 0, "other", blob, &len), RING_ERR_INTERNAL);
    cr_assert_eq(boot->ops->get(boot, 1, "card", blob, &len), RING_ERR_INTERNAL);
    boot->ops->close(boot);
}
