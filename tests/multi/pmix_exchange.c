/* SPDX-License-Identifier: Apache-2.0 */
/* pmix_exchange.c - a job's rank that knows PMIx only, to try a launcher's server with.
 *
 *   pmix_exchange [rounds]     put, commit, fence, get from everybody, `rounds` times; prints "rank R of N local L of M
 * ok" pmix_exchange fetch        get without a fence: the server has to ask the other hosts (direct modex)
 *   pmix_exchange absent RANK  that rank leaves at once; the others fence with a limit of 10 s and print the status
 *   pmix_exchange die RANK     that rank ends by KILL after PMIx_Init; the others fence
 *   pmix_exchange abort RANK CODE   that rank calls PMIx_Abort, the others sleep
 *   pmix_exchange half         even ranks fence among themselves, then all
 *   pmix_exchange nothing      get of a key that nobody puts, of the last rank, limit 2 s: prints the status */
#include <pmix.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VALUE = 3000 };

static pmix_proc_t self;
static uint32_t size;

static void check(const char *what, pmix_status_t status)
{
    if (status == PMIX_SUCCESS)
        return;
    printf("rank %u: %s: %s\n", self.rank, what, PMIx_Error_string(status));
    exit(9);
}

static uint32_t fact(const char *key, pmix_rank_t rank)
{
    pmix_proc_t proc;
    pmix_value_t *value = NULL;
    PMIX_LOAD_PROCID(&proc, self.nspace, rank);
    pmix_status_t status = PMIx_Get(&proc, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS) {
        printf("rank %u: no %s: %s\n", self.rank, key, PMIx_Error_string(status));
        exit(9);
    }
    uint32_t number = 0;
    PMIX_VALUE_GET_NUMBER(status, value, number, uint32_t);
    check(key, status);
    PMIX_VALUE_RELEASE(value);
    return number;
}

/* What rank `rank` puts in round `round`: bytes that anybody can compute. */
static void content(uint32_t rank, uint32_t round, char bytes[VALUE])
{
    for (uint32_t i = 0; i < VALUE; i++)
        bytes[i] = (char)(rank * 31 + round * 7 + i);
}

static void put(uint32_t round)
{
    char key[32], bytes[VALUE];
    snprintf(key, sizeof key, "test.%u", round);
    content(self.rank, round, bytes);
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT, .data.bo = {.bytes = bytes, .size = VALUE}};
    check("put", PMIx_Put(PMIX_GLOBAL, key, &value));
    check("commit", PMIx_Commit());
}

static void get(uint32_t rank, uint32_t round)
{
    char key[32], bytes[VALUE];
    pmix_proc_t proc;
    pmix_value_t *value = NULL;
    snprintf(key, sizeof key, "test.%u", round);
    PMIX_LOAD_PROCID(&proc, self.nspace, rank);
    check("get", PMIx_Get(&proc, key, NULL, 0, &value));
    content(rank, round, bytes);
    if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size != VALUE ||
        memcmp(value->data.bo.bytes, bytes, VALUE) != 0) {
        printf("rank %u: wrong data of rank %u\n", self.rank, rank);
        exit(9);
    }
    PMIX_VALUE_RELEASE(value);
}

static pmix_status_t fence(const pmix_proc_t *procs, size_t count, int seconds)
{
    pmix_info_t *info;
    bool collect = true;
    PMIX_INFO_CREATE(info, 2);
    PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    pmix_status_t status = PMIx_Fence(procs, count, info, 2);
    PMIX_INFO_FREE(info, 2);
    return status;
}

static void exchange(uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds; round++) {
        put(round);
        check("fence", fence(NULL, 0, 60));
        for (uint32_t rank = 0; rank < size; rank++)
            get(rank, round);
    }
}

static void half(void)
{
    pmix_proc_t *procs = calloc(size, sizeof *procs);
    size_t count = 0;
    for (uint32_t rank = 0; rank < size; rank += 2, count++)
        PMIX_LOAD_PROCID(&procs[count], self.nspace, rank);
    put(0);
    if (self.rank % 2 == 0) {
        check("half fence", fence(procs, count, 60));
        for (uint32_t rank = 0; rank < size; rank += 2)
            get(rank, 0);
    }
    free(procs);
    check("whole fence", fence(NULL, 0, 60));
    for (uint32_t rank = 0; rank < size; rank++)
        get(rank, 0);
}

static void nothing(void)
{
    pmix_info_t *info;
    pmix_value_t *value = NULL;
    pmix_proc_t proc;
    int seconds = 2;
    PMIX_INFO_CREATE(info, 1);
    PMIX_INFO_LOAD(&info[0], PMIX_TIMEOUT, &seconds, PMIX_INT);
    PMIX_LOAD_PROCID(&proc, self.nspace, size - 1);
    put(0);
    printf("rank %u: %s\n", self.rank, PMIx_Error_string(PMIx_Get(&proc, "test.none", info, 1, &value)));
    PMIX_INFO_FREE(info, 1);
}

static void leave_out(const char *how, uint32_t who, int code)
{
    if (strcmp(how, "absent") == 0) {
        if (self.rank == who)
            exit(0); /* without PMIx_Finalize */
        put(0);
        printf("rank %u: fence: %s\n", self.rank, PMIx_Error_string(fence(NULL, 0, 10)));
    } else if (strcmp(how, "die") == 0) {
        if (self.rank == who)
            raise(SIGKILL);
        printf("rank %u: fence: %s\n", self.rank, PMIx_Error_string(fence(NULL, 0, 10)));
        exit(1);
    } else {
        if (self.rank == who)
            PMIx_Abort(code, "on purpose", NULL, 0);
        sleep(60);
    }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *mode = argc > 1 ? argv[1] : "1";
    check("init", PMIx_Init(&self, NULL, 0));
    size = fact(PMIX_JOB_SIZE, PMIX_RANK_WILDCARD);
    if (mode[0] >= '0' && mode[0] <= '9') {
        exchange((uint32_t)atoi(mode));
        printf("rank %u of %u local %u of %u ok\n", self.rank, size, fact(PMIX_LOCAL_RANK, self.rank),
               fact(PMIX_LOCAL_SIZE, PMIX_RANK_WILDCARD));
    } else if (strcmp(mode, "fetch") == 0) {
        put(0);
        for (uint32_t rank = 0; rank < size; rank++)
            get(rank, 0);
        check("fence", fence(NULL, 0, 60)); /* nobody leaves before all have got */
        printf("rank %u ok\n", self.rank);
    } else if (strcmp(mode, "fences") == 0) {
        put(0);
        for (int i = 0; i < (argc > 2 ? atoi(argv[2]) : 1); i++)
            check("fence", fence(NULL, 0, 60));
        printf("rank %u ok\n", self.rank);
    } else if (strcmp(mode, "half") == 0) {
        half();
        printf("rank %u ok\n", self.rank);
    } else if (strcmp(mode, "nothing") == 0) {
        nothing();
    } else {
        leave_out(mode, argc > 2 ? (uint32_t)atoi(argv[2]) : 0, argc > 3 ? atoi(argv[3]) : 1);
    }
    check("finalize", PMIx_Finalize(NULL, 0));
    return 0;
}
