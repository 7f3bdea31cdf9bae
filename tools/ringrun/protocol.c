/* SPDX-License-Identifier: Apache-2.0 */
/* protocol.c - the job as bytes; see protocol.h. */
#include "protocol.h"

#include <stdlib.h>
#include <string.h>

#include "say.h"

static void put_texts(struct bytes *b, char *const *texts)
{
    uint32_t count = 0;
    while (texts[count])
        count++;
    put_u32(b, count);
    for (uint32_t i = 0; i < count; i++)
        put_text(b, texts[i]);
}

static char **get_texts(struct cursor *c)
{
    uint32_t count = get_count(c, 4);
    char **texts = need((count + (size_t)1) * sizeof *texts);
    for (uint32_t i = 0; i < count; i++)
        texts[i] = get_text(c);
    return texts;
}

static void free_texts(char **texts)
{
    for (char **t = texts; t && *t; t++)
        free(*t);
    free(texts);
}

void job_put(struct bytes *b, const struct job *job, uint32_t here)
{
    put_text(b, job->name);
    put_u32(b, job->size);
    put_u32(b, here);
    put_u32(b, job->place_count);
    for (uint32_t i = 0; i < job->place_count; i++) {
        put_text(b, job->places[i].host);
        put_u32(b, job->places[i].count);
    }
    put_u32(b, job->tag_output);
    put_text(b, job->folder);
    put_texts(b, job->argv);
    put_texts(b, job->env);
}

/* The places lie one behind the other and make up the job. */
static bool get_places(struct cursor *c, struct job *job)
{
    job->place_count = get_count(c, 8);
    job->places = need(job->place_count * sizeof *job->places);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < job->place_count; i++) {
        struct place *place = &job->places[i];
        place->host = get_text(c);
        place->first = (uint32_t)sum;
        place->count = get_u32(c);
        if (place->count == 0 || place->count > job->size - sum)
            return false;
        sum += place->count;
    }
    return sum == job->size && job->here < job->place_count;
}

bool job_get(struct cursor *c, struct job *job_out)
{
    struct job job = {0};
    job.name = get_text(c);
    job.size = get_u32(c);
    job.here = get_u32(c);
    bool good = job.size <= JOB_RANKS_MAX && get_places(c, &job);
    if (good) {
        job.tag_output = get_u32(c) != 0;
        job.folder = get_text(c);
        job.argv = get_texts(c);
        job.env = get_texts(c);
    }
    if (!good || !cursor_done(c) || !job.argv[0] || !job.name[0]) {
        job_free(&job);
        return false;
    }
    *job_out = job;
    return true;
}

void job_free(struct job *job)
{
    for (uint32_t i = 0; i < job->place_count; i++)
        free(job->places[i].host);
    free(job->places);
    free(job->name);
    free(job->folder);
    free_texts(job->argv);
    free_texts(job->env);
    *job = (struct job){0};
}

uint32_t job_place(const struct job *job, uint32_t rank)
{
    uint32_t at = 0;
    while (at + 1 < job->place_count && rank >= job->places[at + 1].first)
        at++;
    return at;
}
