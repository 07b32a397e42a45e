/* Idle connections by address (see pool.h). Sockets are closed after the lock. */
#include "shell/pool.h"

#define IDLE_MS_MAX 30000u
#define PER_PEER_MAX 32u        /* as many as there are loader threads */

static struct list *bucket(struct pool *p, const struct addr *a)
{
    unsigned h = a->port;

    for (unsigned i = 8; i < 16; i++)
        h = h * 31 + a->ip[i];
    return &p->buckets[h % POOL_BUCKETS];
}

void pool_init(struct pool *p)
{
    pthread_mutex_init(&p->lock, NULL);
    p->open = false;
    p->count = 0;
    for (unsigned i = 0; i < POOL_BUCKETS; i++)
        list_init(&p->buckets[i]);
}

void pool_deinit(struct pool *p)
{
    pool_set_open(p, false);
    pthread_mutex_destroy(&p->lock);
}

struct stream *pool_take(struct pool *p, const struct addr *a, uint64_t node_id)
{
    struct stream *found = NULL;

    pthread_mutex_lock(&p->lock);
    LIST_FOREACH(bucket(p, a), l) {
        struct stream *c = CONTAINER_OF(l, struct stream, of);
        if (c->link.peer_id == node_id && addr_equal(&c->peer, a)) {
            list_remove(&c->of);
            p->count--;
            found = c;
            break;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

void pool_give(struct pool *p, struct stream *c, uint64_t now_ms)
{
    unsigned same = 0;
    bool kept = false;

    if (!c->ended && !stream_is_within(c) && !stream_wants_write(c)) {
        struct list *b = bucket(p, &c->peer);
        pthread_mutex_lock(&p->lock);
        LIST_FOREACH(b, l)
            same += addr_equal(&CONTAINER_OF(l, struct stream, of)->peer, &c->peer);
        kept = p->open && same < PER_PEER_MAX;
        if (kept) {
            c->used_ms = now_ms;
            c->reused = true;
            list_add_head(b, &c->of);
            p->count++;
        }
        pthread_mutex_unlock(&p->lock);
    }
    if (!kept)
        stream_free(c);
}

static void free_all(struct list *gone)
{
    LIST_FOREACH_SAFE(gone, l)
        stream_free(CONTAINER_OF(l, struct stream, of));
}

void pool_sweep(struct pool *p, uint64_t now_ms)
{
    struct list gone;

    list_init(&gone);
    pthread_mutex_lock(&p->lock);
    for (unsigned i = 0; p->count && i < POOL_BUCKETS; i++) {
        LIST_FOREACH_SAFE(&p->buckets[i], l) {
            struct stream *c = CONTAINER_OF(l, struct stream, of);
            if (c->used_ms + IDLE_MS_MAX < now_ms) {
                list_remove(l);
                list_add_tail(&gone, l);
                p->count--;
            }
        }
    }
    pthread_mutex_unlock(&p->lock);
    free_all(&gone);
}

void pool_set_open(struct pool *p, bool open)
{
    struct list gone;

    list_init(&gone);
    pthread_mutex_lock(&p->lock);
    p->open = open;
    for (unsigned i = 0; !open && i < POOL_BUCKETS; i++)
        list_move_all(&gone, &p->buckets[i]);
    if (!open)
        p->count = 0;
    pthread_mutex_unlock(&p->lock);
    free_all(&gone);
}
