/* Questions: from this process and from peers (see serve.h). What a load does once it has
 * begun stands in serve_load.c, whom to ask in serve_members.c, deletes and pushed entries in
 * serve_change.c.
 */
#include "serve_state.h"

#include "limits.h"
#include "mem.h"

struct serve *serve_new(const struct serve_config *config)
{
    struct serve *s = mem_zalloc(sizeof *s);

    if (!s)
        return NULL;
    s->config = *config;
    s->config.label = SPAN_NONE;
    rendezvous_init(&s->rendezvous, config->label);
    list_init(&s->queue_sync);
    list_init(&s->queue_async);
    list_init(&s->looking);
    list_init(&s->loaders);
    list_init(&s->early);
    for (unsigned i = 0; i < REMOTE_BUCKETS; i++)
        list_init(&s->remote[i]);
    s->due_ms = NEVER_MS;
    s->store = store_new(config->cache_bytes, config->hash_key);
    s->flights = flights_new(config->hash_key);
    s->deletes = deletes_new(config->hash_key);
    if (!s->store || !s->flights || !s->deletes) {
        serve_free(s);
        return NULL;
    }
    return s;
}

void serve_free(struct serve *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < REMOTE_BUCKETS; i++) {
        LIST_FOREACH_SAFE(&s->remote[i], link)
            forget_remote(s, CONTAINER_OF(link, struct waiter, of_conn));
    }
    LIST_FOREACH_SAFE(&s->loaders, link)
        mem_free(CONTAINER_OF(link, struct loader, link));
    for (unsigned i = 0; i < s->dropped.count; i++)
        blob_unref(s->dropped.blobs[i]);
    hand_end(s);
    early_free(s);
    kin_free(s);
    flights_free(s->flights);
    store_free(s->store);
    deletes_free(s->deletes);
    mem_free(s->view);
    mem_free(s);
}

void due_by(struct serve *s, uint64_t at_ms)
{
    if (at_ms < s->due_ms)
        s->due_ms = at_ms;
}

uint64_t serve_due_ms(const struct serve *s) { return s->due_ms; }
const struct view *serve_view(const struct serve *s) { return s->view; }
const struct serve_stats *serve_stats(const struct serve *s) { return &s->stats; }
size_t serve_flights(const struct serve *s) { return flights_count(s->flights); }
struct store *serve_store(struct serve *s) { return s->store; }

void serve_store_stats(const struct serve *s, struct store_stats *out)
{
    store_stats(s->store, out);
}

uint64_t serve_channel_hash(const struct serve *s, struct span channel)
{
    return rendezvous_channel(&s->rendezvous, channel);
}

uint64_t serve_member_hash(const struct serve *s, const struct addr *addr)
{
    return rendezvous_member(&s->rendezvous, addr);
}

void serve_take_dropped(struct serve *s, struct store_dropped *out)
{
    /* After every turn, and mostly there is nothing: the list's room is not copied. */
    out->count = s->dropped.count;
    memcpy(out->blobs, s->dropped.blobs, out->count * sizeof out->blobs[0]);
    s->dropped.count = 0;
}

/* Answers. */

static uint64_t channel_delete_id(struct serve *s, uint64_t channel_hash, uint64_t now_ms)
{
    uint8_t name[CHANNEL_NAME_BYTES];

    return deletes_get(s->deletes, channel_name(channel_hash, name), now_ms);
}

/* No canonical or raw key begins with a zero byte, so channels have names apart. */
struct span channel_name(uint64_t channel_hash, uint8_t name[CHANNEL_NAME_BYTES])
{
    name[0] = 0;
    memcpy(name + 1, &channel_hash, sizeof channel_hash);
    return span_of(name, CHANNEL_NAME_BYTES);
}

/* Key and channel may both have been deleted; a value is current only if its maker knew of
 * the same deletes. While no delete of a channel is remembered, as most of the time, its hash
 * and a look-up far away in memory are spared. */
void delete_ids_of(struct serve *s, struct span key, struct span channel, uint64_t now_ms,
                   uint64_t out[2])
{
    out[0] = deletes_get(s->deletes, key, now_ms);
    out[1] = 0;
    if (now_ms < s->channels_until_ms)
        out[1] = channel_delete_id(s, rendezvous_channel(&s->rendezvous, channel), now_ms);
}

uint64_t delete_id_by(struct serve *s, struct span key, uint64_t channel_hash, uint64_t now_ms)
{
    return deletes_get(s->deletes, key, now_ms) ^ channel_delete_id(s, channel_hash, now_ms);
}

uint64_t delete_id_of(struct serve *s, struct span key, struct span channel, uint64_t now_ms)
{
    uint64_t ids[2];

    delete_ids_of(s, key, channel, now_ms, ids);
    return ids[0] ^ ids[1];
}

/* When the last delete that is remembered of the key or its channel was applied here; 0: none.
 * Told for half the time it is remembered: others may have applied it earlier, and who has
 * forgotten it is not to be taken for one who never knew it. */
static uint64_t deleted_ms(struct serve *s, struct span key, uint64_t channel_hash,
                           uint64_t now_ms)
{
    uint8_t name[CHANNEL_NAME_BYTES];
    uint64_t until_ms = max_u64(deletes_until_ms(s->deletes, key, now_ms),
                                deletes_until_ms(s->deletes, channel_name(channel_hash, name),
                                                 now_ms));

    return until_ms > now_ms + deletes_remembered_ms(s) / 2 ? until_ms - deletes_remembered_ms(s)
                                                            : 0;
}

/* While the deletes it should remember don't fit, a node keeps nothing (D1). Nor does one
 * that warms: until the news of it has reached them all, a delete may not reach it. */
bool may_store(struct serve *s, uint64_t now_ms)
{
    const struct view *v = s->view;
    bool known = !v || v->self < 0 || v->members[v->self].contends || v->phase != PHASE_WARMING;

    if (known && (deletes_count(s->deletes) == 0 || !deletes_full(s->deletes, now_ms)))
        return true;
    s->stats.stored_refused++;
    return false;
}

void fill_hit(struct serve *s, const struct store_hit *hit, struct span key, struct span channel,
              uint64_t now_ms, struct answer *out)
{
    *out = (struct answer){
        .outcome = OUTCOME_VALUE,
        .tier = TIER_LOCAL,
        .blob = hit->blob ? blob_ref(hit->blob) : blob_copy(hit->bytes),
        .value_type = hit->value_type,
        .stale = hit->stale,
        .stored_ms = hit->stored_ms,
        .expires_ms = hit->expires_ms,
        .stale_until_ms = hit->stale_until_ms,
        .delete_id = delete_id_of(s, key, channel, now_ms),
    };
    if (!out->blob)
        out->outcome = OUTCOME_NOMEM;
}

uint32_t left_ms(uint64_t until_ms, uint64_t now_ms)
{
    if (until_ms == NEVER_MS)
        return UINT32_MAX;
    return until_ms > now_ms ? (uint32_t)min_u64(until_ms - now_ms, UINT32_MAX - 1) : 0;
}

static uint8_t kind_of(enum outcome outcome)
{
    switch (outcome) {
    case OUTCOME_VALUE:
        return MESSAGE_VALUE;
    case OUTCOME_FAILED:
        return MESSAGE_FAILED;
    case OUTCOME_MISS:
        return MESSAGE_MISS;
    case OUTCOME_NOT_ME:
        return MESSAGE_NOT_ME;
    case OUTCOME_RECURSIVE:
        return MESSAGE_RECURSIVE;
    case OUTCOME_RETRY:
        return MESSAGE_LOST;
    default:
        return MESSAGE_BUSY;
    }
}

static void answer_kind(uint64_t conn_id, uint64_t request_id, uint8_t kind, struct effects *fx)
{
    struct message m = {.kind = kind, .request_id = request_id};
    effects_answer(fx, conn_id, &m, NULL);
}

/* An answer as frames: the entry asked for, then the others of its channel. */
static void answer_remote(const struct answer *a, uint64_t conn_id, uint64_t request_id,
                          uint64_t now_ms, struct effects *fx)
{
    unsigned further = bundle_count(a->also);

    /* What no frame can hold is its caller's alone: the asker goes on, and helps itself. */
    if (a->outcome == OUTCOME_VALUE && !travels(a->blob)) {
        answer_kind(conn_id, request_id, MESSAGE_NOT_ME, fx);
        return;
    }
    while (further && !travels(bundle_at(a->also, further - 1)->blob))
        further--;
    struct message m = {
        .kind = kind_of(a->outcome),
        .request_id = request_id,
        .value_type = a->value_type,
        .delete_id = a->delete_id,
        .flags = (uint8_t)((a->stale ? MESSAGE_STALE : 0) | (further ? MESSAGE_MORE : 0)),
    };

    if (a->outcome == OUTCOME_VALUE) {
        m.ttl_ms = left_ms(a->expires_ms, now_ms);
        m.stale_ms = left_ms(a->stale_until_ms, max_u64(a->expires_ms, now_ms));
        m.age_ms = (uint32_t)min_u64(now_ms - a->stored_ms, UINT32_MAX);
    }
    effects_answer(fx, conn_id, &m, a->blob);
    for (unsigned i = 0; i < further; i++) {
        const struct loaded *item = bundle_at(a->also, i);
        if (!travels(item->blob))
            continue;
        struct message more = {
            .kind = MESSAGE_VALUE,
            .request_id = request_id,
            .value_type = item->value_type,
            .ttl_ms = item->ttl_ms,
            .stale_ms = item->stale_ms,
            .age_ms = item->age_ms,
            .delete_id = a->delete_id,
            .key = item->key,
            .flags = i + 1 < further ? MESSAGE_MORE : 0,
        };
        effects_answer(fx, conn_id, &more, item->blob);
    }
}

void forget_remote(struct serve *s, struct waiter *w)
{
    list_remove(&w->link);
    list_remove(&w->of_conn);
    if (w->flight && w->flight->holder == w)
        w->flight->holder = NULL;
    bundle_unref(w->gathered);
    s->remote_count--;
    mem_free(w);
}

void complete(struct serve *s, struct waiter *w, const struct answer *a, uint64_t now_ms,
              struct effects *fx)
{
    if (w->remote) {
        answer_remote(a, w->conn_id, w->request_id, now_ms, fx);
        forget_remote(s, w);
        return;
    }
    list_remove(&w->link);
    w->flight = NULL;
    w->answer = *a;
    blob_ref(a->blob);
    bundle_ref(a->also);
    list_add_tail(&fx->completed, &w->link);
}

void complete_all(struct serve *s, struct flight *f, const struct answer *a, uint64_t now_ms,
                  struct effects *fx)
{
    LIST_FOREACH_SAFE(&f->waiters, link)
        complete(s, CONTAINER_OF(link, struct waiter, link), a, now_ms, fx);
}

/* A local question. */

/* A loader's chain names the keys it is being run for; asking for one of them again would
 * wait for itself (O6). */
static bool recursive(const struct serve *s, const struct message *ask)
{
    if (ask->chain_count == 0)
        return false;
    uint64_t hash = rendezvous_channel(&s->rendezvous, ask->key);
    for (unsigned i = 0; i < ask->chain_count; i++) {
        if (ask->chain[i] == hash)
            return true;
    }
    return ask->chain_count == CHAIN_MAX;   /* too deep is as good as endless */
}

void join(struct serve *s, struct flight *f, struct waiter *w, uint64_t now_ms,
          struct effects *fx)
{
    w->flight = f;
    list_add_tail(&f->waiters, &w->link);
    if (w->remote && (f->state == FLIGHT_RUNNING || f->state == FLIGHT_PERMITTED)) {
        w->accepted = true;
        answer_kind(w->conn_id, w->request_id, MESSAGE_ACCEPTED, fx);
        if (f->working_ms == NEVER_MS)
            f->working_ms = now_ms + WORKING_EVERY_MS;
    }
    due_by(s, min_u64(f->working_ms, min_u64(f->until_ms, w->until_ms)));
}

bool serve_get(struct serve *s, struct span key, uint64_t now_ms, struct store_hit *hit)
{
    if (!store_get(s->store, key, now_ms, false, hit))
        return false;
    s->stats.hits_local++;
    return true;
}

static void wait_in(struct serve *s, struct flight *f, struct waiter *w, uint64_t now_ms,
                    struct answer *out, struct effects *fx)
{
    join(s, f, w, now_ms, fx);
    *out = (struct answer){.outcome = OUTCOME_WAIT, .load_id = f->id};
}

/* This node acts as the owner for its own caller; `helpless`: because every other that it
 * could ask is avoided. */
static void ask_owned(struct serve *s, const struct question *q, uint64_t channel_hash,
                      bool helpless, struct waiter *w, uint64_t now_ms, struct answer *out, struct effects *fx)
{
    struct flight *f = flights_add(s->flights, FLIGHT_OWNS, &q->ask, channel_hash, now_ms);

    if (!f) {
        out->outcome = OUTCOME_NOMEM;
        return;
    }
    f->delete_id = delete_id_of(s, f->key, f->channel, now_ms);
    f->wants = helpless ? TIER_WANT_LEASE : TIER_WANT_NONE;
    wait_in(s, f, w, now_ms, out, fx);
    begin_owned(s, f, false, now_ms, fx);
    /* Beginning may have answered its only waiter at once: then tell it by return, and
     * spare a thread the wake-up. */
    if (w->flight == NULL) {
        list_remove(&w->link);
        *out = w->answer;
        memset(&w->answer, 0, sizeof w->answer);
    }
}

bool serve_hit(struct serve *s, const struct question *q, uint64_t now_ms, struct answer *out)
{
    struct store_hit hit;

    if (q->fresh || !serve_get(s, q->ask.key, now_ms, &hit))
        return false;
    fill_hit(s, &hit, q->ask.key, message_channel(&q->ask), now_ms, out);
    return true;
}

void serve_ask(struct serve *s, const struct question *q, struct waiter *w, uint64_t now_ms,
               struct answer *out, struct query_rank ranks[RANKS_MAX], unsigned *count,
               struct effects *fx)
{
    const struct message *ask = &q->ask;
    struct span channel = message_channel(ask);
    struct store_hit hit;

    *out = (struct answer){.outcome = OUTCOME_WAIT};
    *count = 0;
    w->remote = false;
    w->flight = NULL;
    w->loads = ask->flags & MESSAGE_LOADS;
    w->run_inline = q->run_inline;
    w->until_ms = NEVER_MS;
    list_init(&w->link);
    list_init(&w->of_conn);
    if (serve_hit(s, q, now_ms, out))
        return;
    if (recursive(s, ask)) {
        out->outcome = OUTCOME_RECURSIVE;
        return;
    }
    s->stats.misses++;
    if (s->view && s->view->phase == PHASE_LOOKING) {
        list_add_tail(&s->looking, &w->link);
        return;
    }
    struct flight *f = flights_find(s->flights, ask->key, FLIGHT_OWNS);
    if (!f)
        f = flights_find(s->flights, ask->key, FLIGHT_ASKS);
    if (f) {
        s->stats.loads_joined++;
        wait_in(s, f, w, now_ms, out, fx);
        return;
    }
    *count = serve_ranks(s, channel, now_ms, ranks);
    uint64_t channel_hash = rendezvous_channel(&s->rendezvous, channel);
    if (*count == 0 || ranks[0].self) {
        if (!q->fresh && store_get(s->store, ask->key, now_ms, true, &hit) &&
            loader_find(s, ask->loader)) {
            s->stats.hits_stale++;
            fill_hit(s, &hit, ask->key, channel, now_ms, out);
            refresh_behind(s, ask, now_ms, fx);
            return;
        }
        ask_owned(s, q, channel_hash, *count == 0, w, now_ms, out, fx);
        return;
    }
    f = flights_add(s->flights, FLIGHT_ASKS, ask, channel_hash, now_ms);
    if (!f) {
        out->outcome = OUTCOME_NOMEM;
        return;
    }
    f->delete_id = delete_id_of(s, f->key, f->channel, now_ms);
    f->port = w->port;
    f->stay = q->run_inline;
    if (!q->run_inline)
        join(s, f, w, now_ms, fx);
    out->outcome = OUTCOME_ASK;
    out->load_id = f->id;
    out->delete_id = f->delete_id;
    if (f->delete_id)
        out->deleted_ms = deleted_ms(s, f->key, channel_hash, now_ms);
}

/* Nobody waits any more: what may stop, stops. */
static void deserted(struct serve *s, struct flight *f, struct effects *fx)
{
    if (!list_empty(&f->waiters) || f->stay)
        return;
    switch (f->state) {
    case FLIGHT_PEEKING:
    case FLIGHT_TIER:
    case FLIGHT_QUEUED:
    case FLIGHT_PERMITTED:
        end_flight(s, f, fx);
        break;
    case FLIGHT_RUNNING:
    case FLIGHT_ASKING:
        effects_cancel_load(fx, f->id, f->port);
        break;
    }
}

void serve_leave(struct serve *s, struct waiter *w, uint64_t now_ms, struct effects *fx)
{
    struct flight *f = w->flight;

    (void)now_ms;
    list_remove(&w->link);
    w->flight = NULL;
    answer_deinit(&w->answer);      /* it may have been completed a moment ago */
    if (f)
        deserted(s, f, fx);
}

/* The leader's query has ended. */

void serve_answered(struct serve *s, uint64_t load_id, const struct loaded *items, unsigned count,
                    uint64_t delete_id, enum tier tier, uint64_t asked_ms, uint64_t now_ms,
                    struct effects *fx)
{
    struct flight *f = flights_by_id(s->flights, load_id);

    if (tier == TIER_HEIR)
        s->stats.answers_heir++;
    else if (tier == TIER_OWNER)        /* else a load made it just now */
        s->stats.answers_owner++;
    if (f)
        land(s, f, items, count, delete_id, tier, asked_ms, now_ms, fx);
}

static void end_with(struct serve *s, uint64_t load_id, const struct answer *a, uint64_t now_ms,
                     struct effects *fx)
{
    struct flight *f = flights_by_id(s->flights, load_id);

    if (!f)
        return;
    complete_all(s, f, a, now_ms, fx);
    end_flight(s, f, fx);
}

void serve_answered_error(struct serve *s, uint64_t load_id, struct blob *error, uint64_t now_ms,
                          struct effects *fx)
{
    struct answer a = {.outcome = OUTCOME_FAILED, .tier = TIER_OWNER, .blob = error,
                       .value_type = VALUE_ERROR};
    end_with(s, load_id, &a, now_ms, fx);
}

void serve_answered_miss(struct serve *s, uint64_t load_id, uint64_t now_ms, struct effects *fx)
{
    struct flight *f = flights_by_id(s->flights, load_id);
    struct answer miss = {.outcome = OUTCOME_MISS}, again = {.outcome = OUTCOME_RETRY};

    if (!f)
        return;
    /* Somebody with a loader may have joined a question that had none. */
    LIST_FOREACH_SAFE(&f->waiters, link) {
        struct waiter *w = CONTAINER_OF(link, struct waiter, link);
        complete(s, w, w->loads ? &again : &miss, now_ms, fx);
    }
    end_flight(s, f, fx);
}

void serve_answered_load(struct serve *s, uint64_t load_id, enum query_step step, bool run_inline,
                         struct waiter *w, uint64_t now_ms, struct answer *out,
                         struct effects *fx)
{
    struct flight *f = flights_by_id(s->flights, load_id);

    *out = (struct answer){.outcome = OUTCOME_RETRY};
    if (!f)
        return;
    if (step == QUERY_OWN && f->attached) {
        struct flight *own = flights_find(s->flights, f->key, FLIGHT_OWNS);
        if (own) {
            LIST_FOREACH_SAFE(&f->waiters, link) {
                struct waiter *moved = CONTAINER_OF(link, struct waiter, link);
                list_remove(link);
                join(s, own, moved, now_ms, fx);
            }
            end_flight(s, f, fx);
            if (run_inline)
                join(s, own, w, now_ms, fx);
            *out = (struct answer){.outcome = OUTCOME_WAIT, .load_id = own->id};
            return;
        }
        flight_own(s->flights, f);
    }
    enum tier_want want = step == QUERY_LOAD  ? TIER_WANT_LEASE
                          : step == QUERY_OWN ? TIER_WANT_VALUE
                                              : TIER_WANT_NONE;
    if (tier_first(s, f, want, now_ms, fx)) {
        f->stay = false;
        if (run_inline)
            join(s, f, w, now_ms, fx);
        *out = (struct answer){.outcome = OUTCOME_WAIT, .load_id = f->id};
        return;
    }
    run_here(s, f, w->port, run_inline, now_ms);
    *out = (struct answer){.outcome = OUTCOME_LOAD, .load_id = f->id, .delete_id = f->delete_id};
}

/* A peer's question. */

void serve_prefetch(struct serve *s, const struct span *keys, unsigned count, uint64_t now_ms)
{
    for (unsigned i = 0; i < count; i++)
        deletes_prefetch(s->deletes, keys[i], now_ms);
    store_prefetch(s->store, keys, count);
}

static struct list *remote_bucket(struct serve *s, uint64_t conn_id)
{
    return &s->remote[conn_id % REMOTE_BUCKETS];
}

struct waiter *remote_waiter(struct serve *s, uint64_t conn_id, uint64_t request_id)
{
    LIST_FOREACH(remote_bucket(s, conn_id), link) {
        struct waiter *w = CONTAINER_OF(link, struct waiter, of_conn);
        if (w->conn_id == conn_id && w->request_id == request_id)
            return w;
    }
    return NULL;
}

static struct waiter *remote_new(struct serve *s, uint64_t conn_id, const struct message *m)
{
    if (s->remote_count >= WAITING_LOADS_MAX)
        return NULL;
    struct waiter *w = mem_zalloc(sizeof *w);
    if (!w)
        return NULL;
    list_init(&w->link);
    w->remote = true;
    w->loads = m->flags & MESSAGE_LOADS;
    w->until_ms = NEVER_MS;
    w->conn_id = conn_id;
    w->request_id = m->request_id;
    w->node_id = m->sender_id;
    list_add_tail(remote_bucket(s, conn_id), &w->of_conn);
    s->remote_count++;
    return w;
}

/* Looking, warming, draining and observing nodes answer hits only (O8). */
static bool acts_as_owner(const struct serve *s)
{
    const struct view *v = s->view;
    return v && v->self >= 0 && v->members[v->self].contends &&
           (v->phase == PHASE_READY || v->phase == PHASE_WARMING);
}

/* Answer from the store, if it is there. */
static bool answer_hit(struct serve *s, uint64_t conn_id, const struct message *m, bool stale_too,
                       uint64_t now_ms, struct effects *fx)
{
    struct store_hit hit;
    struct answer a;

    if (!store_get(s->store, m->key, now_ms, stale_too, &hit))
        return false;
    fill_hit(s, &hit, m->key, message_channel(m), now_ms, &a);
    if (a.outcome != OUTCOME_VALUE)
        return false;
    answer_remote(&a, conn_id, m->request_id, now_ms, fx);
    answer_deinit(&a);
    s->stats.served_hits++;
    return true;
}

static void request_ask(struct serve *s, uint64_t conn_id, const struct message *m,
                        uint64_t now_ms, struct effects *fx)
{
    bool fresh = m->flags & MESSAGE_FRESH;

    if (!fresh && answer_hit(s, conn_id, m, false, now_ms, fx))
        return;
    if (recursive(s, m)) {
        answer_kind(conn_id, m->request_id, MESSAGE_RECURSIVE, fx);
        return;
    }
    if (!acts_as_owner(s)) {
        s->stats.served_not_me++;
        answer_kind(conn_id, m->request_id, MESSAGE_NOT_ME, fx);
        return;
    }
    if (!fresh && loader_find(s, m->loader) && answer_hit(s, conn_id, m, true, now_ms, fx)) {
        refresh_behind(s, m, now_ms, fx);
        return;
    }
    struct flight *f = flights_find(s->flights, m->key, FLIGHT_OWNS);
    struct waiter *w = remote_new(s, conn_id, m);
    if (!w) {
        s->stats.served_busy++;
        answer_kind(conn_id, m->request_id, MESSAGE_BUSY, fx);
        return;
    }
    w->until_ms = now_ms + m->budget_ms * 4 / 5;    /* O5: 0.8 of what is left */
    s->stats.served_loads++;
    if (f) {
        s->stats.loads_joined++;
        join(s, f, w, now_ms, fx);
        return;
    }
    f = flights_add(s->flights, FLIGHT_OWNS, m,
                    rendezvous_channel(&s->rendezvous, message_channel(m)), now_ms);
    if (!f) {
        answer_kind(conn_id, m->request_id, MESSAGE_BUSY, fx);
        forget_remote(s, w);
        return;
    }
    f->delete_id = delete_id_of(s, f->key, f->channel, now_ms);
    f->load_timeout_ms = m->load_timeout_ms ? m->load_timeout_ms : s->config.load_timeout_ms;
    /* Joined before it begins: beginning looks for who could load. */
    w->flight = f;
    list_add_tail(&f->waiters, &w->link);
    due_by(s, w->until_ms);
    begin_owned(s, f, m->flags & MESSAGE_OWNER_SILENT, now_ms, fx);
}

/* Two acting owners that peek at each other at once must not both miss and load: the one of
 * the higher score goes on, the other waits for what comes of it. Both compute the same from
 * what is no opinion, so they never wait for each other. */
static bool goes_first(const struct serve *s, const struct flight *f, uint64_t other_id)
{
    const struct view *v = s->view;

    for (unsigned i = 0; v && v->self >= 0 && i < v->count; i++) {
        if (v->members[i].node_id == other_id)
            return rendezvous_score(f->channel_hash, v->members[v->self].hash) >
                   rendezvous_score(f->channel_hash, v->members[i].hash);
    }
    return false;
}

/* Never starts a load; one that runs, or is about to, lets it wait (O3). */
static void request_peek(struct serve *s, uint64_t conn_id, const struct message *m,
                         uint64_t now_ms, struct effects *fx)
{
    s->stats.peeks_served++;
    if (answer_hit(s, conn_id, m, true, now_ms, fx))
        return;
    struct flight *f = flights_find(s->flights, m->key, FLIGHT_OWNS);
    struct waiter *w = NULL;
    bool waits = f && (f->state == FLIGHT_PEEKING || f->state == FLIGHT_TIER);
    if (f && (!waits || goes_first(s, f, m->sender_id)))
        w = remote_new(s, conn_id, m);
    if (w) {
        w->loads = false;
        w->until_ms = now_ms + m->budget_ms * 4 / 5;
        join(s, f, w, now_ms, fx);
    } else {
        answer_kind(conn_id, m->request_id, MESSAGE_MISS, fx);
    }
}

/* A remote waiter goes: what it held is lost, what nobody else waits for may end. */
static void leave_remote(struct serve *s, struct waiter *w, uint64_t now_ms, struct effects *fx)
{
    struct flight *f = w->flight;
    bool held = f && f->holder == w;

    forget_remote(s, w);
    if (held)
        lose_flight(s, f, now_ms, fx);
    else if (f)
        deserted(s, f, fx);
}

bool serve_frame(struct serve *s, uint64_t conn_id, const struct message *m, struct blob *value,
                 uint64_t now_ms, struct effects *fx)
{
    struct waiter *w;

    switch (m->kind) {
    case MESSAGE_ASK:
    case MESSAGE_PEEK:
        if (m->key.bytes == 0)
            answer_kind(conn_id, m->request_id, MESSAGE_UNSUPPORTED, fx);
        else if (m->kind == MESSAGE_ASK)
            request_ask(s, conn_id, m, now_ms, fx);
        else
            request_peek(s, conn_id, m, now_ms, fx);
        return true;
    case MESSAGE_CANCEL:
        w = remote_waiter(s, conn_id, m->request_id);
        if (w)
            leave_remote(s, w, now_ms, fx);
        return true;
    case MESSAGE_LOADED:
    case MESSAGE_RAISED:
    case MESSAGE_RETURNED:
        w = remote_waiter(s, conn_id, m->request_id);
        if (w && w->flight && w->flight->holder == w)
            permit_frame(s, w, m, value, now_ms, fx);
        return true;
    case MESSAGE_PUSH:
        push_taken(s, conn_id, m, value, now_ms, fx);
        return true;
    default:
        return false;
    }
}

void serve_closed(struct serve *s, uint64_t conn_id, uint64_t now_ms, struct effects *fx)
{
    /* From the start again after each: losing a flight ends other waiters of the bucket. */
    bool again = true;
    while (again) {
        again = false;
        LIST_FOREACH(remote_bucket(s, conn_id), link) {
            struct waiter *w = CONTAINER_OF(link, struct waiter, of_conn);
            if (w->conn_id != conn_id)
                continue;
            leave_remote(s, w, now_ms, fx);
            again = true;
            break;
        }
    }
}

bool serve_reply(struct serve *s, uint64_t call_id, const struct message *m, struct blob *value,
                 uint64_t now_ms, struct effects *fx)
{
    if ((call_id & CALL_HAND) == CALL_HAND)
        hand_reply(s, call_id, m, now_ms, fx);
    if (call_id & CALL_PUSH)
        return true;
    return peeked(s, call_id, m, value, now_ms, fx);
}
