/* Whole nodes on virtual time (see fleet.h). */
#include "fleet_state.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/mem.h"

void *fleet_grow(void *at, size_t count, size_t size)
{
    if (count & (count - 1))
        return at;
    void *grown = realloc(at, (count ? 2 * count : 1) * size);
    if (!grown)
        abort();
    return grown;
}

/* Events. */

static bool earlier(const struct event *a, const struct event *b)
{
    return a->due_ms != b->due_ms ? a->due_ms < b->due_ms : a->order < b->order;
}

void fleet_post(struct fleet *f, uint64_t after_ms, const struct event *e)
{
    f->events = fleet_grow(f->events, f->event_count, sizeof *e);
    size_t i = f->event_count++;
    struct event fresh = *e;
    fresh.due_ms = f->now_ms + after_ms;
    fresh.order = f->order++;
    for (; i > 0 && earlier(&fresh, &f->events[(i - 1) / 2]); i = (i - 1) / 2)
        f->events[i] = f->events[(i - 1) / 2];
    f->events[i] = fresh;
}

static struct event pop(struct fleet *f)
{
    struct event first = f->events[0], last = f->events[--f->event_count];
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < f->event_count; i = child) {
        if (child + 1 < f->event_count && earlier(&f->events[child + 1], &f->events[child]))
            child++;
        if (!earlier(&f->events[child], &last))
            break;
        f->events[i] = f->events[child];
    }
    f->events[i] = last;
    return first;
}

static void drop_frame(struct effect *frame)
{
    blob_unref(frame->value);
    mem_free(frame->text);
}

/* Nodes. */

uint64_t fleet_now_ms(const struct fleet *f) { return f->now_ms; }
uint64_t fleet_wall_ms(const struct fleet *f) { return f->now_ms + FLEET_WALL_MS; }

static bool lives(const struct fleet *f, unsigned i) { return !f->stations[i].dead; }

struct serve *fleet_serve(struct fleet *f, unsigned i)
{
    return node_serve(f->stations[i].node);
}

static void make_node(struct fleet *f, unsigned i)
{
    struct station *at = &f->stations[i];
    struct node_config config = {
        .serve = {
            .label = span_text("fleet"),
            .cache_bytes = 4u << 20,
            .timeout_ms = f->config.timeout_ms,
            .load_timeout_ms = f->config.load_timeout_ms,
            .heir = f->config.heir,
        },
        .seed = prng_next(&f->prng),
        .node_id = ++f->last_node_id,
        .wall_ms = fleet_wall_ms(f) + i * f->config.skew_ms,
    };

    memset(at, 0, sizeof *at);
    addr_parse("10.0.0.1", &at->addr);
    at->addr.ip[15] = (uint8_t)(1 + i);
    at->addr.port = 7946;
    at->node_id = f->last_node_id;
    at->started_ms = f->now_ms;
    if (node_new(&at->node, &config, f->now_ms) != 0)
        abort();
    serve_register(node_serve(at->node), span_text("registered"), false);
}

struct node *fleet_node(struct fleet *f, unsigned i) { return f->stations[i].node; }

void fleet_apply(struct fleet *f, unsigned i, struct effects *fx);

static void hand_view(struct fleet *f, unsigned i, uint32_t members, uint32_t warming,
                      bool swapped)
{
    struct view *v = view_new(FLEET_NODES_MAX);
    struct effects fx;

    if (!v)
        abort();
    effects_init(&fx);
    v->phase = f->draining >> i & 1  ? PHASE_DRAINING
               : warming >> i & 1 ? PHASE_WARMING
                                  : PHASE_READY;
    for (unsigned j = 0; j < f->config.nodes; j++) {
        const struct station *scored = &f->stations[swapped && j < 2 ? 1 - j : j];
        if (members >> j & 1) {
            v->members[v->count++] = (struct view_member){
                .addr = f->stations[j].addr,
                .node_id = f->stations[j].node_id,
                .started_ms = f->stations[j].started_ms,
                .hash = serve_member_hash(fleet_serve(f, i), &scored->addr),
                .self = i == j,
                .coordinates = true,
                .warming = warming >> j & 1,
                .draining = f->draining >> j & 1,
            };
        }
    }
    view_finish(v);
    node_set_view(f->stations[i].node, v, f->now_ms, &fx);
    fleet_apply(f, i, &fx);
    effects_deinit(&fx);
}

void fleet_view(struct fleet *f, unsigned i, uint32_t members, uint32_t warming)
{
    hand_view(f, i, members, warming, false);
}

void fleet_disagree(struct fleet *f, unsigned i)
{
    hand_view(f, i, (1u << f->config.nodes) - 1, 0, true);
}

void fleet_views(struct fleet *f, uint32_t members)
{
    for (unsigned i = 0; i < f->config.nodes; i++) {
        if (lives(f, i))
            fleet_view(f, i, members, 0);
    }
}

void fleet_drain(struct fleet *f, unsigned i) { f->draining |= 1u << i; }
bool fleet_handed_on(struct fleet *f, unsigned i) { return serve_handed_on(fleet_serve(f, i)); }

struct fleet *fleet_new(const struct fleet_config *config)
{
    struct fleet *f = calloc(1, sizeof *f);

    if (!f)
        abort();
    f->config = *config;
    f->now_ms = 1000000;
    prng_seed(&f->prng, config->seed);
    for (unsigned i = 0; i < config->nodes; i++)
        make_node(f, i);
    fleet_views(f, (1u << config->nodes) - 1);
    /* Long ago: no peeks unless a test changes the members. */
    f->now_ms += 10000000;
    return f;
}

void fleet_free(struct fleet *f)
{
    while (f->event_count) {
        struct event e = pop(f);
        drop_frame(&e.frame);
    }
    for (size_t i = 0; i < f->asker_count; i++) {
        list_remove(&f->askers[i]->waiter.link);
        answer_deinit(&f->askers[i]->waiter.answer);
        bundle_unref(f->askers[i]->gathered);
        free(f->askers[i]);
    }
    for (unsigned i = 0; i < f->config.nodes; i++) {
        for (size_t j = 0; j < f->stations[i].held_count; j++)
            drop_frame(&f->stations[i].held[j].frame);
        free(f->stations[i].held);
        node_free(f->stations[i].node);
    }
    for (size_t i = 0; i < f->changer_count; i++) {
        answer_deinit(&f->changers[i]->waiter.answer);
        free(f->changers[i]);
    }
    free(f->events);
    free(f->conns);
    free(f->askers);
    free(f->changers);
    free(f->loads);
    free(f);
}

/* Connections. */

uint64_t fleet_connect(struct fleet *f, unsigned from, const struct addr *to,
                           uint64_t node_id)
{
    f->conns = fleet_grow(f->conns, f->conn_count, sizeof f->conns[0]);
    struct connection *c = &f->conns[f->conn_count++];
    *c = (struct connection){.from = from, .from_id = f->stations[from].node_id,
                             .to_id = node_id};
    for (unsigned i = 0; i < f->config.nodes; i++) {
        if (addr_equal(&f->stations[i].addr, to))
            c->to = i;
    }
    return f->conn_count;
}

struct connection *fleet_conn(struct fleet *f, uint64_t id) { return &f->conns[id - 1]; }

/* Refused, or another node on the port: the client learns within one way. */
bool fleet_reaches(const struct fleet *f, const struct connection *c)
{
    const struct station *to = &f->stations[c->to];
    return !to->dead && to->node_id == c->to_id && !c->closed;
}

/* From one node to another always the same, so frames don't overtake each other. */
static uint32_t latency_ms(const struct fleet *f, unsigned from, unsigned to)
{
    return f->config.latency_ms +
           (uint32_t)((f->config.seed + 7 * from + 3 * to) % (f->config.spread_ms + 1));
}

/* Moves the frame out of `e` into the network. */
static void transmit(struct fleet *f, enum event_kind kind, uint64_t conn, struct effect *e)
{
    struct connection *c = fleet_conn(f, conn);
    struct event event = {.kind = kind, .conn = conn,
                          .node = kind == EVENT_REQUEST ? c->to : c->from};

    event.frame = *e;
    event.frame.message.sender_id = kind == EVENT_REQUEST ? c->from_id : c->to_id;
    e->value = NULL;
    e->text = NULL;
    event.node_id = kind == EVENT_REQUEST ? c->to_id : c->from_id;
    fleet_post(f, latency_ms(f, kind == EVENT_REQUEST ? c->from : c->to, event.node), &event);
}

void fleet_transmit(struct fleet *f, uint64_t conn, const struct message *m,
                             struct blob *value)
{
    struct effects fx;

    effects_init(&fx);
    effects_answer(&fx, conn, m, value);
    if (fx.count)               /* else out of memory: to the protocol a lost frame */
        transmit(f, EVENT_REQUEST, conn, &fx.at[0]);
    effects_deinit(&fx);
}

/* Effects. */

static struct asker *asker_of(struct fleet *f, const struct waiter *w)
{
    for (size_t i = 0; i < f->asker_count; i++) {
        if (&f->askers[i]->waiter == w)
            return f->askers[i];
    }
    return NULL;
}

static void completed(struct fleet *f, struct waiter *w)
{
    struct asker *a = asker_of(f, w);

    list_remove(&w->link);
    if (a) {
        struct answer answer = w->answer;
        memset(&w->answer, 0, sizeof w->answer);
        fleet_settle(f, a, &answer);
        return;
    }
    struct changer *c = CONTAINER_OF(w, struct changer, waiter);
    struct node_report report;
    c->result.done = true;
    if (w->answer.blob && node_report_read(blob_span(w->answer.blob), &report)) {
        c->result.acknowledged = report.acknowledged_count;
        c->result.unreached = report.unreached_count;
    }
}

static void cancel(struct fleet *f, unsigned i, uint64_t load_id, void *port)
{
    struct asker *a = port;
    struct effects fx;

    if (a && a->conn && fleet_conn(f, a->conn)->asker == a) {
        struct message m = {.kind = MESSAGE_CANCEL, .request_id = 1};
        if (fleet_reaches(f, fleet_conn(f, a->conn)))
            fleet_transmit(f, a->conn, &m, NULL);
        fleet_conn(f, a->conn)->asker = NULL;
    }
    effects_init(&fx);
    serve_lose(fleet_serve(f, i), load_id, f->now_ms, &fx);
    fleet_apply(f, i, &fx);
    effects_deinit(&fx);
}

static void call(struct fleet *f, unsigned i, struct effect *e)
{
    uint64_t conn = fleet_connect(f, i, &e->addr, e->node_id);
    struct connection *c = fleet_conn(f, conn);
    struct event failed = {.conn = conn, .node = i, .node_id = f->stations[i].node_id};

    c->call_id = e->call_id;
    c->changes = message_is_change(&e->message);
    e->message.request_id = 1;
    if (!fleet_reaches(f, c)) {
        failed.kind = EVENT_CLOSED;
        fleet_post(f, f->config.latency_ms, &failed);
        return;
    }
    transmit(f, EVENT_REQUEST, conn, e);
    failed.kind = EVENT_DEADLINE;
    fleet_post(f, e->timeout_ms, &failed);
}

static void gone(struct fleet *f, unsigned i, uint64_t node_id)
{
    for (size_t id = 1; id <= f->conn_count; id++) {
        struct connection *c = fleet_conn(f, id);
        struct event e = {.kind = EVENT_CLOSED, .conn = id, .node = i,
                          .node_id = f->stations[i].node_id};
        if (c->from == i && c->to_id == node_id && c->asker && !c->closed)
            fleet_post(f, 0, &e);
    }
}

void fleet_apply(struct fleet *f, unsigned i, struct effects *fx)
{
    struct list done;

    list_init(&done);
    list_move_all(&done, &fx->completed);
    for (size_t k = 0; k < fx->count; k++) {
        struct effect *e = &fx->at[k];
        struct event take = {.kind = EVENT_TAKE, .node = i, .node_id = f->stations[i].node_id};
        switch (e->kind) {
        case EFFECT_ANSWER:
            if (!fleet_conn(f, e->conn_id)->closed)
                transmit(f, EVENT_REPLY, e->conn_id, e);
            break;
        case EFFECT_CALL:
            call(f, i, e);
            break;
        case EFFECT_LOADS:
            fleet_post(f, 0, &take);
            break;
        case EFFECT_LOAD_HERE:
            fleet_load_by(f, e->token, e->load_id);
            break;
        case EFFECT_CANCEL_LOAD:
            cancel(f, i, e->load_id, e->port);
            break;
        case EFFECT_GONE:
            gone(f, i, e->node_id);
            break;
        case EFFECT_TIER_ASK:
        case EFFECT_TIER_PUT:
        case EFFECT_TIER_END:
        case EFFECT_TIER_DELETE:
        case EFFECT_TIER_TALLY:
            break;          /* these fleets have no second tier */
        }
    }
    while (!list_empty(&done))
        completed(f, CONTAINER_OF(done.next, struct waiter, link));
    struct store_dropped dropped;
    serve_take_dropped(fleet_serve(f, i), &dropped);
    for (unsigned k = 0; k < dropped.count; k++)
        blob_unref(dropped.blobs[k]);
}

/* What happens. */

static void reply(struct fleet *f, struct event *e, bool closed, struct effects *fx)
{
    struct connection *c = fleet_conn(f, e->conn);
    const struct message *m = closed ? NULL : &e->frame.message;

    if (c->asker) {
        struct asker *a = c->asker;
        if (a->conn != e->conn || a->result.done)
            return;
        if (closed)
            fleet_drive(f, a, query_broken(&a->query, false, f->now_ms), fx);
        else
            fleet_reply(f, a, e, fx);
        return;
    }
    if (c->closed)
        return;
    if (!m || (m->kind != MESSAGE_ACCEPTED && m->kind != MESSAGE_WORKING))
        c->closed = true;
    struct node *n = f->stations[c->from].node;
    if (node_call_is_tally(c->call_id))
        node_tally_reply(n, c->call_id, m, e->frame.value, f->now_ms, fleet_wall_ms(f), fx);
    else
        node_reply(n, c->call_id, m, e->frame.value, f->now_ms, fx);
}

/* A call's time is over. Nodes have one connection to another for all their calls; who gives a
 * change up resets it, and the calls behind it fail too. */
static void give_up(struct fleet *f, struct event *e, struct effects *fx)
{
    struct connection late = *fleet_conn(f, e->conn);
    size_t count = f->conn_count;

    reply(f, e, true, fx);
    if (late.closed || !late.changes)
        return;
    for (size_t id = 1; id <= count; id++) {
        const struct connection *c = fleet_conn(f, id);
        struct event behind = {.conn = id};
        if (c->from == late.from && c->to_id == late.to_id && c->call_id)
            reply(f, &behind, true, fx);
    }
}

static void deadline(struct fleet *f, struct event *e, struct effects *fx)
{
    struct asker *a = e->asker;

    if (!a) {
        give_up(f, e, fx);
    } else if (!a->result.done && a->query.due_ms <= f->now_ms) {
        fleet_conn(f, a->conn)->asker = NULL;
        if (fleet_reaches(f, fleet_conn(f, a->conn))) {
            struct message m = {.kind = MESSAGE_CANCEL, .request_id = 1};
            fleet_transmit(f, a->conn, &m, NULL);
        }
        fleet_drive(f, a, query_expired(&a->query, f->now_ms), fx);
    }
}

static void take(struct fleet *f, unsigned i, struct effects *fx)
{
    const struct flight *flight;

    if (f->stations[i].stuck)
        return;
    while ((flight = serve_take(fleet_serve(f, i), false, NULL, f->now_ms, fx)))
        fleet_start_load(f, i, flight->id, NULL, flight->key, flight->ttl_ms, flight->stale_ms);
}

/* The loader ends: its word goes to the flight here and, from a permit's holder, to the
 * owner; a thread has its value by itself. */
static void finish(struct fleet *f, struct event *e, struct effects *fx)
{
    struct serve *s = fleet_serve(f, e->node);
    struct tally_of *t = fleet_loads_of(f, e->key);
    struct asker *a = e->asker;
    char text[128];

    t->ended++;
    snprintf(text, sizeof text, "%s#%u", e->key, t->ended);
    struct blob *value = blob_copy(span_text(text));
    struct loaded item = {.blob = value, .ttl_ms = e->ttl_ms, .stale_ms = e->stale_ms};
    struct answer own = {.outcome = f->loads_fail ? OUTCOME_FAILED : OUTCOME_VALUE,
                         .tier = TIER_LOAD, .blob = blob_ref(value)};
    if (a && a->permitted && fleet_reaches(f, fleet_conn(f, a->conn))) {
        struct message m = {.kind = f->loads_fail ? MESSAGE_RAISED : MESSAGE_LOADED,
                            .request_id = 1, .ttl_ms = f->loads_fail ? 0 : item.ttl_ms,
                            .stale_ms = item.stale_ms, .delete_id = a->permit_delete_id};
        fleet_transmit(f, a->conn, &m, value);
    }
    if (f->loads_fail)
        serve_fail(s, e->load_id, value, 0, f->now_ms, fx);
    else
        serve_finish(s, e->load_id, &item, 1, f->now_ms, fx);
    if (a && a->how & FLEET_THREAD && !a->result.done)
        fleet_settle(f, a, &own);
    else
        answer_deinit(&own);
    blob_unref(value);
}

/* A change that its sender has given up comes late, as over a connection that was reset. */
static void request(struct fleet *f, struct event *e, struct effects *fx)
{
    struct node *n = f->stations[e->node].node;
    const struct message *m = &e->frame.message;

    if (m->kind == MESSAGE_TALLY)
        node_tally_frame(n, e->conn, m, e->frame.value, fleet_wall_ms(f), fx);
    else if (message_is_change(m) && fleet_conn(f, e->conn)->closed)
        node_late_change(n, m, f->now_ms);
    else
        node_frame(n, e->conn, m, e->frame.value, f->now_ms, fx);
}

static void happen(struct fleet *f, struct event *e)
{
    struct station *at = &f->stations[e->node];
    struct effects fx;

    if (at->dead || (e->node_id && at->node_id != e->node_id)) {
        drop_frame(&e->frame);
        return;
    }
    if (at->silent) {
        at->held = fleet_grow(at->held, at->held_count, sizeof *e);
        at->held[at->held_count++] = *e;
        return;
    }
    effects_init(&fx);
    switch (e->kind) {
    case EVENT_REQUEST:
        request(f, e, &fx);
        break;
    case EVENT_REPLY:
        reply(f, e, false, &fx);
        break;
    case EVENT_CLOSED:
        reply(f, e, true, &fx);
        break;
    case EVENT_DEADLINE:
        deadline(f, e, &fx);
        break;
    case EVENT_TAKE:
        take(f, e->node, &fx);
        break;
    case EVENT_FINISH:
        finish(f, e, &fx);
        break;
    }
    drop_frame(&e->frame);
    fleet_apply(f, e->node, &fx);
    effects_deinit(&fx);
}

void fleet_run(struct fleet *f, uint32_t ms)
{
    uint64_t end_ms = f->now_ms + ms;

    while (f->now_ms <= end_ms) {
        while (f->event_count && f->events[0].due_ms <= f->now_ms) {
            struct event e = pop(f);
            happen(f, &e);
        }
        for (unsigned i = 0; i < f->config.nodes; i++) {
            struct effects fx;
            if (!lives(f, i) || f->stations[i].silent ||
                node_serve_due_ms(f->stations[i].node) > f->now_ms)
                continue;
            effects_init(&fx);
            node_serve_tick(f->stations[i].node, f->now_ms, &fx);
            node_tally_tick(f->stations[i].node, f->now_ms, fleet_wall_ms(f), &fx);
            fleet_apply(f, i, &fx);
            effects_deinit(&fx);
        }
        if (f->event_count && f->events[0].due_ms <= f->now_ms)
            continue;
        f->now_ms++;
    }
    f->now_ms = end_ms;
}

/* Faults. */

void fleet_kill(struct fleet *f, unsigned i)
{
    uint64_t node_id = f->stations[i].node_id;

    f->stations[i].dead = true;
    for (size_t id = 1; id <= f->conn_count; id++) {
        struct connection *c = fleet_conn(f, id);
        struct event e = {.kind = EVENT_CLOSED, .conn = id, .node = c->from,
                          .node_id = c->from_id};
        if (c->closed)
            continue;
        if (c->to_id == node_id && c->from_id != node_id) {
            fleet_post(f, f->config.latency_ms, &e);
        } else if (c->from_id == node_id && fleet_reaches(f, c)) {
            struct effects fx;
            effects_init(&fx);
            c->closed = true;
            node_closed(f->stations[c->to].node, id, f->now_ms, &fx);
            fleet_apply(f, c->to, &fx);
            effects_deinit(&fx);
        }
    }
    for (size_t k = 0; k < f->asker_count; k++) {
        struct asker *a = f->askers[k];
        if (a->node_id == node_id && !a->result.done) {
            list_remove(&a->waiter.link);
            a->result.done = true;
            a->result.outcome = OUTCOME_CLOSED;
        }
    }
}

void fleet_start(struct fleet *f, unsigned i)
{
    assert(f->stations[i].dead);
    for (size_t j = 0; j < f->stations[i].held_count; j++)
        drop_frame(&f->stations[i].held[j].frame);
    free(f->stations[i].held);
    node_free(f->stations[i].node);
    f->draining &= ~(1u << i);
    make_node(f, i);
}

void fleet_silence(struct fleet *f, unsigned i, bool silent)
{
    struct station *at = &f->stations[i];

    at->silent = silent;
    for (size_t j = 0; !silent && j < at->held_count; j++)
        fleet_post(f, 0, &at->held[j]);
    if (!silent)
        at->held_count = 0;
}

void fleet_stick(struct fleet *f, unsigned i, bool stuck)
{
    struct event e = {.kind = EVENT_TAKE, .node = i, .node_id = f->stations[i].node_id};

    f->stations[i].stuck = stuck;
    if (!stuck)
        fleet_post(f, 0, &e);
}

void fleet_fail_loads(struct fleet *f, bool fail) { f->loads_fail = fail; }

/* Looking at it. */

struct span fleet_channel(const char *key)
{
    const char *slash = strchr(key, '/');
    return slash ? span_of(key, (size_t)(slash - key)) : span_text(key);
}

unsigned fleet_rank(struct fleet *f, const char *key, unsigned rank)
{
    uint64_t hashes[FLEET_NODES_MAX];
    unsigned who[FLEET_NODES_MAX], order[RANKS_MAX], count = 0;

    for (unsigned i = 0; i < f->config.nodes; i++) {
        if (!lives(f, i))
            continue;
        hashes[count] = serve_member_hash(fleet_serve(f, i), &f->stations[i].addr);
        who[count++] = i;
    }
    unsigned found = rendezvous_rank(hashes, count,
                                     serve_channel_hash(fleet_serve(f, who[0]), fleet_channel(key)),
                                     RANKS_MAX, order);
    assert(rank < found);
    return who[order[rank]];
}

unsigned fleet_loads(const struct fleet *f, const char *key)
{
    return fleet_loads_of((struct fleet *)f, key)->begun;
}

unsigned fleet_loads_ended(const struct fleet *f, const char *key)
{
    return fleet_loads_of((struct fleet *)f, key)->ended;
}

static bool look_up(struct fleet *f, unsigned i, const char *key, struct store_hit *hit)
{
    return store_get(serve_store(fleet_serve(f, i)), span_text(key), f->now_ms, false, hit);
}

bool fleet_holds(struct fleet *f, unsigned i, const char *key)
{
    struct store_hit hit;
    return look_up(f, i, key, &hit);
}

bool fleet_holds_value(struct fleet *f, unsigned i, const char *key, const char *value)
{
    struct store_hit hit;
    return look_up(f, i, key, &hit) && span_equal(hit.bytes, span_text(value));
}

const struct serve_stats *fleet_stats(struct fleet *f, unsigned i)
{
    return serve_stats(fleet_serve(f, i));
}

size_t fleet_flights(struct fleet *f, unsigned i) { return serve_flights(fleet_serve(f, i)); }
