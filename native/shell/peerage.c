/* The public functions: life, hits, loads, and looking at it. Asking stands in ask.c and
 * port_ask.c, counters in stats.c. Every one of them first asks whether the node is
 * inherited from a fork's parent (shell.h).
 */
#include "peerage.h"

#include <openssl/crypto.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/random.h>

#include "core/err.h"
#include "core/mem.h"
#include "shell/ask.h"
#include "shell/change.h"
#include "shell/clock.h"
#include "shell/exchange.h"
#include "shell/fork.h"
#include "shell/loop.h"
#include "shell/permit.h"
#include "shell/redis_link.h"
#include "shell/shell.h"
#include "shell/turn.h"
#include "shell/wait.h"

#define X(name, number, text) \
    _Static_assert((int)PEERAGE_E_##name == (int)ERR_##name, "the public numbers are core's");
PEERAGE_ERRORS(X)
#undef X
_Static_assert((int)PEERAGE_TIER_LOAD == (int)TIER_LOAD, "the public tiers are core's");
_Static_assert((int)PEERAGE_ERROR == (int)VALUE_ERROR, "the public value types are core's");
_Static_assert(sizeof((struct peerage_member){0}.address) == ADDR_TEXT_MAX, "room for an address");

#define LOOKING_MS_MAX 3000u        /* a start waits no longer, whatever membership says */

const char *peerage_error_text(int code)
{
    return err_text(code);
}

/* Life. */

void peerage_options_default(struct peerage_options *o)
{
    *o = (struct peerage_options){
        .port = 7946,
        .port_range = 16,
        .listen = "0.0.0.0",
        .label = "default",
        .timeout_s = 0.25,
        .load_timeout_s = 10,
        .heir = 1,
        .coordinate = 1,
        .unix_sockets = 1,
        .spin_us = 100,
        .cache_bytes = 64u << 20,
        .redis_prefix = "peerage:v1",
    };
}

/* OpenSSL without its atexit handler: threads of ours, or of a server that exits in a hurry,
 * may still be sealing when that frees its tables (P4). */
static bool init_libraries(void)
{
    return OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL) == 1 && sodium_init() >= 0 &&
           fork_init();
}

static void init_locks(struct peerage *p)
{
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->life, NULL);
    wait_init(&p->take);
    wait_init(&p->changed);
    list_init(&p->ports);
    list_init(&p->idle_ports);
    for (unsigned b = 0; b < PERMIT_BUCKETS; b++)
        list_init(&p->permits[b]);
    p->loop_wakes_ms = NEVER_MS;
    p->away_ms = NEVER_MS;
    notice_init(&p->notices);
    mailbox_init(&p->mailbox);
    pool_init(&p->pool);
    atomic_init(&p->state, PEERAGE_NEW);
}

static int make_node(struct peerage *p)
{
    struct node_config c = {
        .serve = {
            .label = span_text(p->settings.label),
            .cache_bytes = p->settings.cache_bytes,
            .timeout_ms = p->settings.timeout_ms,
            .load_timeout_ms = p->settings.load_timeout_ms,
            .heir = p->settings.heir,
        },
        .wall_ms = clock_wall_ms(),
    };

    do {
        if (getentropy(&p->node_id, sizeof p->node_id) < 0)
            return ERR_SYSTEM;
    } while (p->node_id == 0);
    c.node_id = p->node_id;
    if (getentropy(&c.seed, sizeof c.seed) < 0 ||
        getentropy(c.serve.hash_key, sizeof c.serve.hash_key) < 0)
        return ERR_SYSTEM;
    return node_new(&p->node, &c, clock_now_ms());
}

int peerage_new(const struct peerage_options *o, peerage **out, char line[PEERAGE_LINE_MAX])
{
    struct peerage *p;
    int rc;

    line[0] = 0;
    if (!init_libraries()) {
        snprintf(line, PEERAGE_LINE_MAX, "OpenSSL or libsodium could not be initialised");
        return ERR_SYSTEM;
    }
    p = mem_zalloc(sizeof *p);
    if (!p)
        return ERR_NOMEM;
    p->fork_count = peerage_fork_count;
    rc = settings_read(&p->settings, o, line);
    if (rc < 0) {
        mem_free(p);
        return rc;
    }
    init_locks(p);
    rc = make_node(p);
    if (rc < 0) {
        peerage_free(p);
        return rc;
    }
    const char *missing = redis_link_missing(p->settings.redis.tls);
    if (p->settings.redis_given && missing)
        notice_log(&p->notices, LOG_WARNING, "%s", missing);
    *out = p;
    return 0;
}

static void wait_looking(struct peerage *p)
{
    uint64_t until_ms = clock_now_ms() + LOOKING_MS_MAX;

    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->state) == PEERAGE_LOOKING &&
           wait_until(&p->changed, &p->lock, until_ms))
        ;
    pthread_mutex_unlock(&p->lock);
}

/* Does anybody share its knowledge with this node? */
static bool has_found_peers(struct peerage *p)
{
    pthread_mutex_lock(&p->lock);
    const struct view *v = serve_view(node_serve(p->node));
    bool found = v && v->count > 1;
    pthread_mutex_unlock(&p->lock);
    return found;
}

static int start(struct peerage *p, bool demand, char line[PEERAGE_LINE_MAX])
{
    int rc = 0;

    line[0] = 0;
    if (shell_is_foreign(p))
        return ERR_FORKED;
    bool redis = p->settings.redis_given && !redis_link_missing(p->settings.redis.tls);
    if (!p->settings.enabled && !redis)
        return 0;
    pthread_mutex_lock(&p->life);
    if (p->closed)
        rc = ERR_CLOSED;
    else if (!p->loop)
        rc = loop_start(p, line);
    if (rc < 0 && !line[0])
        snprintf(line, PEERAGE_LINE_MAX, "The peer layer can't start: %s", err_text(rc));
    pthread_mutex_unlock(&p->life);
    if (rc < 0)
        return rc;
    wait_looking(p);
    if (!demand || !redis || has_found_peers(p) || redis_wait(p, line))
        return 0;
    if (!p->settings.enabled) {
        line[0] = 0;            /* the log has it; a worker comes up without Redis too */
        return 0;
    }
    pthread_mutex_lock(&p->life);
    loop_stop(p);
    atomic_store(&p->state, PEERAGE_NEW);
    pthread_mutex_unlock(&p->life);
    return ERR_UNREACHABLE;
}

int peerage_start(peerage *p, char line[PEERAGE_LINE_MAX])
{
    return start(p, true, line);
}

int peerage_start_quietly(peerage *p, char line[PEERAGE_LINE_MAX])
{
    return start(p, false, line);
}

/* Out of the contest; then let the flights land and hand on what others lack (O8). */
static void drain(struct peerage *p, uint32_t drain_ms)
{
    uint64_t until_ms = clock_now_ms() + (drain_ms < DRAIN_MS_MAX ? drain_ms : DRAIN_MS_MAX);

    loop_drain(p);
    pthread_mutex_lock(&p->lock);
    while ((serve_flights(node_serve(p->node)) > 0 || !serve_handed_on(node_serve(p->node)) ||
            atomic_load(&p->state) != PEERAGE_DRAINING) &&
           wait_until(&p->changed, &p->lock, until_ms))
        ;
    pthread_mutex_unlock(&p->lock);
}

/* No new questions; everyone who waits goes home. */
static void send_home(struct peerage *p)
{
    struct turn t;

    turn_begin(p, &t);
    p->closed = true;
    LIST_FOREACH(&p->ports, l) {
        struct port *port = CONTAINER_OF(l, struct port, of_node);
        port->closed = true;
        turn_ring(&t, port);
    }
    pthread_cond_broadcast(&p->take);
    turn_end(p, &t);
}

void peerage_close(peerage *p, uint32_t drain_ms)
{
    if (shell_is_foreign(p))
        return;
    pthread_mutex_lock(&p->life);
    if (!p->closed) {
        if (p->loop && p->settings.enabled && drain_ms && atomic_load(&p->state) != PEERAGE_CONFLICT)
            drain(p, drain_ms);
        send_home(p);
        loop_stop(p);
        atomic_store(&p->state, PEERAGE_CLOSED);
        notice_close(&p->notices);
    }
    pthread_mutex_unlock(&p->life);
}

static void free_permits(struct peerage *p)
{
    for (unsigned b = 0; b < PERMIT_BUCKETS; b++) {
        LIST_FOREACH_SAFE(&p->permits[b], l) {
            struct permit *m = CONTAINER_OF(l, struct permit, of);
            list_remove(l);
            stream_free(m->c);
            permit_free(m);
        }
    }
}

void peerage_free(peerage *p)
{
    if (!p || shell_is_foreign(p))
        return;
    if (p->node)
        peerage_close(p, 0);
    free_permits(p);
    LIST_FOREACH_SAFE(&p->idle_ports, l) {
        list_remove(l);
        port_unref(CONTAINER_OF(l, struct port, of_node));
    }
    if (p->node)
        node_free(p->node);
    pool_deinit(&p->pool);
    mailbox_deinit(&p->mailbox);
    notice_deinit(&p->notices);
    pthread_cond_destroy(&p->changed);
    pthread_cond_destroy(&p->take);
    pthread_mutex_destroy(&p->life);
    pthread_mutex_destroy(&p->lock);
    settings_deinit(&p->settings);
    mem_free(p);
}

void peerage_forget(peerage *p)
{
    (void)p;        /* given up on purpose: its locks may be held for ever */
}

int peerage_state(const peerage *p)
{
    return shell_is_foreign(p) ? PEERAGE_CLOSED : atomic_load(&p->state);
}

/* Hits. */

static void fill_hit(const struct store_hit *hit, bool borrow, uint64_t now_ms,
                     struct peerage_answer *out)
{
    void *foreign = hit->blob && hit->blob->release ? hit->blob->owner : NULL;

    out->kind = PEERAGE_VALUE;
    out->error = 0;
    out->value_type = hit->value_type;
    out->tier = PEERAGE_TIER_LOCAL;
    out->stale = 0;
    out->bytes = hit->bytes.bytes;
    out->blob = borrow && foreign ? NULL : (peerage_blob *)blob_ref(hit->blob);
    out->foreign = foreign;
    out->at = hit->bytes.at;
    if (!hit->blob) {
        out->at = out->inline_bytes;
        memcpy(out->inline_bytes, hit->bytes.at, hit->bytes.bytes);
    }
    out->age_ms = now_ms > hit->stored_ms ? now_ms - hit->stored_ms : 0;
    out->ttl_ms = hit->expires_ms == NEVER_MS ? UINT64_MAX : hit->expires_ms - now_ms;
    out->load_id = 0;
    out->chain_count = 0;
}

static inline int get(peerage *p, struct span key, bool borrow, struct peerage_answer *out)
{
    struct store_hit hit;
    uint64_t now_ms;

    if (shell_is_foreign(p))
        return ERR_FORKED;
    now_ms = clock_coarse_ms();
    pthread_mutex_lock(&p->lock);
    bool found = now_ms < p->away_ms &&
                 serve_get(node_serve(p->node), key, now_ms, &hit);
    if (found) {
        fill_hit(&hit, borrow, now_ms, out);
        out->generation = store_generation(serve_store(node_serve(p->node)));
        out->until_ms = hit.expires_ms;
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

int peerage_get(peerage *p, const void *key, size_t key_bytes, struct peerage_answer *out)
{
    return get(p, span_of(key, key_bytes), false, out);
}

int peerage_get_borrowed(peerage *p, const void *key, size_t key_bytes,
                         struct peerage_answer *out)
{
    return get(p, span_of(key, key_bytes), true, out);
}

int peerage_hit_again(peerage *p, uint64_t generation, uint64_t until_ms)
{
    if (shell_is_foreign(p))
        return 0;
    uint64_t now_ms = clock_coarse_ms();
    if (now_ms >= until_ms ||
        now_ms >= atomic_load_explicit(&p->away_ms, memory_order_acquire) ||
        generation != store_generation(serve_store(node_serve(p->node))))
        return 0;
    /* callers take turns: a load and a store are enough, and take a quarter of the time */
    uint64_t hits = atomic_load_explicit(&p->hits_again, memory_order_relaxed);
    atomic_store_explicit(&p->hits_again, hits + 1, memory_order_relaxed);
    return 1;
}

void peerage_ask(peerage *p, const struct peerage_ask *in, struct peerage_answer *out,
                 int (*interrupted)(void *), void *argument)
{
    if (shell_is_foreign(p)) {
        exchange_trouble(out, ERR_FORKED);
    } else if (in->flags & PEERAGE_NO_WAIT) {
        if (peerage_get(p, in->key, in->key_bytes, out) != 1) {
            exchange_clear(out);
            out->kind = PEERAGE_MISS;
        }
    } else {
        ask_drive(p, in, out, interrupted, argument);
    }
}

void peerage_blob_free(peerage_blob *b)
{
    blob_unref((struct blob *)b);
}

peerage_blob *peerage_blob_ref(peerage_blob *b)
{
    return (peerage_blob *)blob_ref((struct blob *)b);
}

int peerage_swap(peerage *p, const void *key, size_t key_bytes, peerage_blob *old_blob,
                 const void *at, size_t bytes, void *owner)
{
    struct blob *old = (struct blob *)old_blob, *fresh;
    struct store_dropped dropped = {.count = 0};

    if (shell_is_foreign(p) || !old || !(fresh = blob_alias(span_of(at, bytes), owner,
                                                            change_release)))
        return 0;
    if (atomic_load_explicit(&old->digested, memory_order_acquire))
        blob_remember(fresh, old->digest);
    pthread_mutex_lock(&p->lock);
    bool swapped = store_swap(serve_store(node_serve(p->node)), span_of(key, key_bytes), old, fresh,
                              &dropped);
    pthread_mutex_unlock(&p->lock);
    if (!swapped)
        fresh->release = NULL;      /* nothing was taken */
    blob_unref(fresh);
    for (unsigned i = 0; i < dropped.count; i++)
        blob_unref(dropped.blobs[i]);
    return swapped;
}

/* Loads. */

static void unref_all(struct loaded *items, unsigned count_items)
{
    for (unsigned i = 0; i < count_items; i++)
        blob_unref(items[i].blob);
    mem_free(items);
}

/* Every owner is taken, also of what is not used. NULL with *rc. */
static struct loaded *read_items(struct peerage *p, const struct peerage_item *items,
                                 unsigned count_items, int *rc)
{
    struct loaded *out = mem_zalloc(count_items * sizeof *out);

    *rc = out ? 0 : ERR_NOMEM;
    for (unsigned i = 0; i < count_items; i++) {
        if (*rc < 0)
            change_release(items[i].owner);
        else
            *rc = change_loaded(p, &items[i], &out[i]);
    }
    if (*rc == 0)
        return out;
    if (out)
        unref_all(out, count_items);
    return NULL;
}

/* Tell core what came of the load, and the owner that had given the permit, if one had. */
static void say(struct peerage *p, uint64_t load_id, uint8_t kind, const struct loaded *items,
                unsigned count_items, struct blob *error, uint32_t negative_ttl_ms, bool share)
{
    struct serve *s = node_serve(p->node);
    struct turn t;

    turn_begin(p, &t);
    struct permit *permit = permit_take(p, load_id);
    if (kind == MESSAGE_LOADED)
        serve_finish(s, load_id, items, count_items, t.now_ms, &t.effects);
    else if (kind == MESSAGE_RAISED)
        serve_fail(s, load_id, error, negative_ttl_ms, t.now_ms, &t.effects);
    else
        serve_lose(s, load_id, t.now_ms, &t.effects);
    turn_end(p, &t);
    if (permit)
        permit_say(p, permit, share ? kind : MESSAGE_RETURNED, items, share ? count_items : 0,
                   share ? error : NULL);
}

int peerage_finish(peerage *p, uint64_t load_id, const struct peerage_item *items,
                   unsigned count_items)
{
    struct loaded *loaded;
    bool too_big = false;
    int rc;

    if (shell_is_foreign(p) || count_items == 0) {
        for (unsigned i = 0; i < count_items; i++)
            change_release(items[i].owner);
        return shell_is_foreign(p) ? ERR_FORKED : ERR_MISSING;
    }
    loaded = read_items(p, items, count_items, &rc);
    if (!loaded) {
        say(p, load_id, MESSAGE_RETURNED, NULL, 0, NULL, 0, true);
        return rc;
    }
    for (unsigned i = 0; i < count_items; i++)
        too_big |= loaded[i].blob->bytes > FRAME_BYTES_MAX - HEAD_BYTES_MAX;
    say(p, load_id, MESSAGE_LOADED, loaded, count_items, NULL, 0, !too_big);
    unref_all(loaded, count_items);
    return too_big ? ERR_TOO_BIG : 0;
}

int peerage_fail(peerage *p, uint64_t load_id, const void *error, size_t bytes,
                 uint32_t negative_ttl_ms)
{
    struct blob *blob;

    if (shell_is_foreign(p))
        return ERR_FORKED;
    if (bytes > FRAME_BYTES_MAX - HEAD_BYTES_MAX)
        return ERR_TOO_BIG;
    blob = blob_copy(span_of(error, bytes));
    if (!blob) {
        say(p, load_id, MESSAGE_RETURNED, NULL, 0, NULL, 0, true);
        return ERR_NOMEM;
    }
    say(p, load_id, MESSAGE_RAISED, NULL, 0, blob, negative_ttl_ms, true);
    blob_unref(blob);
    return 0;
}

int peerage_lose(peerage *p, uint64_t load_id)
{
    if (shell_is_foreign(p))
        return ERR_FORKED;
    say(p, load_id, MESSAGE_RETURNED, NULL, 0, NULL, 0, true);
    return 0;
}

int peerage_register(peerage *p, const void *loader, size_t bytes, int is_async)
{
    struct turn t;

    if (shell_is_foreign(p))
        return ERR_FORKED;
    if (bytes < 1 || bytes > LOADER_BYTES_MAX)
        return ERR_TOO_BIG;
    turn_begin(p, &t);
    int rc = serve_register(node_serve(p->node), span_of(loader, bytes), is_async);
    turn_end(p, &t);
    return rc;
}

int peerage_refresh_early(peerage *p, const void *loader, size_t bytes, uint32_t early_ms)
{
    struct turn t;

    if (shell_is_foreign(p))
        return ERR_FORKED;
    turn_begin(p, &t);
    serve_set_early(node_serve(p->node), span_of(loader, bytes), early_ms);
    turn_end(p, &t);
    return 0;
}

/* One round under the lock: 1 taken, 0 nothing there. */
static int take_once(struct peerage *p, struct peerage_load *out)
{
    struct turn t;
    int rc = 0;

    turn_begin(p, &t);
    const struct flight *f = serve_take(node_serve(p->node), false, NULL, t.now_ms, &t.effects);
    if (f && change_load(p, f, out))
        rc = 1;
    else if (f)
        serve_lose(node_serve(p->node), f->id, t.now_ms, &t.effects);
    turn_end(p, &t);
    return rc;
}

int peerage_take(peerage *p, uint32_t timeout_ms, struct peerage_load *out)
{
    uint64_t until_ms = clock_now_ms() + timeout_ms;
    int rc = 0;

    if (shell_is_foreign(p))
        return ERR_FORKED;
    for (bool in_time = true; rc == 0 && in_time;) {
        rc = take_once(p, out);
        if (rc)
            break;
        pthread_mutex_lock(&p->lock);
        if (p->closed) {
            rc = ERR_CLOSED;
        } else if (p->takes_owed == 0) {
            p->takers_parked++;
            in_time = wait_until(&p->take, &p->lock, until_ms);
            p->takers_parked--;
        }
        /* What is owed is owed to whoever looks next, and that is this thread. */
        if (p->takes_owed > 0)
            p->takes_owed--;
        pthread_mutex_unlock(&p->lock);
    }
    return rc;
}

/* Looking at it. */

static void describe(const struct view_member *m, struct peerage_member *out)
{
    memset(out, 0, sizeof *out);
    addr_format(&m->addr, out->address);
    out->node_id = m->node_id;
    out->started_ms = m->started_ms;
    out->self = m->self;
    out->live = 1;
    out->coordinates = m->coordinates;
    out->warming = m->warming;
    out->draining = m->draining;
    out->observer = m->observer;
    out->owns = m->contends;
}

/* A const node still has a lock to take. */
static struct peerage *lock_of(const peerage *p)
{
    struct peerage *locked = (struct peerage *)(uintptr_t)p;

    pthread_mutex_lock(&locked->lock);
    return locked;
}

int peerage_members(const peerage *p, struct peerage_member *out, int room)
{
    int found = 0;

    if (shell_is_foreign(p))
        return ERR_FORKED;
    struct peerage *locked = lock_of(p);
    const struct view *v = serve_view(node_serve(p->node));
    for (; v && found < (int)v->count; found++) {
        if (found < room)
            describe(&v->members[found], &out[found]);
    }
    pthread_mutex_unlock(&locked->lock);
    return found;
}

int peerage_owner(const peerage *p, const void *channel, size_t bytes, struct peerage_member *out,
                  uint64_t *score, int room)
{
    unsigned at[RANKS_MAX], found = 0;

    if (shell_is_foreign(p))
        return ERR_FORKED;
    struct peerage *locked = lock_of(p);
    const struct view *v = serve_view(node_serve(p->node));
    uint64_t hash = serve_channel_hash(node_serve(p->node), span_of(channel, bytes));
    if (room > 0)
        found = serve_standing(node_serve(p->node), hash,
                               room < RANKS_MAX ? (unsigned)room : RANKS_MAX, at);
    for (unsigned i = 0; i < found; i++) {
        describe(&v->members[at[i]], &out[i]);
        if (score)
            score[i] = rendezvous_score(hash, v->members[at[i]].hash);
    }
    pthread_mutex_unlock(&locked->lock);
    return (int)found;
}

int peerage_coordinator(const peerage *p, struct peerage_member *out)
{
    int found = 0;

    if (shell_is_foreign(p))
        return ERR_FORKED;
    struct peerage *locked = lock_of(p);
    const struct view *v = serve_view(node_serve(p->node));
    if (v && v->coordinator >= 0) {
        describe(&v->members[v->coordinator], out);
        found = 1;
    }
    pthread_mutex_unlock(&locked->lock);
    return found;
}

void peerage_address(const peerage *p, char out[56])
{
    out[0] = 0;
    if (shell_is_foreign(p))
        return;
    struct peerage *locked = lock_of(p);
    if (p->self.port)
        addr_format(&p->self, out);
    pthread_mutex_unlock(&locked->lock);
}

/* Sets, deletes, the attendant. */

int peerage_change(peerage *p, const struct peerage_ask *name, const struct peerage_item *item,
                   int by_channel, struct peerage_report *report)
{
    if (shell_is_foreign(p))
        return ERR_FORKED;
    return ask_change(p, name, item, by_channel, report);
}

int peerage_attend(peerage *p, uint32_t timeout_ms, struct peerage_notice *out)
{
    if (shell_is_foreign(p))
        return ERR_FORKED;
    return notice_take(&p->notices, timeout_ms, out);
}

void peerage_ring_release(peerage *p)
{
    if (!shell_is_foreign(p))
        notice_release(&p->notices);
}
