/* One look-up of a name (see redis_name.h). Thread and owner share one block; the last frees
 * it. After a stop the thread touches nothing of the node's. */
#include "shell/redis_name.h"

#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "core/mem.h"
#include "shell/shell.h"
#include "shell/sockets.h"

struct redis_lookup {
    struct mail mail;
    pthread_mutex_t lock;
    unsigned refs;              /* the owner's (then the mail's), the thread's */
    struct peerage *peerage;    /* NULL: stopped */
    redis_named *named;
    void *owner;
    char host[254];
    uint16_t port;
    bool found;
    struct addr addr;
    char why[128];
};

static void unref(struct redis_lookup *l)
{
    pthread_mutex_lock(&l->lock);
    bool last = --l->refs == 0;
    pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&l->lock);
    mem_free(l);
}

static void arrive(struct mail *mail, struct loop *loop)
{
    struct redis_lookup *l = CONTAINER_OF(mail, struct redis_lookup, mail);
    bool wanted;

    pthread_mutex_lock(&l->lock);
    wanted = loop && l->peerage;
    l->peerage = NULL;
    pthread_mutex_unlock(&l->lock);
    if (wanted) {
        l->named(l->owner, l->found ? &l->addr : NULL, l->why);
        unref(l);               /* the owner's: it has forgotten us */
    }
    unref(l);
}

static void look_up(struct redis_lookup *l)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int why = getaddrinfo(l->host, NULL, &hints, &found);

    if (why != 0) {
        snprintf(l->why, sizeof l->why, "its name does not resolve: %s", gai_strerror(why));
        return;
    }
    for (struct addrinfo *a = found; a && !l->found; a = a->ai_next) {
        struct sockaddr_storage at;
        memset(&at, 0, sizeof at);
        memcpy(&at, a->ai_addr, min_size(a->ai_addrlen, sizeof at));
        l->found = sockets_to_addr(&at, &l->addr);
    }
    l->addr.port = l->port;
    freeaddrinfo(found);
}

static void *run(void *argument)
{
    struct redis_lookup *l = argument;

    look_up(l);
    pthread_mutex_lock(&l->lock);
    /* The thread's reference goes with the mail. */
    bool posted = l->peerage && mailbox_post(&l->peerage->mailbox, &l->mail);
    pthread_mutex_unlock(&l->lock);
    if (!posted)
        unref(l);
    return NULL;
}

struct redis_lookup *redis_name_start(struct peerage *p, const char *host, uint16_t port,
                                      redis_named *named, void *owner)
{
    struct redis_lookup *l = mem_zalloc(sizeof *l);
    sigset_t all, before;
    pthread_t thread;

    if (!l)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    l->mail.run = arrive;
    l->refs = 2;
    l->peerage = p;
    l->named = named;
    l->owner = owner;
    l->port = port;
    snprintf(l->host, sizeof l->host, "%s", host);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        pthread_mutex_destroy(&l->lock);
        mem_free(l);
        return NULL;
    }
    pthread_detach(thread);
    return l;
}

void redis_name_stop(struct redis_lookup *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->peerage = NULL;
    pthread_mutex_unlock(&l->lock);
    unref(l);
}
