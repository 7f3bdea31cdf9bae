/* SPDX-License-Identifier: Apache-2.0 */
/* api.c - see api.h. */
#include "transports/verbs/api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/mem.h"

struct library {
    struct verbs_api api;
    struct library *next;
    char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct library *libraries;

/* Data pointers hold functions wherever dlsym() exists. */
static bool find(void *handle, const char *symbol, void *to)
{
    void *at = dlsym(handle, symbol);
    memcpy(to, &at, sizeof at);
    return at;
}

static bool find_all(void *handle, struct verbs_api *api, char *why_out, size_t cap)
{
#define FIND(symbol, result, member, arguments)                  \
    if (!find(handle, symbol, &api->member)) {                   \
        snprintf(why_out, cap, "the library has no %s", symbol); \
        missing = true;                                          \
    }
#define FIND_OPTIONAL(symbol, result, member, arguments) (void)find(handle, symbol, &api->member);
    bool missing = false;
    VERBS_FUNCTIONS(FIND)
    VERBS_OPTIONAL(FIND_OPTIONAL)
    return !missing;
#undef FIND
#undef FIND_OPTIONAL
}

/* Never unloaded: what it has started or registered at exit stays callable. */
static struct library *open_library(const char *name, char *why_out, size_t cap)
{
    const size_t bytes = strlen(name) + 1;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        snprintf(why_out, cap, "%s", dlerror());
        return NULL;
    }
    struct library *l = ri_new(1, sizeof *l + bytes);
    if (!l)
        snprintf(why_out, cap, "no memory");
    else if (find_all(handle, &l->api, why_out, cap)) {
        memcpy(l->name, name, bytes);
        l->next = libraries;
        libraries = l;
        return l;
    }
    ri_free(l);
    dlclose(handle);
    return NULL;
}

const struct verbs_api *verbs_api_load(const char *library, char *why_out, size_t cap)
{
    pthread_mutex_lock(&lock);
    struct library *l = libraries;
    while (l && strcmp(l->name, library))
        l = l->next;
    if (!l)
        l = open_library(library, why_out, cap);
    pthread_mutex_unlock(&lock);
    return l ? &l->api : NULL;
}
