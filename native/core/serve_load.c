/* A load's life where this node acts as the owner (see serve.h):
 *
 *   begin -> [peek at who may have it] -> [second tier] -> who loads? -> finish | fail | lose
 *
 * Who loads: a caller of this process that waits, in its own thread; else a registered
 * loader, queued until Python takes it; else a caller of this process on an event loop;
 * else a remote asker, by permit (O6); else nobody, and all who wait are told "miss".
 */
#include "serve_state.h"

#include "err.h"
#include "limits.h"
#include "mem.h"

/* Registered loaders. */

const struct loader *loader_find(const struct serve *s, struct span name)
{
    if (name.bytes == 0)
        return NULL;
    LIST_FOREACH((struct list *)&s->loaders, link) {
        struct loader *l = CONTAINER_OF(link, struct loader, link);
        if (span_equal(span_of(l->name, l->bytes), name))
            return l->async && !s->start_loop ? NULL : l;
    }
    return NULL;
}

int serve_register(struct serve *s, struct span name, bool async)
{
    LIST_FOREACH(&s->loaders, link) {
        struct loader *l = CONTAINER_OF(link, struct loader, link);
        if (span_equal(span_of(l->name, l->bytes), name)) {
            l->async = async;
            return 0;
        }
    }
    struct loader *l = mem_alloc(sizeof *l + name.bytes);
    if (!l)
        return ERR_NOMEM;
    l->async = async;
    l->early_ms = 0;
    l->bytes = name.bytes;
    memcpy(l->name, name.at, name.bytes);
    list_add_head(&s->loaders, &l->link);
    return 0;
}

void serve_set_early(struct serve *s, struct span name, uint32_t early_ms)
{
    LIST_FOREACH(&s->loaders, link) {
        struct loader *l = CONTAINER_OF(link, struct loader, link);
        if (span_equal(span_of(l->name, l->bytes), name))
            l->early_ms = early_ms;
    }
}

void serve_start_loop(struct serve *s, bool there) { s->start_loop = there; }

/* Begin. */

static uint32_t load_timeout_of(const struct serve *s, const struct flight *f)
{
    return f->load_timeout_ms ? f->load_timeout_ms : s->config.load_timeout_ms;
}

void run_here(struct serve *s, struct flight *f, void *port, bool run_inline, uint64_t now_ms)
{
    list_remove(&f->queue);
    f->state = FLIGHT_RUNNING;
    f->port = port;
    f->stay = run_inline;       /* a thread can't be stopped: its value is stored (O11) */
    f->holder = NULL;
    f->until_ms = now_ms + load_timeout_of(s, f);
    s->stats.loads_started++;
    due_by(s, f->until_ms);
}

/* Tell the remote waiters that their load runs, and keep telling (O5). */
static void accept_all(struct serve *s, struct flight *f, uint8_t kind, uint64_t now_ms,
                       struct effects *fx)
{
    bool remote = false;

    LIST_FOREACH(&f->waiters, link) {
        struct waiter *w = CONTAINER_OF(link, struct waiter, link);
        if (!w->remote || w == f->holder)
            continue;
        struct message m = {.kind = kind, .request_id = w->request_id};
        effects_answer(fx, w->conn_id, &m, NULL);
        w->accepted = true;
        remote = true;
    }
    f->working_ms = remote ? now_ms + WORKING_EVERY_MS : NEVER_MS;
    due_by(s, f->working_ms);
}

static struct waiter *who_loads(struct flight *f, bool remote, bool run_inline)
{
    LIST_FOREACH(&f->waiters, link) {
        struct waiter *w = CONTAINER_OF(link, struct waiter, link);
        if (w->loads && w->remote == remote && (remote || w->run_inline == run_inline))
            return w;
    }
    return NULL;
}

static void permit(struct serve *s, struct flight *f, struct waiter *w, uint64_t now_ms,
                   struct effects *fx)
{
    struct message m = {.kind = MESSAGE_PERMIT, .request_id = w->request_id,
                        .delete_id = f->delete_id};

    f->state = FLIGHT_PERMITTED;
    f->holder = w;
    f->until_ms = now_ms + load_timeout_of(s, f);
    w->accepted = true;
    w->until_ms = NEVER_MS;
    due_by(s, f->until_ms);
    s->stats.permits_granted++;
    effects_answer(fx, w->conn_id, &m, NULL);
    accept_all(s, f, MESSAGE_ACCEPTED, now_ms, fx);
}

static void hand_to_thread(struct serve *s, struct flight *f, struct waiter *w, uint64_t now_ms,
                           struct effects *fx)
{
    struct answer load = {.outcome = OUTCOME_LOAD, .load_id = f->id};

    run_here(s, f, w->port, true, now_ms);
    complete(s, w, &load, now_ms, fx);
    accept_all(s, f, MESSAGE_ACCEPTED, now_ms, fx);
}

static void enqueue(struct serve *s, struct flight *f, bool async, struct effects *fx)
{
    f->state = FLIGHT_QUEUED;
    f->async = async;
    f->until_ms = NEVER_MS;
    list_add_tail(async ? &s->queue_async : &s->queue_sync, &f->queue);
    effects_loads(fx, async);
}

void choose_loader(struct serve *s, struct flight *f, uint64_t now_ms, struct effects *fx)
{
    const struct loader *registered = loader_find(s, f->loader);
    struct waiter *w;

    if ((w = who_loads(f, false, true))) {
        hand_to_thread(s, f, w, now_ms, fx);
    } else if (registered && !(registered->async && who_loads(f, false, false))) {
        enqueue(s, f, registered->async, fx);
    } else if ((w = who_loads(f, false, false))) {
        run_here(s, f, w->port, false, now_ms);
        effects_load_here(fx, f->id, w->port, w->token);
        accept_all(s, f, MESSAGE_ACCEPTED, now_ms, fx);
    } else if ((w = who_loads(f, true, false))) {
        permit(s, f, w, now_ms, fx);
    } else {
        struct answer miss = {.outcome = OUTCOME_MISS};
        complete_all(s, f, &miss, now_ms, fx);
        s->stats.served_misses++;
        end_flight(s, f, fx);
    }
}

/* All peeks of a flight may take this part of PEER_TIMEOUT: the asker behind it has patience
 * for one timeout in all, and the loader is still to be found in it. */
#define PEEK_PART 3u

/* For so long, as draining may last, what a newcomer is to own may be on its way to it. */
#define HANDED_ON_MS 5000u

/* A node that is new has only just heard of everybody: to it a newcomer is one that started no
 * more than that before it did, by their walls' clocks. */
static bool is_newcomer(const struct view *v, const struct view_member *m, uint64_t now_ms)
{
    return now_ms - m->contends_ms < HANDED_ON_MS &&
           (v->self < 0 || m->started_ms + HANDED_ON_MS > v->members[v->self].started_ms);
}

static void look_at(struct serve *s, struct flight *f, const struct view_member *m,
                    uint64_t now_ms)
{
    if (!m->self && !is_silent(s, &m->addr, now_ms))
        f->peers[f->peer_count++] = (struct flight_peer){.addr = m->addr, .node_id = m->node_id};
}

/* Whom to peek at (O3). Who owned the channel until it began to drain (O8), or others were past
 * warming: it has what it has not handed on yet, and its load may still run. Then the heir if
 * this node owns the channel, else the owner; only while the members changed less than the
 * entry's whole life ago: later, it was owner all that time. Nodes often come several at a time:
 * one that just came may lack what its forerunner has, so that one is next, and so on back to who
 * was there before them. */
static void choose_peers(struct serve *s, struct flight *f, bool owner_silent, uint64_t now_ms)
{
    const struct view *v = s->view;
    unsigned at[RANKS_MAX];

    if (!v || !s->config.heir)
        return;
    int departing = owner_silent ? -1 : view_departing(v, f->channel_hash);
    if (departing >= 0)
        look_at(s, f, &v->members[departing], now_ms);
    uint64_t life_ms = (uint64_t)f->ttl_ms + f->stale_ms;
    if (f->ttl_ms != UINT32_MAX && now_ms - v->changed_ms >= life_ms)
        return;
    if (serve_standing(s, f->channel_hash, 2, at) < 2)
        return;
    bool owns = v->members[at[0]].self;
    if (!owns && owner_silent)
        return;
    const struct view_member *m = &v->members[at[owns]];
    look_at(s, f, m, now_ms);
    while (f->peer_count < FLIGHT_PEERS_MAX && is_newcomer(v, m, now_ms)) {
        int former = view_former(v, f->channel_hash, m);
        if (former < 0)
            return;
        m = &v->members[former];
        look_at(s, f, m, now_ms);
    }
}

static void beyond_peers(struct serve *s, struct flight *f, uint64_t now_ms, struct effects *fx)
{
    if (!tier_first(s, f, f->wants, now_ms, fx))
        choose_loader(s, f, now_ms, fx);
}

/* The next of its peers, within the time that all of them have; after them the second tier. One
 * whose load was waited for has looked at the others itself. */
static void peek(struct serve *s, struct flight *f, uint64_t now_ms, struct effects *fx)
{
    if (f->peeks == f->peer_count || f->waited || now_ms >= f->until_ms) {
        beyond_peers(s, f, now_ms, fx);
        return;
    }
    const struct flight_peer *peer = &f->peers[f->peeks++];
    struct message m = {
        .kind = MESSAGE_PEEK,
        .key = f->key,
        .channel = f->channel,
        .budget_ms = (uint32_t)(f->until_ms - now_ms),
        .delete_id = f->delete_id,
    };
    f->asked_ms = now_ms;
    s->stats.peeks_asked++;
    effects_call(fx, f->id, &peer->addr, peer->node_id,
                 s->config.timeout_ms + load_timeout_of(s, f), &m, NULL);
}

void begin_owned(struct serve *s, struct flight *f, bool owner_silent, uint64_t now_ms,
                 struct effects *fx)
{
    if (f->wants == TIER_WANT_NONE && is_alone(s))
        f->wants = TIER_WANT_LEASE;
    else if (f->wants == TIER_WANT_NONE && owner_silent)
        f->wants = TIER_WANT_VALUE;
    choose_peers(s, f, owner_silent, now_ms);
    if (f->peer_count == 0) {
        beyond_peers(s, f, now_ms, fx);
        return;
    }
    f->state = FLIGHT_PEEKING;
    f->until_ms = now_ms + s->config.timeout_ms / PEEK_PART;
    due_by(s, f->until_ms);
    peek(s, f, now_ms, fx);
}

static bool peek_landed(struct serve *s, struct flight *f, const struct message *m,
                        struct blob *value, uint64_t now_ms, struct effects *fx)
{
    if (m->kind != MESSAGE_VALUE || m->flags & MESSAGE_STALE || m->ttl_ms == 0)
        return false;
    /* Of a delete that the peer does not know, its value may be from before it. One that only
     * the peer knows, as where this node was away, does no harm: the value is for who waits,
     * and not stored (D2). */
    uint64_t known = delete_id_of(s, f->key, f->channel, now_ms);
    if (known != 0 && m->delete_id != known)
        return false;
    struct loaded item = {.key = f->key, .blob = value, .value_type = m->value_type,
                          .ttl_ms = m->ttl_ms, .stale_ms = m->stale_ms, .age_ms = m->age_ms};
    /* Its time is counted from the question on (O14); where a load was waited for, the answer
     * was made long after it. */
    uint64_t since_ms = f->waited ? now_ms : f->asked_ms;
    s->stats.peeks_hit++;
    land(s, f, &item, 1, m->delete_id, TIER_HEIR, since_ms, now_ms, fx);
    return true;
}

bool peeked(struct serve *s, uint64_t flight_id, const struct message *m, struct blob *value,
            uint64_t now_ms, struct effects *fx)
{
    struct flight *f = flights_by_id(s->flights, flight_id);

    if (!f || f->state != FLIGHT_PEEKING)
        return true;
    if (m && (m->kind == MESSAGE_ACCEPTED || m->kind == MESSAGE_WORKING)) {
        /* Said again every second; three words missing and the peer is silent (query.c). */
        f->waited = true;
        f->until_ms = now_ms + min_u64(load_timeout_of(s, f),
                                       WORKING_MISSED_MAX * WORKING_EVERY_MS + s->config.timeout_ms);
        due_by(s, f->until_ms);
        LIST_FOREACH(&f->waiters, link)
            CONTAINER_OF(link, struct waiter, link)->until_ms = NEVER_MS;
        accept_all(s, f, MESSAGE_ACCEPTED, now_ms, fx);
        return true;
    }
    if (!m)
        serve_peer(s, &f->peers[f->peeks - 1].addr, PEER_SILENT, now_ms);
    if (!m || !peek_landed(s, f, m, value, now_ms, fx))
        peek(s, f, now_ms, fx);
    return true;
}

/* Serve what is stale, load behind it; only where the loader is registered here. */
void refresh_behind(struct serve *s, const struct message *ask, uint64_t now_ms,
                    struct effects *fx)
{
    const struct loader *registered = loader_find(s, ask->loader);

    if (!registered || flights_find(s->flights, ask->key, FLIGHT_OWNS))
        return;
    struct flight *f = flights_add(s->flights, FLIGHT_OWNS, ask,
                                   rendezvous_channel(&s->rendezvous, message_channel(ask)),
                                   now_ms);
    if (!f)
        return;
    f->delete_id = delete_id_of(s, f->key, f->channel, now_ms);
    f->stay = true;
    if (!tier_first(s, f, is_alone(s) ? TIER_WANT_LEASE : TIER_WANT_NONE, now_ms, fx))
        enqueue(s, f, registered->async, fx);
}

/* Take. */

const struct flight *serve_take(struct serve *s, bool async, void *port, uint64_t now_ms,
                                struct effects *fx)
{
    struct list *queue = async ? &s->queue_async : &s->queue_sync;

    if (list_empty(queue))
        return NULL;
    struct flight *f = CONTAINER_OF(queue->next, struct flight, queue);
    bool stay = f->stay || !async;
    run_here(s, f, port, stay, now_ms);
    accept_all(s, f, MESSAGE_ACCEPTED, now_ms, fx);
    return f;
}

unsigned serve_chain(const struct serve *s, uint64_t load_id, uint64_t out[CHAIN_MAX])
{
    const struct flight *f = flights_by_id(s->flights, load_id);
    unsigned count = 0;

    if (!f)
        return 0;
    /* A question whose chain is full has been refused as recursive: there is room. */
    for (; count < f->chain_count && count < CHAIN_MAX - 1; count++)
        out[count] = f->chain[count];
    out[count++] = rendezvous_channel(&s->rendezvous, f->key);
    return count;
}

size_t serve_waiters(const struct serve *s, uint64_t load_id)
{
    const struct flight *f = flights_by_id(s->flights, load_id);
    size_t count = 0;

    if (f) {
        LIST_FOREACH((struct list *)&f->waiters, link)
            count++;
    }
    return count;
}

/* Ends. */

static uint64_t after(uint64_t since_ms, uint32_t ms)
{
    return ms == UINT32_MAX ? NEVER_MS : since_ms + ms;
}

struct store_item store_item_of(const struct loaded *item, struct span key, uint64_t channel_hash,
                                uint64_t since_ms)
{
    uint64_t expires_ms = after(since_ms, item->ttl_ms);

    return (struct store_item){
        .key = key,
        .channel_hash = channel_hash,
        .blob = item->blob,
        .value_type = item->value_type,
        .stored_ms = since_ms - min_u64(item->age_ms, since_ms),
        .expires_ms = expires_ms,
        .stale_until_ms = expires_ms == NEVER_MS ? NEVER_MS : after(expires_ms, item->stale_ms),
    };
}

/* Store one entry; what it becomes on this node's clock is left in *a. */
static void keep(struct serve *s, const struct flight *f, const struct loaded *item,
                 struct span key, uint64_t since_ms, bool stored, uint64_t now_ms,
                 struct answer *a)
{
    struct store_item put = store_item_of(item, key, f->channel_hash, since_ms);
    put.alone = span_equal(key, f->channel);

    a->blob = item->blob;
    a->value_type = item->value_type;
    a->stored_ms = put.stored_ms;
    a->expires_ms = put.expires_ms;
    a->stale_until_ms = put.stale_until_ms;
    if (!stored || item->ttl_ms == 0 || put.expires_ms <= now_ms)
        return;
    /* Among peers what can't travel is not kept either: whoever asks for it would find an
     * owner that has it and never gives it. */
    int rc = s->view && !travels(item->blob) ? ERR_TOO_BIG
                                             : put_entry(s, &put, now_ms);
    if (rc == 0)
        s->stats.stored++;
    else if (rc == ERR_TOO_BIG)
        s->stats.too_big++;
}

/* A fresh load's entries go to the heir as well (or, when this node acted for a silent
 * owner, to nobody: the owner drops all when it returns). */
static void push_to_heir(struct serve *s, const struct flight *f, const struct loaded *items,
                         unsigned count, uint64_t now_ms, struct effects *fx)
{
    unsigned at[RANKS_MAX];
    unsigned found = serve_standing(s, f->channel_hash, 2, at);

    /* A draining node's last loads go to its new owner as well. */
    bool draining = found && s->view->phase == PHASE_DRAINING;
    if (!draining && (found < 2 || !s->view->members[at[0]].self))
        return;
    if (!s->config.heir)
        found = draining;
    for (unsigned i = 0; i < count; i++) {
        struct loaded item = items[i];
        if (i == 0)
            item.key = f->key;
        if (item.ttl_ms == 0 || !travels(item.blob))
            continue;
        for (unsigned rank = draining ? 0 : 1; rank < found; rank++) {
            const struct view_member *to = &s->view->members[at[rank]];
            push(s, &item, i ? rendezvous_channel(&s->rendezvous, f->key) : 0, f->channel,
                  &to->addr, to->node_id, now_ms, fx);
        }
    }
}

/* A value has come, loaded here, or from the permit's holder, or from another node: store
 * it if nothing was deleted meanwhile (D1, D2), and answer everyone. */
void land(struct serve *s, struct flight *f, const struct loaded *items, unsigned count,
          uint64_t delete_id, enum tier tier, uint64_t since_ms, uint64_t now_ms,
          struct effects *fx)
{
    bool stored = f->attached && may_store(s, now_ms) &&
                  delete_id == delete_id_of(s, f->key, f->channel, now_ms);
    struct answer a = {.outcome = OUTCOME_VALUE, .tier = tier, .delete_id = delete_id,
                       .load_id = f->id};
    struct answer other;

    assert(count > 0);
    keep(s, f, &items[0], f->key, since_ms, stored, now_ms, &a);
    if (stored && tier == TIER_LOAD)
        put_behind(s, f, &items[0], f->key, now_ms, fx);
    for (unsigned i = 1; i < count; i++) {
        bool current = stored && delete_id_of(s, items[i].key, f->channel, now_ms) == delete_id;
        if (current && f->role == FLIGHT_OWNS)
            current = kin_add(s, rendezvous_channel(&s->rendezvous, f->key), items[i].key);
        keep(s, f, &items[i], items[i].key, since_ms, current, now_ms, &other);
        if (current && tier == TIER_LOAD)
            put_behind(s, f, &items[i], items[i].key, now_ms, fx);
    }
    const struct loader *registered = loader_find(s, f->loader);
    if (registered && stored && f->role == FLIGHT_OWNS && tier == TIER_LOAD)
        early_note(s, f, registered->early_ms, a.expires_ms, now_ms);
    if (count > 1)
        a.also = bundle_new(items + 1, count - 1);
    if (stored && f->role == FLIGHT_OWNS && tier == TIER_LOAD)
        push_to_heir(s, f, items, count, now_ms, fx);
    complete_all(s, f, &a, now_ms, fx);
    bundle_unref(a.also);
    end_flight(s, f, fx);
}

void serve_finish(struct serve *s, uint64_t load_id, const struct loaded *items, unsigned count,
                  uint64_t now_ms, struct effects *fx)
{
    struct flight *f = flights_by_id(s->flights, load_id);

    if (!f)
        return;
    s->stats.loads_finished++;
    land(s, f, items, count, f->delete_id, TIER_LOAD, now_ms, now_ms, fx);
}

static void fail_flight(struct serve *s, struct flight *f, struct blob *error,
                        uint32_t negative_ttl_ms, uint64_t now_ms, struct effects *fx)
{
    struct store_hit hit;
    struct answer a = {.outcome = OUTCOME_FAILED, .tier = TIER_LOAD, .blob = error,
                       .value_type = VALUE_ERROR, .delete_id = f->delete_id, .load_id = f->id};
    struct answer spare = {.outcome = OUTCOME_NOMEM};
    struct answer kept;

    s->stats.loads_failed++;
    if (f->attached && store_get(s->store, f->key, now_ms, true, &hit) && hit.stale &&
        hit.value_type != VALUE_ERROR) {
        s->stats.hits_stale++;
        fill_hit(s, &hit, f->key, f->channel, now_ms, &spare);
    } else if (negative_ttl_ms && f->attached && may_store(s, now_ms)) {
        struct loaded item = {.blob = error, .value_type = VALUE_ERROR,
                              .ttl_ms = negative_ttl_ms};
        keep(s, f, &item, f->key, now_ms, true, now_ms, &kept);
    }
    complete_all(s, f, spare.outcome == OUTCOME_VALUE ? &spare : &a, now_ms, fx);
    answer_deinit(&spare);
    end_flight(s, f, fx);
}

void serve_fail(struct serve *s, uint64_t load_id, struct blob *error, uint32_t negative_ttl_ms,
                uint64_t now_ms, struct effects *fx)
{
    struct flight *f = flights_by_id(s->flights, load_id);

    if (f)
        fail_flight(s, f, error, negative_ttl_ms, now_ms, fx);
}

/* Everyone asks again; the first one back becomes the loader, the others join it. */
void lose_flight(struct serve *s, struct flight *f, uint64_t now_ms, struct effects *fx)
{
    struct answer again = {.outcome = OUTCOME_RETRY};

    s->stats.loads_lost++;
    complete_all(s, f, &again, now_ms, fx);
    end_flight(s, f, fx);
}

void serve_lose(struct serve *s, uint64_t load_id, uint64_t now_ms, struct effects *fx)
{
    struct flight *f = flights_by_id(s->flights, load_id);

    if (f)
        lose_flight(s, f, now_ms, fx);
}

void serve_port_gone(struct serve *s, void *port, uint64_t now_ms, struct effects *fx)
{
    struct flight *f = flights_next(s->flights, NULL), *next;

    for (; f; f = next) {
        next = flights_next(s->flights, f);
        LIST_FOREACH_SAFE(&f->waiters, link) {
            struct waiter *w = CONTAINER_OF(link, struct waiter, link);
            if (!w->remote && w->port == port) {
                list_remove(link);
                w->flight = NULL;
            }
        }
        if (f->port == port && (f->state == FLIGHT_RUNNING || f->state == FLIGHT_ASKING))
            lose_flight(s, f, now_ms, fx);
        else if (list_empty(&f->waiters) && f->state != FLIGHT_RUNNING && !f->stay)
            end_flight(s, f, fx);
    }
    LIST_FOREACH_SAFE(&s->looking, link) {
        if (CONTAINER_OF(link, struct waiter, link)->port == port)
            list_remove(link);
    }
}

/* The permit's holder speaks. */

/* One more entry that the holder sent; false: out of memory. */
static bool gather(struct waiter *w, const struct loaded *item)
{
    unsigned count = bundle_count(w->gathered);
    struct loaded items[64];

    if (count == ARRAY_COUNT(items))
        return true;        /* more entries than any page has: the rest is left out */
    for (unsigned i = 0; i < count; i++)
        items[i] = *bundle_at(w->gathered, i);
    items[count] = *item;
    struct bundle *grown = bundle_new(items, count + 1);
    if (!grown)
        return false;
    bundle_unref(w->gathered);
    w->gathered = grown;
    return true;
}

void permit_frame(struct serve *s, struct waiter *w, const struct message *m, struct blob *value,
                  uint64_t now_ms, struct effects *fx)
{
    struct flight *f = w->flight;

    if (m->kind == MESSAGE_LOADED) {
        struct loaded item = {.key = m->key, .blob = value, .value_type = m->value_type,
                              .ttl_ms = m->ttl_ms, .stale_ms = m->stale_ms};
        if (value && gather(w, &item)) {
            if (m->flags & MESSAGE_MORE)
                return;
            struct bundle *all = w->gathered;
            w->gathered = NULL;
            forget_remote(s, w);    /* it has its value */
            s->stats.loads_finished++;
            land(s, f, bundle_at(all, 0), bundle_count(all), m->delete_id, TIER_LOAD, now_ms,
                 now_ms, fx);
            bundle_unref(all);
            return;
        }
    } else if (m->kind == MESSAGE_RAISED && value) {
        forget_remote(s, w);
        fail_flight(s, f, value, m->ttl_ms, now_ms, fx);
        return;
    }
    s->stats.permits_returned++;
    forget_remote(s, w);
    lose_flight(s, f, now_ms, fx);
}

/* Time. */

/* Remote askers whose patience for an acceptance is over hear "busy" and go to the heir. */
static void withdraw(struct serve *s, struct flight *f, uint64_t now_ms, struct effects *fx)
{
    struct answer busy = {.outcome = OUTCOME_BUSY};

    LIST_FOREACH_SAFE(&f->waiters, link) {
        struct waiter *w = CONTAINER_OF(link, struct waiter, link);
        if (!w->remote || w->accepted)
            continue;
        if (w->until_ms <= now_ms) {
            s->stats.served_busy++;
            complete(s, w, &busy, now_ms, fx);
        } else {
            due_by(s, w->until_ms);
        }
    }
}

/* A registered loader that nobody took in time: a waiting caller of this process runs it. */
static bool take_over(struct serve *s, struct flight *f, uint64_t now_ms, struct effects *fx)
{
    struct waiter *w = who_loads(f, false, true);

    if (!w && !(w = who_loads(f, false, false)))
        return false;
    uint64_t due_ms = f->started_ms + s->config.timeout_ms;
    if (now_ms < due_ms) {
        due_by(s, due_ms);
        return false;
    }
    list_remove(&f->queue);
    if (w->run_inline) {
        hand_to_thread(s, f, w, now_ms, fx);
    } else {
        run_here(s, f, w->port, false, now_ms);
        effects_load_here(fx, f->id, w->port, w->token);
        accept_all(s, f, MESSAGE_ACCEPTED, now_ms, fx);
    }
    return true;
}

/* A load took longer than it may. Who asked from elsewhere goes on to the heir and at last
 * helps itself (O5); a thread that waited runs its own loader, and nothing cuts that short. An
 * event loop's loader would be cancelled at the same point again: asking again would only
 * repeat it, so those who wait on loops are told. */
static void out_of_time(struct serve *s, struct flight *f, uint64_t now_ms, struct effects *fx)
{
    LIST_FOREACH_SAFE(&f->waiters, link) {
        struct waiter *w = CONTAINER_OF(link, struct waiter, link);
        struct answer over = {.outcome = w->remote                  ? OUTCOME_NOT_ME
                                         : w->run_inline || f->stay ? OUTCOME_RETRY
                                                                    : OUTCOME_TIMEOUT};
        complete(s, w, &over, now_ms, fx);
    }
}

static void tick_flight(struct serve *s, struct flight *f, uint64_t now_ms, struct effects *fx)
{
    switch (f->state) {
    case FLIGHT_TIER:
        withdraw(s, f, now_ms, fx);
        if (f->until_ms <= now_ms)
            choose_loader(s, f, now_ms, fx);
        else
            due_by(s, f->until_ms);
        return;
    case FLIGHT_PEEKING:
        withdraw(s, f, now_ms, fx);
        if (list_empty(&f->waiters) && !f->stay) {
            end_flight(s, f, fx);
            return;
        }
        if (f->until_ms <= now_ms) {
            note_slow(s, &f->peers[f->peeks - 1].addr, now_ms);
            beyond_peers(s, f, now_ms, fx);
        } else {
            due_by(s, f->until_ms);
        }
        return;
    case FLIGHT_QUEUED:
        if (take_over(s, f, now_ms, fx))
            return;
        withdraw(s, f, now_ms, fx);
        if (list_empty(&f->waiters) && !f->stay)
            end_flight(s, f, fx);
        return;
    case FLIGHT_RUNNING:
    case FLIGHT_PERMITTED:
        if (f->until_ms <= now_ms) {
            /* Its time is over. A permit is void; a thread's loader goes on alone, found by
             * nobody; an event loop's is cancelled. */
            if (f->state == FLIGHT_PERMITTED) {
                lose_flight(s, f, now_ms, fx);
                return;
            }
            flight_detach(s->flights, f);
            if (f->tiered)
                effects_tier_end(fx, f->id);
            out_of_time(s, f, now_ms, fx);
            f->until_ms = f->working_ms = NEVER_MS;
            if (!f->stay)
                effects_cancel_load(fx, f->id, f->port);
            return;
        }
        if (f->working_ms <= now_ms)
            accept_all(s, f, MESSAGE_WORKING, now_ms, fx);
        due_by(s, min_u64(f->until_ms, f->working_ms));
        return;
    case FLIGHT_ASKING:
        return;         /* its leader's query has the deadline */
    }
}

void serve_tick(struct serve *s, uint64_t now_ms, struct effects *fx)
{
    struct flight *f, *next;

    if (now_ms < s->due_ms)
        return;
    s->due_ms = NEVER_MS;
    for (f = flights_next(s->flights, NULL); f; f = next) {
        next = flights_next(s->flights, f);
        tick_flight(s, f, now_ms, fx);
    }
    early_tick(s, now_ms, fx);
    hand_on(s, now_ms, fx);
}
