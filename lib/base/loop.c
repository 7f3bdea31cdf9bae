/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

enum { BATCH = 16, IDLE_MS = 1000 };

/* `lock` is held by every callback and covers watches and timers, so that "removed" means removed: whoever holds it knows
 * that no callback is running.  Events that epoll_wait fetched before a removal are dropped (`removals` tells; level
 * triggering brings the others back).  `life` covers starting and ending the thread; callbacks never take it. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_t thread;
static unsigned holders;
static int epoll_fd = -1, wake_fd = -1;
static _Atomic bool stopping;
static struct ri_timer *timers;
static struct epoll_event batch[BATCH];
static int batched;
static uint64_t removals;

static void make_lock(void)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

void ri_loop_lock(void)
{
    pthread_once(&once, make_lock);
    pthread_mutex_lock(&lock);
}

void ri_loop_unlock(void) { pthread_mutex_unlock(&lock); }

static void poke(void)
{
    const uint64_t one = 1;
    ssize_t ignored = write(wake_fd, &one, sizeof one);
    (void)ignored;
}

static int next_timeout_ms(void)
{
    const uint64_t now = ri_now();
    uint64_t wait = IDLE_MS;
    for (const struct ri_timer *t = timers; t; t = t->next) {
        const uint64_t left = t->due > now ? (t->due - now + RI_MILLISECOND - 1) / RI_MILLISECOND : 0;
        if (left < wait)
            wait = left;
    }
    return (int)wait;
}

static struct ri_timer *due_timer(uint64_t now)
{
    for (struct ri_timer *t = timers; t; t = t->next)
        if (t->due <= now)
            return t;
    return NULL;
}

/* From the head each time: a callback may remove any timer. */
static void fire_timers(void)
{
    const uint64_t now = ri_now();
    for (struct ri_timer *t; (t = due_timer(now));) {
        t->due = now + (t->period ? t->period : 1);
        t->fire(t, now);
    }
}

static void deliver(int n)
{
    batched = n;
    for (int i = 0; i < batched; i++) {
        struct ri_watch *w = batch[i].data.ptr;
        if (w)
            w->ready(w, batch[i].events);
        else if (batch[i].events) { /* the wake-up: data.ptr is NULL from the start */
            uint64_t count;
            ssize_t ignored = read(wake_fd, &count, sizeof count);
            (void)ignored;
        }
    }
    batched = 0;
}

static void *run(void *arg)
{
    (void)arg;
    ri_loop_lock();
    while (!atomic_load(&stopping)) {
        const int ms = next_timeout_ms();
        const uint64_t seen = removals;
        ri_loop_unlock();
        const int n = epoll_wait(epoll_fd, batch, BATCH, ms);
        ri_loop_lock();
        deliver(n > 0 && removals == seen ? n : 0);
        fire_timers();
    }
    ri_loop_unlock();
    return NULL;
}

static void close_descriptors(void)
{
    if (epoll_fd >= 0)
        close(epoll_fd);
    if (wake_fd >= 0)
        close(wake_fd);
    epoll_fd = wake_fd = -1;
}

static ring_status_t start(void)
{
    struct epoll_event wake = {.events = EPOLLIN};
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll_fd < 0 || wake_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &wake))
        return ri_fail_errno("background thread's descriptors");
    atomic_store(&stopping, false);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(&thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return errno ? ri_fail_errno("background thread") : RING_OK;
}

/* A child has the memory but not the thread: it begins with no loop.  Both locks are held over the fork, so that what it
 * inherits is whole; the epoll object is still the parent's too, so nothing is taken out of it. */
static void before_fork(void)
{
    pthread_mutex_lock(&life);
    ri_loop_lock();
}

static void after_fork(void)
{
    ri_loop_unlock();
    pthread_mutex_unlock(&life);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&life, NULL);
    make_lock();
    close_descriptors();
    holders = 0;
    timers = NULL;
    batched = 0;
}

static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork_in_child); }

ring_status_t ri_loop_hold(void)
{
    static pthread_once_t forks = PTHREAD_ONCE_INIT;
    pthread_once(&forks, watch_forks);
    pthread_mutex_lock(&life);
    const ring_status_t status = holders ? RING_OK : start();
    if (status)
        close_descriptors();
    else
        holders++;
    pthread_mutex_unlock(&life);
    return status;
}

void ri_loop_release(void)
{
    pthread_mutex_lock(&life);
    if (holders && !--holders) { /* no holders: a forked child lets go of what its parent held */
        atomic_store(&stopping, true);
        poke();
        pthread_join(thread, NULL);
        close_descriptors();
    }
    pthread_mutex_unlock(&life);
}

static ring_status_t control(int op, struct ri_watch *w, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};
    return epoll_ctl(epoll_fd, op, w->fd, &e) ? ri_fail_errno("watching descriptor %d", w->fd) : RING_OK;
}

ring_status_t ri_loop_add(struct ri_watch *w, uint32_t events) { return control(EPOLL_CTL_ADD, w, events); }

ring_status_t ri_loop_change(struct ri_watch *w, uint32_t events) { return control(EPOLL_CTL_MOD, w, events); }

void ri_loop_timer_add(struct ri_timer *t)
{
    ri_loop_lock();
    t->due = ri_now() + t->period;
    t->next = timers;
    timers = t;
    ri_loop_unlock();
    poke();
}

void ri_loop_remove(struct ri_watch *w)
{
    ri_loop_lock();
    removals++;
    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    for (int i = 0; i < batched; i++)
        if (batch[i].data.ptr == w)
            batch[i] = (struct epoll_event){0};
    ri_loop_unlock();
}

void ri_loop_timer_remove(struct ri_timer *t)
{
    ri_loop_lock();
    for (struct ri_timer **at = &timers; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
    ri_loop_unlock();
}
