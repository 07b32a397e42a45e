/* Who asks: questions that drive their queries as the product's askers do (see fleet.h). */
#include "fleet_state.h"

#include <stdio.h>
#include <stdlib.h>

struct tally_of *fleet_loads_of(struct fleet *f, const char *key)
{
    for (size_t i = 0; i < f->load_count; i++) {
        if (strcmp(f->loads[i].key, key) == 0)
            return &f->loads[i];
    }
    f->loads = fleet_grow(f->loads, f->load_count, sizeof f->loads[0]);
    struct tally_of *t = &f->loads[f->load_count++];
    *t = (struct tally_of){0};
    snprintf(t->key, sizeof t->key, "%s", key);
    return t;
}

void fleet_start_load(struct fleet *f, unsigned node, uint64_t load_id, struct asker *asker,
                      struct span key, uint32_t ttl_ms, uint32_t stale_ms)
{
    struct event e = {.kind = EVENT_FINISH, .node = node, .node_id = f->stations[node].node_id,
                      .load_id = load_id, .asker = asker, .ttl_ms = ttl_ms,
                      .stale_ms = stale_ms};

    snprintf(e.key, sizeof e.key, "%.*s", (int)key.bytes, (const char *)key.at);
    fleet_loads_of(f, e.key)->begun++;
    fleet_post(f, f->config.load_ms, &e);
}

/* The asker runs its own loader. */
void fleet_load_by(struct fleet *f, struct asker *a, uint64_t load_id)
{
    const struct message *ask = &a->question.ask;

    a->load_id = load_id;
    fleet_start_load(f, a->node, load_id, a, ask->key, ask->ttl_ms, ask->stale_ms);
}

static void finish_ask(struct fleet *f, struct asker *a, const struct answer *answer)
{
    a->result.done = true;
    a->result.outcome = answer->outcome;
    a->result.tier = answer->tier;
    a->result.done_ms = f->now_ms;
    if (answer->blob)
        snprintf(a->result.value, sizeof a->result.value, "%.*s", (int)answer->blob->bytes,
                 (const char *)answer->blob->at);
}

static void begin_ask(struct fleet *f, struct asker *a);
void fleet_drive(struct fleet *f, struct asker *a, enum query_step step, struct effects *fx);

/* What came of asking, by return or later. */
void fleet_settle(struct fleet *f, struct asker *a, struct answer *answer)
{
    switch (answer->outcome) {
    case OUTCOME_WAIT:
        break;
    case OUTCOME_RETRY:
        begin_ask(f, a);
        break;
    case OUTCOME_LOAD:
        fleet_load_by(f, a, answer->load_id);
        break;
    default:
        finish_ask(f, a, answer);
        break;
    }
    answer_deinit(answer);
}

static void send_question(struct fleet *f, struct asker *a)
{
    const struct query_rank *rank = query_at(&a->query);
    struct message m = a->question.ask;

    query_fill(&a->query, f->now_ms, &m);
    m.request_id = 1;
    a->conn = fleet_connect(f, a->node, &rank->addr, rank->node_id);
    fleet_conn(f, a->conn)->asker = a;
    a->sent_ms = f->now_ms;
    bundle_unref(a->gathered);
    a->gathered = NULL;
    if (fleet_reaches(f, fleet_conn(f, a->conn))) {
        fleet_transmit(f, a->conn, &m, NULL);
    } else {
        struct event e = {.kind = EVENT_CLOSED, .conn = a->conn, .node = a->node,
                          .node_id = a->node_id};
        fleet_post(f, f->config.latency_ms, &e);
    }
}

static void expect(struct fleet *f, struct asker *a)
{
    struct event e = {.kind = EVENT_DEADLINE, .asker = a, .node = a->node, .node_id = a->node_id};

    if (a->query.due_ms != NEVER_MS)
        fleet_post(f, a->query.due_ms - f->now_ms, &e);
}

void fleet_drive(struct fleet *f, struct asker *a, enum query_step step, struct effects *fx)
{
    struct serve *s = fleet_serve(f, a->node);
    struct answer out = {.outcome = OUTCOME_WAIT};
    bool thread = a->how & FLEET_THREAD;

    serve_peer(s, &a->query.verdict_of, a->query.verdict, f->now_ms);
    /* What its connection still brings is for nobody: the query is over. */
    if (a->conn && step != QUERY_SEND && step != QUERY_WAIT)
        fleet_conn(f, a->conn)->asker = NULL;
    switch (step) {
    case QUERY_SEND:
        send_question(f, a);
        expect(f, a);
        return;
    case QUERY_WAIT:
        expect(f, a);
        return;
    case QUERY_MISSED:
        serve_answered_miss(s, a->load_id, f->now_ms, fx);
        out.outcome = OUTCOME_MISS;
        break;
    case QUERY_RECURSIVE:
        serve_lose(s, a->load_id, f->now_ms, fx);
        out.outcome = OUTCOME_RECURSIVE;
        break;
    case QUERY_PERMITTED:
    case QUERY_OWN:
    case QUERY_LOAD:
        a->permitted = step == QUERY_PERMITTED;
        serve_answered_load(s, a->load_id, step, thread, &a->waiter, f->now_ms, &out, fx);
        fleet_settle(f, a, &out);
        return;
    case QUERY_ANSWERED:
        assert(0);      /* the caller has the frame */
    }
    if (thread)
        fleet_settle(f, a, &out);
}

static void begin_ask(struct fleet *f, struct asker *a)
{
    struct query_rank ranks[RANKS_MAX];
    struct answer answer;
    unsigned count;
    struct effects fx;

    if (a->left)
        return;
    effects_init(&fx);
    a->permitted = false;
    a->waiter.token = a;
    a->waiter.port = a;
    serve_ask(fleet_serve(f, a->node), &a->question, &a->waiter, f->now_ms, &answer, ranks, &count,
              &fx);
    if (answer.outcome == OUTCOME_ASK) {
        a->load_id = answer.load_id;
        enum query_step step = query_begin(&a->query, ranks, count, a->waiter.loads,
                                           f->config.timeout_ms, f->config.load_timeout_ms,
                                           f->now_ms);
        query_know_delete(&a->query, answer.delete_id, answer.deleted_ms);
        fleet_drive(f, a, step, &fx);
    } else {
        fleet_settle(f, a, &answer);
    }
    fleet_apply(f, a->node, &fx);
    effects_deinit(&fx);
}

const struct fleet_ask *fleet_ask(struct fleet *f, unsigned i, const char *key, unsigned how,
                                  uint32_t ttl_ms, uint32_t stale_ms)
{
    struct asker *a = calloc(1, sizeof *a);

    f->askers = fleet_grow(f->askers, f->asker_count, sizeof(struct asker *));
    if (!a)
        abort();
    f->askers[f->asker_count++] = a;
    a->node = i;
    a->node_id = f->stations[i].node_id;
    a->how = how;
    a->result.asked_ms = f->now_ms;
    snprintf(a->key, sizeof a->key, "%s", key);
    struct span channel = fleet_channel(a->key);
    a->question.run_inline = how & FLEET_THREAD;
    a->question.fresh = how & FLEET_FRESH;
    a->question.ask = (struct message){
        .key = span_text(a->key),
        .channel = channel.bytes == strlen(a->key) ? SPAN_NONE : channel,
        .loader = how & FLEET_REGISTERED ? span_text("registered") : SPAN_NONE,
        .flags = (uint8_t)((how & (FLEET_LOADS | FLEET_REGISTERED) ? MESSAGE_LOADS : 0) |
                           (how & FLEET_FRESH ? MESSAGE_FRESH : 0)),
        .ttl_ms = ttl_ms,
        .stale_ms = stale_ms,
        .load_timeout_ms = f->config.load_timeout_ms,
    };
    list_init(&a->waiter.link);
    begin_ask(f, a);
    return &a->result;
}

void fleet_leave(struct fleet *f, const struct fleet_ask *ask)
{
    struct asker *a = CONTAINER_OF(ask, struct asker, result);
    struct effects fx;

    effects_init(&fx);
    a->left = true;
    serve_leave(fleet_serve(f, a->node), &a->waiter, f->now_ms, &fx);
    fleet_apply(f, a->node, &fx);
    effects_deinit(&fx);
}

static const struct fleet_change *change(struct fleet *f, unsigned i, const struct message *name,
                                         bool by_channel, const struct loaded *item)
{
    struct changer *c = calloc(1, sizeof *c);
    struct effects fx;

    f->changers = fleet_grow(f->changers, f->changer_count, sizeof(struct changer *));
    if (!c)
        abort();
    f->changers[f->changer_count++] = c;
    effects_init(&fx);
    node_change(f->stations[i].node, name, by_channel, item, &c->waiter, f->now_ms, &fx);
    fleet_apply(f, i, &fx);
    effects_deinit(&fx);
    return &c->result;
}

static struct message name_of(const char *key)
{
    struct span channel = fleet_channel(key);

    return (struct message){.key = span_text(key),
                            .channel = channel.bytes == strlen(key) ? SPAN_NONE : channel};
}

const struct fleet_change *fleet_delete(struct fleet *f, unsigned i, const char *key)
{
    struct message name = name_of(key);
    return change(f, i, &name, false, NULL);
}

const struct fleet_change *fleet_set(struct fleet *f, unsigned i, const char *key,
                                     const char *value, uint32_t ttl_ms)
{
    struct message name = name_of(key);
    struct loaded item = {.key = name.key, .blob = blob_copy(span_text(value)), .ttl_ms = ttl_ms};
    const struct fleet_change *c;

    if (!item.blob)
        abort();
    c = change(f, i, &name, false, &item);
    blob_unref(item.blob);
    return c;
}

const struct fleet_change *fleet_delete_channel(struct fleet *f, unsigned i, const char *channel)
{
    struct message name = {.key = span_text(channel)};
    return change(f, i, &name, true, NULL);
}

void fleet_reply(struct fleet *f, struct asker *a, struct event *e, struct effects *fx)
{
    struct serve *s = fleet_serve(f, a->node);
    const struct message *m = &e->frame.message;

    if (m->kind != MESSAGE_VALUE && m->kind != MESSAGE_FAILED) {
        if (m->kind == MESSAGE_PERMIT)
            a->permit_delete_id = m->delete_id;
        fleet_drive(f, a, query_frame(&a->query, m->kind, f->now_ms), fx);
        return;
    }
    if (m->kind == MESSAGE_VALUE &&
        query_value_is_deleted(&a->query, m->delete_id, m->age_ms, f->now_ms)) {
        fleet_drive(f, a, query_deleted(&a->query, f->now_ms), fx);
        return;
    }
    struct loaded item = {.key = m->key, .blob = e->frame.value, .value_type = m->value_type,
                          .ttl_ms = m->ttl_ms, .stale_ms = m->stale_ms, .age_ms = m->age_ms};
    struct answer out = {.outcome = OUTCOME_VALUE, .tier = TIER_OWNER,
                         .blob = blob_ref(e->frame.value)};
    query_frame(&a->query, m->kind, f->now_ms);
    serve_peer(s, &a->query.verdict_of, PEER_FINE, f->now_ms);
    if (m->kind == MESSAGE_VALUE) {
        serve_answered(s, a->load_id, &item, 1, m->delete_id,
                       a->query.rank ? TIER_HEIR : TIER_OWNER, a->sent_ms, f->now_ms, fx);
    } else {
        out.outcome = OUTCOME_FAILED;
        serve_answered_error(s, a->load_id, e->frame.value, f->now_ms, fx);
    }
    if (a->how & FLEET_THREAD)
        fleet_settle(f, a, &out);
    else
        answer_deinit(&out);
}
