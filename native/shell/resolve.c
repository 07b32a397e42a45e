/* The resolver thread (see resolve.h). It shares one block with the node: the node lets go
 * of it at a stop, the thread when it ends; the last frees it. After the stop the thread
 * touches nothing of the node's. */
#include "shell/resolve.h"

#include <netdb.h>
#include <pthread.h>
#include <signal.h>

#include "core/mem.h"
#include "shell/clock.h"
#include "shell/loop.h"
#include "shell/shell.h"
#include "shell/sockets.h"
#include "shell/wait.h"

#define EVERY_MS 30000u
#define ALONE_EVERY_MS 2000u
#define ADDRESSES_MAX 1024u         /* of one seed */

struct resolver {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopped, alone;
    unsigned refs;
    struct peerage *peerage;        /* valid while not stopped, under the lock */
    struct settings settings;       /* a copy without its keys */
    bool said[SEEDS_MAX];           /* that the name does not resolve */
};

/* One seed's addresses on their way to the loop thread. */
struct found {
    struct mail mail;
    struct peerage *peerage;
    size_t index, count;
    struct addr addrs[];
};

size_t resolve_spread(const struct settings *s, const struct addr *host, uint16_t port,
                      struct addr *out, size_t room)
{
    size_t count = port ? 1 : s->port_range;

    for (size_t i = 0; i < count && i < room; i++) {
        out[i] = *host;
        out[i].port = port ? port : (uint16_t)(s->port + i);
    }
    return min_size(count, room);
}

static void set_seed(struct mail *mail, struct loop *loop)
{
    struct found *f = CONTAINER_OF(mail, struct found, mail);

    if (loop && node_swim(f->peerage->node)) {
        swim_set_seed(node_swim(f->peerage->node), f->index, f->addrs, f->count);
        loop_news(loop);
    }
    mem_free(f);
}

static void deinit(struct resolver *r)
{
    bool last;

    pthread_mutex_lock(&r->lock);
    last = --r->refs == 0;
    pthread_mutex_unlock(&r->lock);
    if (!last)
        return;
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

static void say_unresolved(struct resolver *r, size_t i, int why)
{
    const struct peer_seed *seed = &r->settings.seeds[i];

    pthread_mutex_lock(&r->lock);
    if (!r->stopped && !r->said[i])
        notice_log(&r->peerage->notices, LOG_WARNING,
                   "PEERS: %s does not resolve yet (%s); it is tried again", seed->host,
                   gai_strerror(why));
    r->said[i] = true;
    pthread_mutex_unlock(&r->lock);
}

static void look_up(struct resolver *r, size_t i)
{
    const struct peer_seed *seed = &r->settings.seeds[i];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int why = getaddrinfo(seed->host, NULL, &hints, &found);

    if (why != 0) {
        say_unresolved(r, i, why);
        return;
    }
    struct found *f = mem_zalloc(sizeof *f + ADDRESSES_MAX * sizeof f->addrs[0]);
    for (struct addrinfo *a = found; f && a && f->count < ADDRESSES_MAX; a = a->ai_next) {
        struct sockaddr_storage at;
        struct addr host;
        memset(&at, 0, sizeof at);
        memcpy(&at, a->ai_addr, min_size(a->ai_addrlen, sizeof at));
        if (sockets_to_addr(&at, &host))
            f->count += resolve_spread(&r->settings, &host, seed->port, f->addrs + f->count,
                                       ADDRESSES_MAX - f->count);
    }
    freeaddrinfo(found);
    if (!f)
        return;
    f->mail.run = set_seed;
    f->index = i + 1;               /* 0 is this host's own range */
    pthread_mutex_lock(&r->lock);
    f->peerage = r->peerage;
    bool posted = !r->stopped && mailbox_post(&r->peerage->mailbox, &f->mail);
    r->said[i] = false;
    pthread_mutex_unlock(&r->lock);
    if (!posted)
        mem_free(f);
}

static void *run(void *argument)
{
    struct resolver *r = argument;
    bool stopped = false;

    while (!stopped) {
        for (size_t i = 0; i < r->settings.seed_count; i++) {
            if (r->settings.seeds[i].host[0])
                look_up(r, i);
        }
        pthread_mutex_lock(&r->lock);
        uint64_t began_ms = clock_now_ms();
        while (!r->stopped &&
               wait_until(&r->changed, &r->lock, began_ms + (r->alone ? ALONE_EVERY_MS : EVERY_MS)))
            ;
        stopped = r->stopped;
        pthread_mutex_unlock(&r->lock);
    }
    deinit(r);
    return NULL;
}

struct resolver *resolve_start(struct peerage *p)
{
    struct resolver *r = mem_zalloc(sizeof *r);
    sigset_t all, before;
    pthread_t thread;

    if (!r)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    wait_init(&r->changed);
    r->refs = 2;
    r->alone = true;
    r->peerage = p;
    r->settings = p->settings;
    mem_wipe(&r->settings.seal, sizeof r->settings.seal);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, run, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        r->refs = 1;
        deinit(r);
        return NULL;
    }
    pthread_detach(thread);
    return r;
}

void resolve_stop(struct resolver *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stopped = true;
    r->peerage = NULL;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    deinit(r);
}

void resolve_alone(struct resolver *r, bool alone)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    if (r->alone != alone) {
        r->alone = alone;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
}
