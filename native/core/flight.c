/* The table of flights (see flight.h): two hash indices, by key and role for the attached
 * ones and by id for all, chained through the flights themselves.
 */
#include "flight.h"

#include <sodium.h>

#include "mem.h"

/* Power of two. A node has tens of flights at a time, thousands when an upstream hangs;
 * chains stay short either way, so the table never grows. */
#define BUCKETS 1024u

struct flights {
    uint8_t hash_key[16];
    uint64_t last_id;
    size_t count;
    struct list by_key[BUCKETS], by_id[BUCKETS];
};

struct bundle {
    atomic_uint refs;
    unsigned count;
    struct loaded items[];      /* the keys' bytes follow */
};

struct bundle *bundle_new(const struct loaded *items, unsigned count)
{
    size_t key_bytes = 0;
    for (unsigned i = 0; i < count; i++)
        key_bytes += items[i].key.bytes;

    struct bundle *b = mem_alloc(sizeof *b + count * sizeof b->items[0] + key_bytes);
    if (!b)
        return NULL;
    atomic_init(&b->refs, 1);
    b->count = count;
    uint8_t *at = (uint8_t *)&b->items[count];
    for (unsigned i = 0; i < count; i++) {
        b->items[i] = items[i];
        b->items[i].key.at = at;
        if (items[i].key.bytes)
            memcpy(at, items[i].key.at, items[i].key.bytes);
        at += items[i].key.bytes;
        blob_ref(items[i].blob);
    }
    return b;
}

struct bundle *bundle_ref(struct bundle *b)
{
    if (b)
        atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void bundle_unref(struct bundle *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < b->count; i++)
        blob_unref(b->items[i].blob);
    mem_free(b);
}

unsigned bundle_count(const struct bundle *b) { return b ? b->count : 0; }
const struct loaded *bundle_at(const struct bundle *b, unsigned i) { return &b->items[i]; }

void answer_deinit(struct answer *a)
{
    blob_unref(a->blob);
    bundle_unref(a->also);
    a->blob = NULL;
    a->also = NULL;
}

struct flights *flights_new(const uint8_t hash_key[16])
{
    struct flights *t = mem_zalloc(sizeof *t);

    if (!t)
        return NULL;
    memcpy(t->hash_key, hash_key, sizeof t->hash_key);
    for (unsigned i = 0; i < BUCKETS; i++) {
        list_init(&t->by_key[i]);
        list_init(&t->by_id[i]);
    }
    return t;
}

void flights_free(struct flights *t)
{
    if (!t)
        return;
    for (unsigned i = 0; i < BUCKETS; i++) {
        LIST_FOREACH_SAFE(&t->by_id[i], link)
            mem_free(CONTAINER_OF(link, struct flight, by_id));
    }
    mem_free(t);
}

static struct list *bucket_of(struct flights *t, struct span key)
{
    uint64_t hash;

    crypto_shorthash((unsigned char *)&hash, key.at, key.bytes, t->hash_key);
    return &t->by_key[hash % BUCKETS];
}

struct flight *flights_find(struct flights *t, struct span key, enum flight_role role)
{
    struct list *bucket = bucket_of(t, key);

    LIST_FOREACH(bucket, link) {
        struct flight *f = CONTAINER_OF(link, struct flight, by_key);
        if (f->role == role && span_equal(f->key, key))
            return f;
    }
    return NULL;
}

struct flight *flights_by_id(struct flights *t, uint64_t id)
{
    LIST_FOREACH(&t->by_id[id % BUCKETS], link) {
        struct flight *f = CONTAINER_OF(link, struct flight, by_id);
        if (f->id == id)
            return f;
    }
    return NULL;
}

static struct span keep(uint8_t **at, struct span s)
{
    struct span kept = span_of(*at, s.bytes);

    if (s.bytes)
        memcpy(*at, s.at, s.bytes);
    *at += s.bytes;
    return kept;
}

struct flight *flights_add(struct flights *t, enum flight_role role, const struct message *ask,
                           uint64_t channel_hash, uint64_t now_ms)
{
    struct span channel = message_channel(ask);
    struct flight *f = mem_zalloc(sizeof *f + ask->key.bytes + channel.bytes + ask->loader.bytes);

    if (!f)
        return NULL;
    f->id = ++t->last_id;
    f->role = role;
    f->state = role == FLIGHT_ASKS ? FLIGHT_ASKING : FLIGHT_RUNNING;
    f->attached = true;
    f->started_ms = now_ms;
    f->until_ms = f->working_ms = NEVER_MS;
    f->channel_hash = channel_hash;
    f->ttl_ms = ask->ttl_ms;
    f->stale_ms = ask->stale_ms;
    f->load_timeout_ms = ask->load_timeout_ms;
    f->fresh = ask->flags & MESSAGE_FRESH;
    f->chain_count = ask->chain_count;
    memcpy(f->chain, ask->chain, sizeof f->chain);
    list_init(&f->waiters);
    list_init(&f->queue);
    uint8_t *at = (uint8_t *)(f + 1);
    f->key = keep(&at, ask->key);
    f->channel = keep(&at, channel);
    f->loader = keep(&at, ask->loader);
    list_add_tail(bucket_of(t, f->key), &f->by_key);
    list_add_tail(&t->by_id[f->id % BUCKETS], &f->by_id);
    t->count++;
    return f;
}

void flight_detach(struct flights *t, struct flight *f)
{
    (void)t;
    list_remove(&f->by_key);
    f->attached = false;
}

void flight_own(struct flights *t, struct flight *f)
{
    assert(f->role == FLIGHT_ASKS);
    assert(!f->attached || !flights_find(t, f->key, FLIGHT_OWNS));
    f->role = FLIGHT_OWNS;
}

void flight_end(struct flights *t, struct flight *f)
{
    assert(list_empty(&f->waiters));
    list_remove(&f->by_key);
    list_remove(&f->by_id);
    list_remove(&f->queue);
    t->count--;
    mem_free(f);
}

struct flight *flights_next(struct flights *t, const struct flight *f)
{
    unsigned i = f ? (unsigned)(f->id % BUCKETS) : 0;
    struct list *link = f ? f->by_id.next : t->by_id[0].next;

    while (link == &t->by_id[i]) {
        if (++i == BUCKETS)
            return NULL;
        link = t->by_id[i].next;
    }
    return CONTAINER_OF(link, struct flight, by_id);
}

size_t flights_count(const struct flights *t) { return t->count; }
