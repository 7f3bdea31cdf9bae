/* SPDX-License-Identifier: Apache-2.0 */
/* mr.c - see mr.h. */
#include "transports/verbs/mr.h"

#include <errno.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "transports/verbs/gid.h"
#include "transports/verbs/gpu.h"
#include "transports/verbs/lane.h"

enum { FIRST = 16 };

/* What is written into may be passed on out of order: whoever waits for it waits for a completion. */
struct ibv_mr *verbs_mr_register(const struct verbs_rail *rail, void *at, size_t bytes, int more)
{
    const int access = VERBS_MR_ACCESS | more;
    return rail->api->reg_mr_iova2 ? rail->api->reg_mr_iova2(rail->pd, at, bytes, (uintptr_t)at,
                                                             (unsigned)access | IBV_ACCESS_RELAXED_ORDERING)
                                   : rail->api->reg_mr(rail->pd, at, bytes, access);
}

static void drop(struct verbs_region *r, const struct verbs_api *api)
{
    for (uint32_t i = 0; i < VERBS_MR_RAILS; i++)
        if (r->mr[i])
            (void)api->dereg_mr(r->mr[i]);
}

static bool is_there(const struct ri_memory *memory, const struct ri_region *r)
{
    struct ri_region now;
    return memory->find(r->begin, r->bytes, &now) && now.serial == r->serial;
}

/* Something has been registered or freed since: those that are gone go here too. */
static void sweep(struct verbs_mr_cache *cache, const struct ri_memory *memory, const struct verbs_api *api)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cache->count; i++) {
        if (is_there(memory, &cache->table[i].region))
            cache->table[kept++] = cache->table[i];
        else
            drop(&cache->table[i], api);
    }
    cache->count = kept;
    cache->last = 0;
}

static bool holds(const struct ri_region *r, const void *at, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)r->begin, from = (uintptr_t)at;
    return from >= begin && from - begin < r->bytes && bytes <= r->bytes - (from - begin);
}

/* Where the first region that ends behind `at` is. */
static uint32_t position(const struct verbs_mr_cache *cache, const void *at)
{
    uint32_t low = 0, high = cache->count;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        const struct ri_region *r = &cache->table[mid].region;
        if ((uintptr_t)r->begin + r->bytes <= (uintptr_t)at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool make_room(struct verbs_mr_cache *cache)
{
    const uint32_t room = cache->room ? 2 * cache->room : FIRST;
    if (cache->count < cache->room)
        return true;
    struct verbs_region *table = ri_new(room, sizeof *table);
    if (!table)
        return false;
    if (cache->count)
        memcpy(table, cache->table, cache->count * sizeof *table);
    ri_free(cache->table);
    cache->table = table;
    cache->room = room;
    return true;
}

static bool insert(struct verbs_mr_cache *cache, uint32_t at, const struct ri_region *region)
{
    if (!make_room(cache))
        return false;
    memmove(&cache->table[at + 1], &cache->table[at], (cache->count - at) * sizeof *cache->table);
    cache->table[at] = (struct verbs_region){.region = *region};
    cache->count++;
    return true;
}

static struct verbs_region *find(struct verbs_mr_cache *cache, const struct ri_memory *memory, const void *at,
                                 size_t bytes)
{
    struct ri_region region;
    if (cache->last < cache->count && holds(&cache->table[cache->last].region, at, bytes))
        return &cache->table[cache->last];
    const uint32_t i = position(cache, at);
    if (i == cache->count || !holds(&cache->table[i].region, at, bytes)) {
        if (!memory->find(at, bytes, &region) || !insert(cache, i, &region))
            return NULL;
    }
    cache->last = i;
    return &cache->table[i];
}

/* A rail's first says for all how it is done. */
static struct ibv_mr *register_gpu(struct verbs_mr_cache *cache, const struct verbs_rail *rail,
                                   const struct ri_region *region, char *why_out, size_t cap)
{
    const char *way = "";
    struct ibv_mr *mr = verbs_gpu_register(rail, region, cache->root, &way, why_out, cap);
    if (mr && !(cache->gpu_told >> rail->index & 1))
        ri_log(RI_LOG_INFO, "%s registers memory of GPUs %s", rail->name, way);
    cache->gpu_told |= mr ? 1u << rail->index : 0;
    return mr;
}

static struct ibv_mr *register_region(struct verbs_mr_cache *cache, const struct verbs_rail *rail,
                                      const struct ri_region *region)
{
    char why[VERBS_WHY];
    struct ibv_mr *mr = region->copy ? register_gpu(cache, rail, region, why, sizeof why)
                                     : verbs_mr_register(rail, region->begin, region->bytes, 0);
    if (!mr)
        ri_log(RI_LOG_INFO, "%zu bytes of %s are copied, for %s refuses them: %s", region->bytes,
               region->copy ? "a GPU's memory" : "registered memory", rail->name, region->copy ? why : strerror(errno));
    return mr;
}

const struct verbs_region *verbs_mr_find(struct verbs_mr_cache *cache, const struct ri_memory *memory,
                                         struct verbs_rail *rail, const void *at, size_t bytes)
{
    if (!memory)
        return NULL;
    const uint32_t version = memory->version();
    if (version != cache->version)
        sweep(cache, memory, rail->api);
    cache->version = version;
    struct verbs_region *r = find(cache, memory, at, bytes);
    const uint32_t bit = 1u << rail->index;
    if (!r || r->refused & bit)
        return NULL;
    if (!r->mr[rail->index])
        r->mr[rail->index] = register_region(cache, rail, &r->region);
    r->refused |= r->mr[rail->index] ? 0 : bit;
    return r->mr[rail->index] ? r : NULL;
}

ring_status_t verbs_mr_copy(const struct ri_memory *memory, const void *buffer, void *to, const void *from,
                            size_t bytes)
{
    struct ri_region region;
    if (bytes && memory && memory->devices && memory->find(buffer, bytes, &region) && region.copy)
        return region.copy(to, from, bytes);
    if (bytes)
        memcpy(to, from, bytes);
    return RING_OK;
}

void verbs_mr_clear(struct verbs_mr_cache *cache, struct verbs_rail *rails)
{
    for (uint32_t i = 0; i < cache->count; i++)
        drop(&cache->table[i], rails->api);
    ri_free(cache->table);
    *cache = (struct verbs_mr_cache){0};
}
