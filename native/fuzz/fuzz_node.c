/* A sequence of events at a whole node without membership of its own: frames from four
 * connections, answers to its calls, lost connections, views of the members, time, loads
 * taken and ended, questions and changes of its own. What comes from peers is arbitrary;
 * what its own process does keeps to serve.h and node.h. Whatever happens nothing is
 * asserted, leaked or touched after it is gone, and what is answered was asked.
 */
#include <stdlib.h>

#include "core/mem.h"
#include "core/node.h"
#include "core/node_tally.h"

#define CONNS 4u
#define WALL_MS 1700000000000u
#define PEERS 4u            /* the node itself is the first */
#define HELD_MAX 32u
#define CALLS_MAX 64u
#define WAITERS 8u

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

struct asker {
    struct waiter waiter;
    struct message ask;
    bool changes;           /* waits for a change, not for a value */
    bool waits;
};

struct world {
    struct node *node;
    struct reader in;
    uint64_t now_ms;
    struct effects fx;
    uint64_t held[HELD_MAX];        /* loads that this process runs */
    uint64_t asking[HELD_MAX];      /* loads whose query this process drives */
    uint64_t calls[CALLS_MAX];
    unsigned held_count, asking_count, call_count;
    struct asker askers[WAITERS];
};

static const char *const keys[] = {"a=1", "a=2", "pages:page:sx", "b:f:n"};
static const char *const channels[] = {"", "c", "d"};
static const char *const loaders[] = {"", "registered", "async", "unknown"};

static uint64_t pick_ms(struct world *w)
{
    static const uint32_t table[] = {0, 1, 100, 250, 10000, 3600000, UINT32_MAX - 1, UINT32_MAX};
    return table[take_u8(&w->in) % ARRAY_COUNT(table)];
}

static struct message pick_message(struct world *w)
{
    struct message m = {
        .kind = (uint8_t)(MESSAGE_ASK + take_u8(&w->in) % (MESSAGE_RECURSIVE - MESSAGE_ASK + 2)),
        .flags = take_u8(&w->in) & MESSAGE_FLAGS_KNOWN,
    };
    uint8_t names = take_u8(&w->in), more = take_u8(&w->in);

    m.key = span_text(keys[names % ARRAY_COUNT(keys)]);
    m.channel = span_text(channels[names / 4 % ARRAY_COUNT(channels)]);
    m.loader = span_text(loaders[names / 16 % ARRAY_COUNT(loaders)]);
    m.request_id = more % 4;
    m.delete_id = more / 4 % 4;
    m.value_type = more / 16 % VALUE_TYPE_COUNT;
    m.budget_ms = (uint32_t)pick_ms(w);
    m.load_timeout_ms = (uint32_t)pick_ms(w);
    m.ttl_ms = (uint32_t)pick_ms(w);
    m.stale_ms = (uint32_t)pick_ms(w);
    m.age_ms = (uint32_t)pick_ms(w);
    m.chain_count = names / 64 == 3 ? CHAIN_MAX : names / 64;
    for (unsigned i = 0; i < m.chain_count; i++)
        m.chain[i] = serve_channel_hash(node_serve(w->node), span_text(keys[(i + more) % 4]));
    return m;
}

/* A value of few bytes, or what the input has, or NULL where the kind allows it: the shell
 * hands over an empty blob where a kind's value has no bytes. */
static struct blob *pick_value(struct world *w, const struct message *m)
{
    static const uint8_t carry[] = {MESSAGE_VALUE, MESSAGE_FAILED, MESSAGE_LOADED,
                                    MESSAGE_RAISED, MESSAGE_PUSH};
    uint8_t n = take_u8(&w->in);

    if (n == 0) {
        bool carries = m->flags & MESSAGE_SET || memchr(carry, m->kind, sizeof carry);
        return carries ? blob_new(0) : NULL;
    }
    struct span s = take_span(&w->in, min_size(n % 80, reader_left(&w->in)));
    struct blob *b = blob_copy(n & 0x80 ? s : span_text("a value"));
    if (!b)
        abort();
    return b;
}

static void hold(uint64_t *ids, unsigned *count, uint64_t id)
{
    ids[*count < HELD_MAX ? (*count)++ : 0] = id;
}

static uint64_t let_go(struct world *w, uint64_t *ids, unsigned *count)
{
    uint8_t n = take_u8(&w->in);

    if (*count == 0 || n >= 0xf0)
        return n;               /* an id that never was, or is long over */
    unsigned i = n % *count;
    uint64_t id = ids[i];
    ids[i] = ids[--*count];
    return id;
}

static void check_answer(const struct effect *e)
{
    if (e->conn_id == 0 || e->conn_id > CONNS || e->message.request_id >= 4)
        abort();                /* nobody asked */
    if (e->message.kind == MESSAGE_VALUE && !e->value)
        abort();
}

static void completed(struct waiter *waiter)
{
    static struct node_report report;
    struct asker *a = CONTAINER_OF(waiter, struct asker, waiter);

    if (!a->waits)
        abort();
    if (a->changes && waiter->answer.blob)  /* a peer's word for who acknowledged */
        node_report_read(blob_span(waiter->answer.blob), &report);
    a->waits = false;
    list_remove(&waiter->link);
    answer_deinit(&waiter->answer);
    memset(waiter, 0, sizeof *waiter);
}

static void carry_out(struct world *w)
{
    struct store_dropped dropped;

    for (size_t i = 0; i < w->fx.count; i++) {
        const struct effect *e = &w->fx.at[i];
        switch (e->kind) {
        case EFFECT_ANSWER:
            check_answer(e);
            break;
        case EFFECT_CALL:
            /* More than we follow: those run into their deadline. */
            if (w->call_count < CALLS_MAX)
                w->calls[w->call_count++] = e->call_id;
            break;
        case EFFECT_LOAD_HERE:
            hold(w->held, &w->held_count, e->load_id);
            break;
        case EFFECT_LOADS:
        case EFFECT_CANCEL_LOAD:
        case EFFECT_GONE:
        case EFFECT_TIER_ASK:
        case EFFECT_TIER_PUT:
        case EFFECT_TIER_END:
        case EFFECT_TIER_DELETE:
        case EFFECT_TIER_TALLY:
            break;
        }
    }
    while (!list_empty(&w->fx.completed))
        completed(CONTAINER_OF(w->fx.completed.next, struct waiter, link));
    effects_clear(&w->fx);
    serve_take_dropped(node_serve(w->node), &dropped);
    for (unsigned i = 0; i < dropped.count; i++)
        blob_unref(dropped.blobs[i]);
}

static void frame(struct world *w, uint64_t conn_id)
{
    struct message m = pick_message(w);
    struct blob *value = pick_value(w, &m);

    if (m.kind == MESSAGE_TALLY)
        node_tally_frame(w->node, conn_id, &m, value, WALL_MS + w->now_ms, &w->fx);
    else if (m.kind != MESSAGE_TABLE)       /* the loop's (node_table) */
        node_frame(w->node, conn_id, &m, value, w->now_ms, &w->fx);
    blob_unref(value);
}

static void reply(struct world *w, bool lost)
{
    if (w->call_count == 0)
        return;
    unsigned i = take_u8(&w->in) % w->call_count;
    uint64_t id = w->calls[i];
    struct message m = pick_message(w);
    struct blob *value = lost ? NULL : pick_value(w, &m);
    bool interim = m.kind == MESSAGE_ACCEPTED || m.kind == MESSAGE_WORKING;

    if (lost || (!interim && !(m.flags & MESSAGE_MORE)))
        w->calls[i] = w->calls[--w->call_count];
    if (node_call_is_tally(id))
        node_tally_reply(w->node, id, lost ? NULL : &m, value, w->now_ms, WALL_MS + w->now_ms,
                         &w->fx);
    else
        node_reply(w->node, id, lost ? NULL : &m, value, w->now_ms, &w->fx);
    blob_unref(value);
}

static struct addr addr_of(unsigned i)
{
    struct addr a;
    addr_parse("10.0.0.1:7946", &a);
    a.ip[15] = (uint8_t)(1 + i);
    return a;
}

static void see(struct world *w)
{
    uint8_t members = take_u8(&w->in), states = take_u8(&w->in);
    struct view *v = view_new(PEERS);

    if (!v)
        abort();
    v->phase = (enum phase)(states & 3);
    for (unsigned i = 0; i < PEERS; i++) {
        if (i && !(members >> i & 1))
            continue;
        v->members[v->count] = (struct view_member){
            .addr = addr_of(i), .node_id = 1 + i + (members >> 4), .self = i == 0,
            .warming = states >> 2 & 1, .draining = i == 1 && states >> 3 & 1,
            .observer = i == 2 && states >> 4 & 1, .coordinates = true,
        };
        v->members[v->count].hash =
            serve_member_hash(node_serve(w->node), &v->members[v->count].addr);
        v->count++;
    }
    view_finish(v);
    node_set_view(w->node, v, w->now_ms, &w->fx);
}

static void tally(struct world *w)
{
    struct tally_name n = {span_text("hits"), span_text(keys[take_u8(&w->in) % 4]), 60000};
    uint64_t total;
    bool added;

    node_tally_add(w->node, &n, take_u8(&w->in), UINT64_MAX, WALL_MS + w->now_ms, &total, &added);
}

static void take_load(struct world *w)
{
    uint8_t how = take_u8(&w->in);
    const struct flight *f = serve_take(node_serve(w->node), how & 1, how & 1 ? w : NULL,
                                        w->now_ms, &w->fx);
    if (f)
        hold(w->held, &w->held_count, f->id);
}

static void end_load(struct world *w)
{
    uint64_t id = let_go(w, w->held, &w->held_count);
    uint8_t how = take_u8(&w->in);
    struct serve *s = node_serve(w->node);
    struct blob *value = blob_copy(span_text("loaded"));
    struct loaded items[2] = {
        {.key = span_text(keys[how / 4 % 4]), .blob = value, .ttl_ms = (uint32_t)pick_ms(w)},
        {.key = span_text(keys[how / 16 % 4]), .blob = value, .ttl_ms = 500, .stale_ms = 500},
    };

    if (!value)
        abort();
    if (how % 4 < 2)
        serve_finish(s, id, items, 1 + how % 4, w->now_ms, &w->fx);
    else if (how % 4 == 2)
        serve_fail(s, id, value, (uint32_t)pick_ms(w), w->now_ms, &w->fx);
    else
        serve_lose(s, id, w->now_ms, &w->fx);
    blob_unref(value);
}

static struct asker *free_asker(struct world *w)
{
    for (unsigned i = 0; i < WAITERS; i++) {
        if (!w->askers[i].waits)
            return &w->askers[i];
    }
    return NULL;
}

static void ask(struct world *w)
{
    struct asker *a = free_asker(w);
    struct question q = {.ask = pick_message(w)};
    struct query_rank ranks[RANKS_MAX];
    struct answer answer;
    unsigned count;

    if (!a)
        return;
    q.fresh = q.ask.flags & MESSAGE_FRESH;
    a->ask = q.ask;
    a->changes = false;
    a->waits = true;
    a->waiter.port = w;
    a->waiter.token = a;
    serve_ask(node_serve(w->node), &q, &a->waiter, w->now_ms, &answer, ranks, &count, &w->fx);
    if (answer.outcome == OUTCOME_ASK) {
        if (count == 0 || count > RANKS_MAX)
            abort();
        hold(w->asking, &w->asking_count, answer.load_id);
    } else if (answer.outcome == OUTCOME_LOAD) {
        hold(w->held, &w->held_count, answer.load_id);
    } else if (answer.outcome != OUTCOME_WAIT) {
        a->waits = false;
        if (a->waiter.flight)
            abort();
        memset(&a->waiter, 0, sizeof a->waiter);
    }
    answer_deinit(&answer);
}

/* A query that this process drives comes to its end. */
static void answered(struct world *w)
{
    struct serve *s = node_serve(w->node);
    uint64_t id = let_go(w, w->asking, &w->asking_count);
    struct message m = pick_message(w);
    struct blob *value = blob_copy(span_text("answered"));
    struct loaded item = {.key = m.key, .blob = value, .ttl_ms = m.ttl_ms,
                          .stale_ms = m.stale_ms, .age_ms = m.age_ms};

    if (!value)
        abort();
    switch (m.kind % 4) {
    case 0:
        serve_answered(s, id, &item, 1, m.delete_id, TIER_OWNER, w->now_ms, w->now_ms, &w->fx);
        break;
    case 1:
        serve_answered_error(s, id, value, w->now_ms, &w->fx);
        break;
    case 2:
        serve_answered_miss(s, id, w->now_ms, &w->fx);
        break;
    default:
        serve_lose(s, id, w->now_ms, &w->fx);
    }
    blob_unref(value);
}

static void change(struct world *w)
{
    struct asker *a = free_asker(w);
    struct message name = pick_message(w);
    struct blob *value = pick_value(w, &name);
    struct loaded item = {.blob = value, .ttl_ms = name.ttl_ms, .stale_ms = name.stale_ms};

    if (a) {
        a->changes = true;
        a->waits = true;
        a->waiter.port = w;
        a->waiter.token = a;
        node_change(w->node, &name, name.flags & MESSAGE_BY_CHANNEL, value ? &item : NULL,
                    &a->waiter, w->now_ms, &w->fx);
    }
    blob_unref(value);
}

static void leave(struct world *w, struct asker *a)
{
    if (!a->waits)
        return;
    if (a->changes)
        node_change_leave(w->node, &a->waiter);
    else
        serve_leave(node_serve(w->node), &a->waiter, w->now_ms, &w->fx);
    answer_deinit(&a->waiter.answer);
    memset(&a->waiter, 0, sizeof a->waiter);
    a->waits = false;
}

static void step(struct world *w)
{
    uint8_t what = take_u8(&w->in);

    switch (what % 16) {
    case 0: case 1: case 2: case 3:
        frame(w, 1 + what / 16 % CONNS);
        break;
    case 4: case 5:
        reply(w, false);
        break;
    case 6:
        reply(w, true);
        break;
    case 7:
        node_closed(w->node, 1 + what / 16 % CONNS, w->now_ms, &w->fx);
        break;
    case 8:
        w->now_ms += (uint64_t)take_u8(&w->in) * 40;
        node_serve_tick(w->node, w->now_ms, &w->fx);
        node_tally_tick(w->node, w->now_ms, WALL_MS + w->now_ms, &w->fx);
        break;
    case 9:
        see(w);
        break;
    case 10:
        take_load(w);
        break;
    case 11:
        end_load(w);
        break;
    case 12:
        ask(w);
        break;
    case 13:
        answered(w);
        break;
    case 14:
        if (what == 0xfe)
            serve_drop_all(node_serve(w->node));
        else if (what == 0xee)
            tally(w);
        else
            change(w);
        break;
    default:
        leave(w, &w->askers[what / 16 % WAITERS]);
    }
    carry_out(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    struct world w = {.in = reader_of(span_of(in, bytes)), .now_ms = 1000000};
    struct node_config config = {
        .serve = {.label = span_text("x"), .cache_bytes = 1u << 16, .timeout_ms = 250,
                  .load_timeout_ms = 10000, .heir = true},
        .seed = 1,
    };

    if (node_new(&w.node, &config, w.now_ms) != 0)
        abort();
    effects_init(&w.fx);
    serve_register(node_serve(w.node), span_text("registered"), false);
    serve_register(node_serve(w.node), span_text("async"), true);
    serve_start_loop(node_serve(w.node), bytes & 1);
    while (!w.in.failed && reader_left(&w.in))
        step(&w);

    for (unsigned i = 0; i < WAITERS; i++)
        leave(&w, &w.askers[i]);
    for (uint64_t id = 1; id <= CONNS; id++)
        node_closed(w.node, id, w.now_ms, &w.fx);
    carry_out(&w);
    /* Every load and call ends by its time alone. */
    for (unsigned i = 0; i < 8; i++) {
        w.now_ms += 3600000;
        node_serve_tick(w.node, w.now_ms, &w.fx);
        carry_out(&w);
    }
    node_free(w.node);
    effects_deinit(&w.fx);
    return 0;
}
