/* Permits and what their holders say (see permit.h). */
#include "shell/permit.h"

#include <poll.h>

#include "core/mem.h"
#include "shell/clock.h"
#include "shell/shell.h"
#include "shell/turn.h"

struct permit *permit_new(const struct message *ask, uint64_t load_id, uint64_t request_id,
                          uint64_t delete_id)
{
    struct permit *m = mem_zalloc(sizeof *m + ask->key.bytes + ask->channel.bytes);

    if (!m)
        return NULL;
    list_init(&m->of);
    m->load_id = load_id;
    m->request_id = request_id;
    m->delete_id = delete_id;
    m->key = span_of(m->text, ask->key.bytes);
    m->channel = span_of(m->text + ask->key.bytes, ask->channel.bytes);
    memcpy(m->text, ask->key.at, ask->key.bytes);
    if (ask->channel.bytes)
        memcpy(m->text + ask->key.bytes, ask->channel.at, ask->channel.bytes);
    return m;
}

void permit_free(struct permit *m)
{
    mem_free(m);
}

static struct list *bucket(struct peerage *p, uint64_t load_id)
{
    return &p->permits[load_id % PERMIT_BUCKETS];
}

void permit_add(struct peerage *p, struct permit *m)
{
    list_add_tail(bucket(p, m->load_id), &m->of);
}

struct permit *permit_take(struct peerage *p, uint64_t load_id)
{
    LIST_FOREACH(bucket(p, load_id), l) {
        struct permit *m = CONTAINER_OF(l, struct permit, of);
        if (m->load_id == load_id) {
            list_remove(&m->of);
            return m;
        }
    }
    return NULL;
}

bool permit_is_on(const struct peerage *p, const struct port *port, uint64_t conn_id)
{
    for (unsigned b = 0; b < PERMIT_BUCKETS; b++) {
        LIST_FOREACH((struct list *)&p->permits[b], l) {
            const struct permit *m = CONTAINER_OF(l, struct permit, of);
            if (m->port == port && m->conn_id == conn_id)
                return true;
        }
    }
    return false;
}

void permit_drop_port(struct peerage *p, const struct port *port)
{
    for (unsigned b = 0; b < PERMIT_BUCKETS; b++) {
        LIST_FOREACH_SAFE(&p->permits[b], l) {
            struct permit *m = CONTAINER_OF(l, struct permit, of);
            if (m->port == port) {
                list_remove(&m->of);
                permit_free(m);
            }
        }
    }
}

static bool queue_one(struct stream *c, struct message *m, struct blob *value)
{
    return stream_queue(c, m, value, clock_wall_ms()) == 0;
}

bool permit_queue(const struct permit *permit, struct stream *c, uint8_t kind,
                  const struct loaded *items, unsigned count, struct blob *error)
{
    struct message base = {
        .kind = kind,
        .request_id = permit->request_id,
        .delete_id = permit->delete_id,
        .key = permit->key,
        .channel = permit->channel,
    };

    if (kind == MESSAGE_RAISED)
        base.value_type = VALUE_ERROR;
    if (kind != MESSAGE_LOADED)
        return queue_one(c, &base, error);
    for (unsigned i = 0; i < count; i++) {
        struct message m = base;
        m.value_type = items[i].value_type;
        m.ttl_ms = items[i].ttl_ms;
        m.stale_ms = items[i].stale_ms;
        m.age_ms = items[i].age_ms;
        if (i > 0)
            m.key = items[i].key;
        if (i + 1 < count)
            m.flags = MESSAGE_MORE;
        if (!queue_one(c, &m, items[i].blob))
            return false;
    }
    return true;
}

/* The whole value has to leave this thread's hands: wait for room, but not for ever. */
static bool flush_within(struct stream *c, uint32_t timeout_ms)
{
    uint64_t until_ms = clock_now_ms() + timeout_ms, before = c->bytes_out;
    int rc;

    while ((rc = stream_flush(c)) == 0) {
        uint64_t now_ms = clock_now_ms();
        if (c->bytes_out != before) {
            before = c->bytes_out;
            until_ms = now_ms + timeout_ms;
        }
        if (now_ms >= until_ms)
            return false;
        struct pollfd fd = {.fd = c->fd, .events = POLLOUT};
        (void)poll(&fd, 1, (int)(until_ms - now_ms));
    }
    return rc > 0;
}

static void tell_port(struct peerage *p, struct permit *m, uint8_t kind,
                      const struct loaded *items, unsigned count, struct blob *error)
{
    struct word *w = mem_zalloc(sizeof *w);
    struct turn t;

    if (w && kind == MESSAGE_LOADED && !(w->items = bundle_new(items, count)))
        kind = MESSAGE_RETURNED;        /* no memory to keep it: the next one loads */
    if (!w) {
        permit_free(m);                 /* the owner's deadline ends it */
        return;
    }
    w->kind = kind;
    w->permit = m;
    w->error = blob_ref(error);
    turn_begin(p, &t);
    list_add_tail(&m->port->words, &w->of);
    turn_ring(&t, m->port);
    turn_end(p, &t);
}

void permit_say(struct peerage *p, struct permit *m, uint8_t kind, const struct loaded *items,
                unsigned count, struct blob *error)
{
    if (m->port) {
        tell_port(p, m, kind, items, count, error);
        return;
    }
    struct stream *c = m->c;
    bool good = permit_queue(m, c, kind, items, count, error) &&
                flush_within(c, p->settings.timeout_ms);
    permit_free(m);
    if (good)
        pool_give(&p->pool, c, clock_now_ms());
    else
        stream_free(c);        /* which the owner takes as the loss of the permit */
}

void word_free(struct word *w)
{
    list_remove(&w->of);
    bundle_unref(w->items);
    blob_unref(w->error);
    permit_free(w->permit);
    mem_free(w);
}
