/* SPDX-License-Identifier: Apache-2.0 */
/* guard.c - see guard.h.  The agent's thread lets people pass, PMIx's listening thread fetches them. */
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "say.h"

enum { FIRST_WORDS = 4096, FDS_MAX = 1024, SWITCH_MS = 200 };

struct visitor {
    int fd; /* -1: free place */
    uint64_t until;
};

static struct {
    const char *word;
    int door;             /* the listening socket; -1: no guard */
    int watch;            /* epoll: the door and the visitors */
    atomic_bool switched; /* PMIx has looked at the counter */
    struct visitor visitors[GUARD_PLACES];
    pthread_mutex_t lock; /* the rest */
    int counter;          /* PMIx's descriptor */
    int passed[GUARD_PLACES];
    unsigned passed_count;
} guard = {.door = -1, .watch = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .counter = -1};

/* ---- taking over ---------------------------------------------------------------------------------------------------
 */

static bool listens(int fd)
{
    int yes = 0, domain = 0;
    socklen_t len = sizeof yes;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &len) != 0 || !yes)
        return false;
    len = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && (domain == AF_INET || domain == AF_INET6);
}

/* The one listening socket of this process, -1: there is none, or more than one. */
static int find_door(void)
{
    int found = -1;
    for (int fd = 3; fd < FDS_MAX; fd++) {
        if (!listens(fd))
            continue;
        if (found >= 0)
            return -1;
        found = fd;
    }
    return found;
}

/* PMIx's thread may sleep in select() on the old socket, or not have come to it: both are made to call accept() now. */
static void wake_listener(int theirs, int counter)
{
    struct sockaddr_storage self;
    socklen_t len = sizeof self;
    int fd = -1;
    if (getsockname(guard.door, (struct sockaddr *)&self, &len) == 0)
        fd = socket(self.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    dup3(counter, theirs, O_CLOEXEC);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&self, len) != 0 && errno != EINPROGRESS)
        say("cannot reach PMIx's own port: %s", strerror(errno));
    for (uint64_t until = now_ms() + SWITCH_MS; !atomic_load(&guard.switched) && now_ms() < until;)
        usleep(50);
    if (fd >= 0)
        close(fd);
}

/* v == NULL: the door. */
static void watch(int fd, struct visitor *v)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = v};
    epoll_ctl(guard.watch, EPOLL_CTL_ADD, fd, &e);
}

/* PMIx does not do as expected: it gets its socket again. */
static void take_back(int theirs)
{
    pthread_mutex_lock(&guard.lock);
    guard.counter = -1;
    dup3(guard.door, theirs, O_CLOEXEC);
    close(guard.door);
    close(guard.watch);
    guard.door = guard.watch = -1;
    pthread_mutex_unlock(&guard.lock);
}

bool guard_open(const char *word)
{
    int theirs = find_door();
    if (theirs < 0 || !accept_is_found())
        return false;
    int counter = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    guard.door = fcntl(theirs, F_DUPFD_CLOEXEC, 3);
    guard.watch = epoll_create1(EPOLL_CLOEXEC);
    if (counter < 0 || guard.door < 0 || guard.watch < 0)
        die("no descriptors left to guard PMIx's port: %s", strerror(errno));
    fcntl(guard.door, F_SETFL, fcntl(guard.door, F_GETFL) | O_NONBLOCK);
    for (int i = 0; i < GUARD_PLACES; i++)
        guard.visitors[i].fd = -1;
    guard.word = word;
    pthread_mutex_lock(&guard.lock);
    guard.counter = theirs;
    pthread_mutex_unlock(&guard.lock);
    wake_listener(theirs, counter);
    close(counter);
    if (!atomic_load(&guard.switched)) {
        take_back(theirs);
        return false;
    }
    watch(guard.door, NULL);
    return true;
}

/* ---- on PMIx's thread ----------------------------------------------------------------------------------------------
 */

bool guard_owns(int fd, int *passed_out)
{
    uint64_t one;
    pthread_mutex_lock(&guard.lock);
    bool owns = guard.counter >= 0 && fd == guard.counter;
    if (owns) {
        *passed_out = -1;
        if (read(guard.counter, &one, sizeof one) < 0) {
            /* called for the old socket's sake; who has passed is fetched all the same */
        }
        if (guard.passed_count) {
            *passed_out = guard.passed[0];
            guard.passed_count--;
            memmove(guard.passed, guard.passed + 1, guard.passed_count * sizeof guard.passed[0]);
        }
    }
    pthread_mutex_unlock(&guard.lock);
    if (owns)
        atomic_store(&guard.switched, true);
    return owns;
}

/* ---- on the agent's thread -----------------------------------------------------------------------------------------
 */

int guard_fd(void) { return guard.watch; }

int guard_wait(void)
{
    uint64_t soonest = UINT64_MAX, now = now_ms();
    for (int i = 0; i < GUARD_PLACES && guard.door >= 0; i++)
        if (guard.visitors[i].fd >= 0 && guard.visitors[i].until < soonest)
            soonest = guard.visitors[i].until;
    return soonest == UINT64_MAX ? -1 : soonest <= now ? 0 : (int)(soonest - now);
}

static void send_away(struct visitor *v)
{
    close(v->fd);
    v->fd = -1;
}

/* Be woken when there are more than `bytes`; they are only looked at, so they stay. */
static void wake_beyond(int fd, ssize_t bytes)
{
    int low = (int)bytes + 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
}

static void let_pass(struct visitor *v)
{
    wake_beyond(v->fd, 0);
    epoll_ctl(guard.watch, EPOLL_CTL_DEL, v->fd, NULL);
    uint64_t one = 1;
    pthread_mutex_lock(&guard.lock);
    if (guard.passed_count < GUARD_PLACES && write(guard.counter, &one, sizeof one) == (ssize_t)sizeof one) {
        guard.passed[guard.passed_count++] = v->fd;
        v->fd = -1;
    }
    pthread_mutex_unlock(&guard.lock);
}

static void listen_to(struct visitor *v)
{
    static char words[FIRST_WORDS];
    ssize_t n = recv(v->fd, words, sizeof words, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0 && memmem(words, (size_t)n, guard.word, strlen(guard.word)))
        let_pass(v);
    else if (n == 0 || n == (ssize_t)sizeof words || (n < 0 && errno != EAGAIN && errno != EINTR))
        send_away(v);
    else if (n > 0)
        wake_beyond(v->fd, n);
}

/* Who has waited longest; NULL: nobody waits. */
static struct visitor *oldest_visitor(void)
{
    struct visitor *oldest = NULL;
    for (int i = 0; i < GUARD_PLACES; i++) {
        struct visitor *v = &guard.visitors[i];
        if (v->fd >= 0 && (!oldest || v->until < oldest->until))
            oldest = v;
    }
    return oldest;
}

static struct visitor *place_for_one(void)
{
    for (int i = 0; i < GUARD_PLACES; i++)
        if (guard.visitors[i].fd < 0)
            return &guard.visitors[i];
    struct visitor *v = oldest_visitor();
    send_away(v);
    return v;
}

static void welcome(void)
{
    for (int fd; (fd = accept4(guard.door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
        struct visitor *v = place_for_one();
        *v = (struct visitor){.fd = fd, .until = now_ms() + GUARD_MS};
        watch(fd, v);
        listen_to(v);
    }
    if ((errno == EMFILE || errno == ENFILE) && oldest_visitor())
        send_away(oldest_visitor());
}

void guard_turn(void)
{
    struct epoll_event ready[GUARD_PLACES];
    if (guard.door < 0)
        return;
    int count = epoll_wait(guard.watch, ready, GUARD_PLACES, 0);
    for (int i = 0; i < count; i++) {
        struct visitor *v = ready[i].data.ptr;
        if (v && v->fd >= 0)
            listen_to(v);
        else if (!v)
            welcome();
    }
    for (int i = 0; i < GUARD_PLACES; i++)
        if (guard.visitors[i].fd >= 0 && now_ms() >= guard.visitors[i].until)
            send_away(&guard.visitors[i]);
}
