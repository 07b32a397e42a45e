/* Deletes and sets over the whole fleet (rules D1-D4; a set is a delete that brings the new
 * value).
 *
 * Whoever wants one asks the key's owner to run it; if the owner is silent the heir runs it,
 * else the asker itself. Running: apply it here, send it to every live member, those who
 * become live before the end too, and report who acknowledged. Changes of one key that overlap
 * end with the same one everywhere: the one with the greatest id. Every call has its own
 * deadline, so a change ends in bounded time. The second tier, where there is one, is told
 * and reported like a member (D5); its address is all zero.
 */
#include "node_state.h"

#include "limits.h"
#include "mem.h"

/* A member that did not acknowledge is tried once more, on a fresh connection. */
#define TRIES 2u
/* So often a change is run anew because somebody knew of a later one: once where clocks are apart,
 * a few times where others change the same key at the same moment. */
#define RUNS_MAX 4u
#define TIER_TARGET 0xffffffu     /* in call ids: the second tier */

enum tier_state { TIER_NOT_ASKED, TIER_ASKED, TIER_ACKNOWLEDGED, TIER_UNREACHED };

struct target {
    struct addr addr;
    uint64_t node_id;
    uint8_t tries;
    bool acknowledged, failed;
    bool missed;                    /* an entry that was stored with the key (D4) */
};

struct change {
    struct list link;
    uint64_t number;                /* in its call ids */
    bool by_channel, running;
    unsigned runs;                  /* anew each time under a later id */
    struct loaded item;             /* a set's value; its blob is a reference; key unset */
    uint64_t delete_id;
    struct waiter *waiter;          /* who asked here, NULL: a peer, or gone */
    uint64_t conn_id, request_id;   /* the peer that asked; conn_id 0: none */
    struct query_rank ranks[RANKS_MAX];
    unsigned rank_count, rank;
    struct target *targets;
    unsigned target_count;
    enum tier_state tier;
    bool tier_missed;
    struct change *parent;          /* this one is of an entry stored with the parent's key */
    unsigned pending;               /* such changes under way, and while run() runs */
    struct span key, channel;       /* own copies, behind the struct */
};

/* Delete ids are ordered, so that of two changes of a key every node keeps the same one, in
 * whatever order it hears of them. An id is the wall's time where the change is run, but beyond
 * every id that this node has drawn, heard of, or remembers of the key (a hybrid logical clock:
 * Kulkarni et al., "Logical Physical Clocks", OPODIS 2014, section 3): a change that was
 * acknowledged everywhere before another began has the lesser id. The low bits are random: no
 * two nodes draw the same. A node that started when the other was over may have heard of nothing,
 * and its clock be behind: who remembers a greater id says so with its acknowledgement, and the
 * change is run once more, under one beyond it. */
#define ID_TIME_SHIFT 20u
#define ID_STEP 1024u

static uint64_t id_of_time(const struct node *n, uint64_t now_ms)
{
    return (n->wall_ahead_ms + now_ms) << ID_TIME_SHIFT;
}

static uint64_t next_delete_id(struct node *n, struct span key, struct span channel,
                               uint64_t now_ms)
{
    uint64_t id = id_of_time(n, now_ms) + prng_below(&n->prng, UINT64_C(1) << ID_TIME_SHIFT);
    uint64_t step = 1 + prng_below(&n->prng, ID_STEP);

    n->last_delete_id = max_u64(id, n->last_delete_id + step);
    return max_u64(n->last_delete_id, serve_last_delete(n->serve, key, channel, now_ms) + step);
}

/* What is further ahead than a clock may be is one member's error, or lie: for its key alone it
 * counts. */
static void heard_delete_id(struct node *n, uint64_t id, uint64_t now_ms)
{
    if (id < id_of_time(n, now_ms + 2 * CLOCK_SKEW_MS_MAX))
        n->last_delete_id = max_u64(n->last_delete_id, id);
}

static struct change *change_new(struct node *n, const struct message *name, bool by_channel,
                                 const struct loaded *item)
{
    struct span channel = message_channel(name);
    struct change *c = mem_zalloc(sizeof *c + name->key.bytes + channel.bytes);

    if (!c)
        return NULL;
    uint8_t *at = (uint8_t *)(c + 1);
    c->key = span_of(at, name->key.bytes);
    c->channel = span_of(at + name->key.bytes, channel.bytes);
    if (name->key.bytes)
        memcpy(at, name->key.at, name->key.bytes);
    if (channel.bytes)
        memcpy(at + name->key.bytes, channel.at, channel.bytes);
    c->number = ++n->change_count & 0xffffffffu;
    c->by_channel = by_channel;
    if (item) {
        c->item = *item;
        blob_ref(item->blob);
    }
    list_add_tail(&n->changes, &c->link);
    return c;
}

static void change_free(struct change *c)
{
    list_remove(&c->link);
    blob_unref(c->item.blob);
    mem_free(c->targets);
    mem_free(c);
}

void changes_free(struct node *n)
{
    LIST_FOREACH_SAFE(&n->changes, link)
        change_free(CONTAINER_OF(link, struct change, link));
}

/* The report. */

static bool has_all(const struct target *t) { return t->acknowledged && !t->missed; }

static enum tier_state tier_of(const struct change *c)
{
    return c->tier_missed && c->tier == TIER_ACKNOWLEDGED ? TIER_UNREACHED : c->tier;
}

/* count acknowledged 2, count unreached 2, then their addresses, 18 each. The node that ran
 * the change has acknowledged. */
static struct blob *report(struct node *n, const struct change *c)
{
    const struct view *v = serve_view(n->serve);
    bool self = v && v->self >= 0;
    unsigned acknowledged = self ? 1 : 0, unreached = 0;
    static const struct addr tier;

    acknowledged += tier_of(c) == TIER_ACKNOWLEDGED;
    unreached += tier_of(c) == TIER_UNREACHED;

    for (unsigned i = 0; i < c->target_count; i++) {
        acknowledged += has_all(&c->targets[i]);
        unreached += !has_all(&c->targets[i]);
    }
    struct blob *b = blob_new(4 + 18 * (size_t)(acknowledged + unreached));
    if (!b)
        return NULL;
    struct writer w = writer_of(blob_fill(b), b->bytes);
    put_u16(&w, (uint16_t)acknowledged);
    put_u16(&w, (uint16_t)unreached);
    if (self)
        put_addr(&w, &v->members[v->self].addr);
    for (int pass = 1; pass >= 0; pass--) {
        if (tier_of(c) == (pass ? TIER_ACKNOWLEDGED : TIER_UNREACHED))
            put_addr(&w, &tier);
        for (unsigned i = 0; i < c->target_count; i++) {
            if (has_all(&c->targets[i]) == (bool)pass)
                put_addr(&w, &c->targets[i].addr);
        }
    }
    return b;
}

bool node_report_read(struct span in, struct node_report *out)
{
    struct reader r = reader_of(in);
    unsigned acknowledged = take_u16(&r), unreached = take_u16(&r);

    out->acknowledged_count = out->unreached_count = 0;
    if (r.failed || reader_left(&r) != 18 * (size_t)(acknowledged + unreached))
        return false;
    for (unsigned i = 0; i < acknowledged; i++) {
        struct addr a = take_addr(&r);
        if (out->acknowledged_count < ARRAY_COUNT(out->acknowledged))
            out->acknowledged[out->acknowledged_count++] = a;
    }
    for (unsigned i = 0; i < unreached; i++) {
        struct addr a = take_addr(&r);
        if (out->unreached_count < ARRAY_COUNT(out->unreached))
            out->unreached[out->unreached_count++] = a;
    }
    return take_done(&r);
}

/* Tell who asked; `told` is the report, NULL: out of memory. */
static void conclude(struct change *c, struct blob *told, struct effects *fx)
{
    struct waiter *w = c->waiter;

    if (w) {
        list_remove(&w->link);
        w->answer = (struct answer){.outcome = told ? OUTCOME_VALUE : OUTCOME_NOMEM,
                                    .blob = blob_ref(told)};
        list_add_tail(&fx->completed, &w->link);
    } else if (c->conn_id && told) {
        struct message m = {.kind = MESSAGE_DELETED, .request_id = c->request_id,
                            .delete_id = c->delete_id};
        effects_answer(fx, c->conn_id, &m, told);
    }
    change_free(c);
}

/* Running it. */

static uint64_t call_id(const struct change *c, unsigned target)
{
    return CALL_CHANGE | c->number << 24 | target;
}

static void send_drop(struct node *n, struct change *c, unsigned i, struct effects *fx)
{
    struct target *t = &c->targets[i];
    struct message m = {
        .kind = MESSAGE_DROP,
        .key = c->key,
        .channel = span_equal(c->key, c->channel) ? SPAN_NONE : c->channel,
        .flags = (uint8_t)(c->by_channel ? MESSAGE_BY_CHANNEL : 0),
        .delete_id = c->delete_id,
        .budget_ms = n->timeout_ms,
    };
    /* The value goes to the owner and the heir alone; the others drop theirs (D4). */
    bool keeps = c->item.blob && serve_keeps(n->serve, c->channel, &t->addr);

    if (keeps) {
        m.flags |= MESSAGE_SET;
        m.value_type = c->item.value_type;
        m.ttl_ms = c->item.ttl_ms;
        m.stale_ms = c->item.stale_ms;
    }
    t->tries++;
    effects_call(fx, call_id(c, i), &t->addr, t->node_id, n->timeout_ms, &m,
                 keeps ? c->item.blob : NULL);
}

static bool has_target(const struct change *c, uint64_t node_id)
{
    for (unsigned i = 0; i < c->target_count; i++) {
        if (c->targets[i].node_id == node_id)
            return true;
    }
    return false;
}

static void add_targets(struct node *n, struct change *c, struct effects *fx)
{
    const struct view *v = serve_view(n->serve);

    for (unsigned i = 0; v && i < v->count; i++) {
        const struct view_member *m = &v->members[i];
        if (m->self || m->observer || has_target(c, m->node_id))
            continue;
        struct target *grown = mem_resize(c->targets, (c->target_count + 1) * sizeof *grown);
        if (!grown)
            return;
        c->targets = grown;
        c->targets[c->target_count] = (struct target){.addr = m->addr, .node_id = m->node_id};
        send_drop(n, c, c->target_count++, fx);
    }
}

static void tell_tier(struct node *n, struct change *c, struct effects *fx)
{
    struct message m = {
        .key = c->key,
        .channel = c->channel,
        .flags = (uint8_t)(c->by_channel ? MESSAGE_BY_CHANNEL : 0),
        .delete_id = c->delete_id,
        .value_type = c->item.value_type,
        .ttl_ms = c->item.ttl_ms,
        .stale_ms = c->item.stale_ms,
    };

    if (!serve_has_tier(n->serve))
        return;
    c->tier = TIER_ASKED;
    /* As long as the members are given: whoever asked this node to run it waits no longer. */
    effects_tier_delete(fx, call_id(c, TIER_TARGET), TRIES * n->timeout_ms, &m, c->item.blob);
}

static bool all_told(const struct change *c)
{
    if (c->tier == TIER_ASKED || c->pending)
        return false;
    for (unsigned i = 0; i < c->target_count; i++) {
        if (!c->targets[i].acknowledged && !c->targets[i].failed)
            return false;
    }
    return true;
}

/* Who has acknowledged the key but not what was stored with it has not acknowledged. */
static void tell_parent(const struct change *c, struct change *parent)
{
    for (unsigned i = 0; i < c->target_count; i++) {
        for (unsigned j = 0; !c->targets[i].acknowledged && j < parent->target_count; j++) {
            if (parent->targets[j].node_id == c->targets[i].node_id)
                parent->targets[j].missed = true;
        }
    }
    parent->tier_missed |= c->tier == TIER_UNREACHED;
    parent->pending--;
}

static void end_if_told(struct node *n, struct change *c, struct effects *fx)
{
    if (!all_told(c))
        return;
    if (c->parent) {
        struct change *parent = c->parent;
        tell_parent(c, parent);
        change_free(c);
        end_if_told(n, parent, fx);
        return;
    }
    struct blob *told = report(n, c);
    conclude(c, told, fx);
    blob_unref(told);
}

/* Under the parent's delete id, so that both may be stored again by one load. */
static void run_with(struct node *n, struct change *parent, const struct kin *k, uint64_t now_ms,
                     struct effects *fx)
{
    struct message name = {.key = span_of(k->key, k->bytes), .channel = parent->channel};
    struct change *c = change_new(n, &name, false, NULL);

    if (!c) {                   /* nobody hears of it: nobody has all */
        for (unsigned i = 0; i < parent->target_count; i++)
            parent->targets[i].missed = true;
        return;
    }
    c->parent = parent;
    c->running = true;
    c->delete_id = parent->delete_id;
    parent->pending++;
    serve_drop(n->serve, c->key, c->channel, false, c->delete_id, NULL, now_ms);
    add_targets(n, c, fx);
    tell_tier(n, c, fx);
    end_if_told(n, c, fx);
}

static void drop_here(struct node *n, struct change *c, uint64_t now_ms)
{
    bool keeps = c->item.blob && (c->waiter || serve_keeps(n->serve, c->channel, NULL));

    serve_drop(n->serve, c->key, c->channel, c->by_channel, c->delete_id,
               keeps ? &c->item : NULL, now_ms);
}

static void run(struct node *n, struct change *c, uint64_t now_ms, struct effects *fx)
{
    struct list kin;

    c->running = true;
    c->delete_id = next_delete_id(n, c->key, c->channel, now_ms);
    c->pending = 1;
    list_init(&kin);
    for (struct kin *k; !c->by_channel && (k = serve_take_kin(n->serve, c->key));)
        list_add_tail(&kin, &k->age);
    drop_here(n, c, now_ms);
    add_targets(n, c, fx);
    tell_tier(n, c, fx);
    LIST_FOREACH_SAFE(&kin, link) {
        struct kin *k = CONTAINER_OF(link, struct kin, age);
        run_with(n, c, k, now_ms, fx);
        mem_free(k);
    }
    c->pending--;
    end_if_told(n, c, fx);
}

/* A member remembers a later change, which this node had not heard of. */
static void run_again(struct node *n, struct change *c, uint64_t later_id, uint64_t now_ms,
                      struct effects *fx)
{
    heard_delete_id(n, later_id, now_ms);
    c->runs++;
    c->delete_id = max_u64(next_delete_id(n, c->key, c->channel, now_ms), later_id + 1);
    drop_here(n, c, now_ms);
    for (unsigned i = 0; i < c->target_count; i++) {
        c->targets[i].acknowledged = c->targets[i].failed = false;
        c->targets[i].tries = 0;
        send_drop(n, c, i, fx);
    }
    tell_tier(n, c, fx);
}

/* Asking the owner to run it. */

static void ask_rank(struct node *n, struct change *c, uint64_t now_ms, struct effects *fx)
{
    if (c->rank >= c->rank_count || c->ranks[c->rank].self) {
        run(n, c, now_ms, fx);
        return;
    }
    const struct query_rank *r = &c->ranks[c->rank];
    struct message m = {
        .kind = MESSAGE_DELETE,
        .key = c->key,
        .channel = span_equal(c->key, c->channel) ? SPAN_NONE : c->channel,
        .flags = (uint8_t)((c->by_channel ? MESSAGE_BY_CHANNEL : 0) |
                           (c->item.blob ? MESSAGE_SET : 0)),
        .value_type = c->item.value_type,
        .ttl_ms = c->item.ttl_ms,
        .stale_ms = c->item.stale_ms,
        .budget_ms = n->timeout_ms,
    };
    /* Its own calls may each run into their timeout, twice, before it answers. */
    effects_call(fx, call_id(c, 0), &r->addr, r->node_id, (TRIES + 1) * n->timeout_ms, &m,
                 c->item.blob);
}

void node_change(struct node *n, const struct message *name, bool by_channel,
                 const struct loaded *item, struct waiter *w, uint64_t now_ms,
                 struct effects *fx)
{
    struct change *c = change_new(n, name, by_channel, item);

    w->remote = false;
    w->flight = NULL;
    list_init(&w->link);
    list_init(&w->of_conn);
    if (!c) {
        w->answer = (struct answer){.outcome = OUTCOME_NOMEM};
        list_add_tail(&fx->completed, &w->link);
        return;
    }
    c->waiter = w;
    c->rank_count = serve_ranks(n->serve, c->channel, now_ms, c->ranks);
    ask_rank(n, c, now_ms, fx);
}

void node_change_leave(struct node *n, struct waiter *w)
{
    LIST_FOREACH(&n->changes, link) {
        struct change *c = CONTAINER_OF(link, struct change, link);
        if (c->waiter == w)
            c->waiter = NULL;
    }
    tallies_leave(n, w);
    list_remove(&w->link);
}

void change_request(struct node *n, uint64_t conn_id, const struct message *m,
                    struct blob *value, uint64_t now_ms, struct effects *fx)
{
    struct loaded item = {.blob = value, .value_type = m->value_type, .ttl_ms = m->ttl_ms,
                          .stale_ms = m->stale_ms};
    struct change *c = change_new(n, m, m->flags & MESSAGE_BY_CHANNEL,
                                  m->flags & MESSAGE_SET ? &item : NULL);

    if (!c)
        return;     /* the asker's call runs out of time and it runs the change itself */
    c->conn_id = conn_id;
    c->request_id = m->request_id;
    run(n, c, now_ms, fx);
}

void change_drop(struct node *n, uint64_t conn_id, const struct message *m, struct blob *value,
                 uint64_t now_ms, struct effects *fx)
{
    struct message done = {.kind = MESSAGE_DONE, .request_id = m->request_id};
    struct loaded item = {.blob = value, .value_type = m->value_type, .ttl_ms = m->ttl_ms,
                          .stale_ms = m->stale_ms};

    if (m->delete_id == 0)
        return;     /* no delete: nothing to remember it by, so nothing to acknowledge */
    heard_delete_id(n, m->delete_id, now_ms);
    serve_drop(n->serve, m->key, message_channel(m), m->flags & MESSAGE_BY_CHANNEL, m->delete_id,
               m->flags & MESSAGE_SET ? &item : NULL, now_ms);
    done.delete_id = serve_last_delete(n->serve, m->key, message_channel(m), now_ms);
    effects_answer(fx, conn_id, &done, NULL);
}

void node_late_change(struct node *n, const struct message *m, uint64_t now_ms)
{
    /* A DROP's id counts. A DELETE has none yet; who ran it instead sends a DROP. */
    uint64_t delete_id = m->kind == MESSAGE_DROP ? m->delete_id : 0;

    serve_drop(n->serve, m->key, message_channel(m), m->flags & MESSAGE_BY_CHANNEL, delete_id, NULL,
               now_ms);
}

void change_members(struct node *n, uint64_t now_ms, struct effects *fx)
{
    (void)now_ms;
    LIST_FOREACH(&n->changes, link) {
        struct change *c = CONTAINER_OF(link, struct change, link);
        if (c->running)
            add_targets(n, c, fx);
    }
}

void change_conn_closed(struct node *n, uint64_t conn_id)
{
    LIST_FOREACH(&n->changes, link) {
        struct change *c = CONTAINER_OF(link, struct change, link);
        if (c->conn_id == conn_id)
            c->conn_id = 0;
    }
}

/* The owner ran it. A set's caller reads its own write: it keeps the value under the same
 * delete id that the owner gave, if no newer change was applied here in between. */
static void told_by_owner(struct node *n, struct change *c, const struct message *m,
                          struct blob *told, uint64_t now_ms, struct effects *fx)
{
    heard_delete_id(n, m->delete_id, now_ms);
    if (c->item.blob &&
        m->delete_id >= serve_last_delete(n->serve, c->key, c->channel, now_ms))
        serve_drop(n->serve, c->key, c->channel, c->by_channel, m->delete_id, &c->item, now_ms);
    conclude(c, told, fx);
}

void change_reply(struct node *n, uint64_t id, const struct message *m, struct blob *value,
                  uint64_t now_ms, struct effects *fx)
{
    struct change *c = NULL;
    uint64_t number = (id & ~CALL_OWNER_MASK) >> 24;
    unsigned target = (unsigned)(id & 0xffffff);

    LIST_FOREACH(&n->changes, link) {
        if (CONTAINER_OF(link, struct change, link)->number == number)
            c = CONTAINER_OF(link, struct change, link);
    }
    if (!c)
        return;
    if (!c->running) {
        if (m && m->kind == MESSAGE_DELETED && value && m->delete_id != 0) {
            told_by_owner(n, c, m, value, now_ms, fx);
            return;
        }
        c->rank++;
        ask_rank(n, c, now_ms, fx);
        return;
    }
    if (target == TIER_TARGET) {
        c->tier = m ? TIER_ACKNOWLEDGED : TIER_UNREACHED;
        end_if_told(n, c, fx);
        return;
    }
    if (target >= c->target_count)
        return;
    struct target *t = &c->targets[target];
    if (m && m->kind == MESSAGE_DONE && m->delete_id > c->delete_id && c->runs < RUNS_MAX) {
        run_again(n, c, m->delete_id, now_ms, fx);
        return;
    }
    if (m && m->kind == MESSAGE_DONE)
        t->acknowledged = true;
    else if (t->tries < TRIES)
        send_drop(n, c, target, fx);
    else
        t->failed = true;
    end_if_told(n, c, fx);
}
