/* Rounds of tallies (see node_tally.h). */
#include "node_tally.h"

#include "err.h"
#include "limits.h"
#include "mem.h"
#include "node_state.h"

#define ROUND_MS 1000u          /* T1: "once a second" */
#define NEWS_MS 100u            /* and no sooner than this after the last one */
#define NEWS_MS_PER_PEER 10u    /* at most a hundred calls a second */
#define JOINED_MS 5000u         /* so long a new coordinator takes a member for a joiner */
#define LATE_MS 1000u           /* a call that has not even failed by then was never made */

struct tally_peer {
    struct addr addr;
    uint64_t node_id;
    uint64_t since;             /* of tally_encode: it has acknowledged what lies before */
    uint64_t upto;              /* what it will have acknowledged with the call under way */
    uint64_t call_id;           /* under way, 0: none */
    uint64_t until_ms;          /* ... and given up then */
    uint64_t retry_ms;          /* it gave no answer: not before */
    uint64_t seen_ms;           /* when it became a member */
    bool joined;                /* started after this node */
    bool of_all, told_all;      /* it is being told of all counts, or has been */
    bool more;                  /* go on as soon as the call has ended */
};

/* A question to the second tier. Name and key are own copies, behind the struct. */
struct trip {
    struct list of;             /* tallies.trips, by rising until_ms */
    uint64_t id, until_ms;
    uint64_t amount, limit;
    struct waiter *waiter;      /* NULL: it left */
    struct tally_name name;
};

/* `peers` are in the order of their addresses, as in the view. */
struct tallies {
    struct tally *tally;
    struct tally_peer *peers;
    unsigned count;
    bool through_owners;
    uint64_t contenders;        /* a print of who takes part in the contest */
    bool coordinates;
    bool changed;               /* something was counted since the last round */
    uint64_t round_ms, forget_ms, calls;
    struct list trips;
    struct node_tally_stats stats;
    uint8_t *page;              /* TALLY_PAGE_BYTES, once there are peers */
};

struct tallies *tallies_new(uint64_t node_id, const uint8_t hash_key[16])
{
    struct tallies *t = mem_zalloc(sizeof *t);

    if (!t)
        return NULL;
    list_init(&t->trips);
    t->tally = tally_new(node_id, hash_key);
    if (!t->tally) {
        mem_free(t);
        return NULL;
    }
    return t;
}

void tallies_free(struct tallies *t)
{
    if (!t)
        return;
    LIST_FOREACH_SAFE(&t->trips, l)
        mem_free(CONTAINER_OF(l, struct trip, of));
    tally_free(t->tally);
    mem_free(t->peers);
    mem_free(t->page);
    mem_free(t);
}

/* Members. */

static uint64_t print_of(const struct view *v)
{
    uint64_t print = v->count;

    for (unsigned i = 0; i < v->count; i++) {
        if (v->members[i].contends)
            print += rendezvous_score(v->members[i].hash, v->members[i].node_id);
    }
    return print;
}

static struct tally_peer peer_of(const struct view_member *m, bool joined, uint64_t now_ms)
{
    return (struct tally_peer){.addr = m->addr, .node_id = m->node_id, .joined = joined,
                               .seen_ms = now_ms};
}

/* What is known of a peer goes with its node id. Out of memory: the old ones stay until the
 * next view; calls to who has gone fail. */
static void follow(struct tallies *t, const struct view *v, uint64_t now_ms)
{
    struct tally_peer *fresh = mem_alloc((v->count + 1) * sizeof *fresh);
    uint64_t started_ms = v->self >= 0 ? v->members[v->self].started_ms : UINT64_MAX;
    unsigned count = 0, old = 0;

    if (!fresh)
        return;
    for (unsigned i = 0; i < v->count; i++) {
        const struct view_member *m = &v->members[i];
        if (m->self || m->observer)
            continue;
        while (old < t->count && addr_compare(&t->peers[old].addr, &m->addr) < 0)
            old++;
        bool known = old < t->count && t->peers[old].node_id == m->node_id &&
                     addr_equal(&t->peers[old].addr, &m->addr);
        if (known) {
            fresh[count++] = t->peers[old];
        } else {
            fresh[count++] = peer_of(m, m->started_ms > started_ms, now_ms);
            t->changed = true;      /* it is told soon */
        }
    }
    mem_free(t->peers);
    t->peers = fresh;
    t->count = count;
    t->through_owners = count + 1 > TALLY_DIRECT_MEMBERS_MAX;
}

static void owners_of(void *context, struct span name, struct span key, uint64_t owners[2])
{
    struct node *n = context;
    const struct view *v = serve_view(n->serve);
    unsigned at[RANKS_MAX];

    (void)name;
    unsigned found = serve_standing(n->serve, serve_channel_hash(n->serve, key), 2, at);
    for (unsigned i = 0; i < found; i++)
        owners[i] = v->members[at[i]].node_id;
}

static void route(struct node *n)
{
    struct tallies *t = n->tallies;
    tally_route(t->tally, t->contenders, t->through_owners ? owners_of : NULL, n);
}

void tallies_members(struct node *n, uint64_t now_ms)
{
    struct tallies *t = n->tallies;
    const struct view *v = serve_view(n->serve);

    if (!v || v->phase == PHASE_LEFT) {
        t->count = 0;
        t->coordinates = false;
        return;
    }
    bool through_owners = t->through_owners;
    follow(t, v, now_ms);
    uint64_t before = t->contenders;
    t->contenders = print_of(v);
    if (t->through_owners && t->contenders != before)
        t->changed = true;      /* new owners are told soon */
    if (t->through_owners != through_owners)
        route(n);               /* from now on a look is a wish, though there is no key yet */
    t->coordinates = v->coordinator >= 0 && v->coordinator == v->self;
    if (v->phase == PHASE_DRAINING) {       /* its last word */
        t->changed = true;
        t->round_ms = 0;
    }
}

/* Counting. */

int node_tally_add(struct node *n, const struct tally_name *name, uint64_t amount, uint64_t limit,
                   uint64_t wall_ms, uint64_t *total, bool *added)
{
    struct tallies *t = n->tallies;

    /* Nobody holds rounds here: those who count look after what has ended. */
    if (t->count == 0 && (wall_ms >= t->forget_ms || wall_ms + ROUND_MS < t->forget_ms)) {
        tally_tick(t->tally, wall_ms);
        t->forget_ms = wall_ms + ROUND_MS;
    }
    int rc = tally_add(t->tally, name, amount, limit, wall_ms, total, added);
    if (*added && amount > 0)
        t->changed = true;
    return rc;
}

uint64_t node_tally_total(struct node *n, const struct tally_name *name, uint64_t wall_ms)
{
    if (name->window_ms == 0)
        return 0;
    return tally_total(n->tallies->tally, name, tally_window(name, wall_ms), wall_ms);
}

/* With the second tier. */

#define WORD_BYTES 9u

/* Tell who waits, if somebody still does. Out of memory the blob is missing. */
static void answer_waiter(struct waiter *w, uint64_t total, bool added, struct effects *fx)
{
    struct blob *word = w ? blob_new(WORD_BYTES) : NULL;

    if (!w)
        return;
    if (word) {
        struct writer to = writer_of(blob_fill(word), WORD_BYTES);
        put_u8(&to, added);
        put_u64(&to, total);
    }
    list_remove(&w->link);
    w->answer = (struct answer){.outcome = word ? OUTCOME_VALUE : OUTCOME_NOMEM, .blob = word};
    list_add_tail(&fx->completed, &w->link);
}

bool node_tally_word(struct span in, uint64_t *total, bool *added)
{
    struct reader r = reader_of(in);

    *added = take_u8(&r) == 1;
    *total = take_u64(&r);
    return take_done(&r);
}

static struct message tier_message(const struct tally_name *name)
{
    return (struct message){.key = name->key, .loader = name->name, .ttl_ms = name->window_ms};
}

static struct trip *trip_new(struct tallies *t, const struct tally_name *name)
{
    struct trip *trip = mem_zalloc(sizeof *trip + name->name.bytes + name->key.bytes);
    uint8_t *text = (uint8_t *)(trip + 1);

    if (!trip)
        return NULL;
    if (name->name.bytes)
        memcpy(text, name->name.at, name->name.bytes);
    if (name->key.bytes)
        memcpy(text + name->name.bytes, name->key.at, name->key.bytes);
    trip->name = (struct tally_name){span_of(text, name->name.bytes),
                                     span_of(text + name->name.bytes, name->key.bytes),
                                     name->window_ms};
    trip->id = ++t->calls & ~CALL_KIND_MASK;
    list_add_tail(&t->trips, &trip->of);
    return trip;
}

int node_tally_take(struct node *n, const struct tally_name *name, uint64_t amount, uint64_t limit,
                    struct waiter *w, uint64_t now_ms, uint64_t wall_ms, uint64_t *total,
                    bool *added, struct effects *fx)
{
    struct message m = tier_message(name);
    struct trip *trip;

    *total = 0;
    *added = false;
    if (name->window_ms == 0 || name->name.bytes > TALLY_NAME_BYTES_MAX ||
        name->key.bytes > KEY_BYTES_MAX)
        return ERR_TOO_BIG;
    uint64_t known = node_tally_total(n, name, wall_ms);
    bool above = amount > limit || known > limit - amount;
    if (above || !(trip = trip_new(n->tallies, name))) {
        int rc = node_tally_add(n, name, amount, limit, wall_ms, total, added);
        return rc < 0 ? rc : TALLY_DECIDED;
    }
    trip->until_ms = now_ms + n->timeout_ms;
    trip->amount = amount;
    trip->limit = limit;
    trip->waiter = w;
    w->remote = false;
    w->flight = NULL;
    list_init(&w->link);
    list_init(&w->of_conn);
    effects_tier_tally(fx, trip->id, tally_window(name, wall_ms), amount, limit, &m);
    return TALLY_WAITS;
}

int node_tally_add_behind(struct node *n, const struct tally_name *name, uint64_t amount,
                          uint64_t wall_ms, uint64_t *total, bool *added, struct effects *fx)
{
    struct message m = tier_message(name);
    int rc = node_tally_add(n, name, amount, UINT64_MAX, wall_ms, total, added);

    if (rc == 0 && amount > 0)
        effects_tier_tally(fx, 0, tally_window(name, wall_ms), amount, UINT64_MAX, &m);
    return rc;
}

/* Without an answer what is known here decides. With one it has decided; no room to count it
 * here as well then matters to a fallback only. */
static void end_trip(struct node *n, struct trip *trip, bool heard, uint64_t said, bool added,
                     uint64_t wall_ms, struct effects *fx)
{
    uint64_t total = 0, known;
    bool added_here;

    if (!heard)
        node_tally_add(n, &trip->name, trip->amount, trip->limit, wall_ms, &total, &added);
    else if (added && trip->amount > 0)
        node_tally_add(n, &trip->name, trip->amount, UINT64_MAX, wall_ms, &total, &added_here);
    known = node_tally_total(n, &trip->name, wall_ms);
    answer_waiter(trip->waiter, max_u64(max_u64(total, known), heard ? said : 0), added, fx);
    list_remove(&trip->of);
    mem_free(trip);
}

void node_tally_said(struct node *n, uint64_t call_id, bool heard, uint64_t total, bool added,
                     uint64_t wall_ms, struct effects *fx)
{
    LIST_FOREACH(&n->tallies->trips, l) {
        struct trip *trip = CONTAINER_OF(l, struct trip, of);
        if (trip->id == call_id) {
            end_trip(n, trip, heard, total, added, wall_ms, fx);
            return;
        }
    }
}

void tallies_leave(struct node *n, struct waiter *w)
{
    LIST_FOREACH(&n->tallies->trips, l) {
        struct trip *trip = CONTAINER_OF(l, struct trip, of);
        if (trip->waiter == w)
            trip->waiter = NULL;
    }
}

/* Rounds. */

static uint64_t interval_ms(const struct tallies *t)
{
    if (!t->changed)
        return ROUND_MS;
    return min_u64(max_u64(NEWS_MS, (uint64_t)NEWS_MS_PER_PEER * t->count), ROUND_MS);
}

static uint64_t round_due_ms(const struct tallies *t)
{
    struct tally_stats stats;

    if (t->count == 0)
        return NEVER_MS;
    tally_stats(t->tally, &stats);
    return stats.keys ? t->round_ms + interval_ms(t) : NEVER_MS;
}

static uint64_t trip_due_ms(const struct tallies *t)
{
    return list_empty(&t->trips) ? NEVER_MS
                                 : CONTAINER_OF(t->trips.next, struct trip, of)->until_ms;
}

uint64_t tallies_due_ms(const struct tallies *t)
{
    return min_u64(round_due_ms(t), trip_due_ms(t));
}

static bool wants_all(const struct tallies *t, const struct tally_peer *p, uint64_t now_ms)
{
    return t->coordinates && p->joined && !p->told_all && now_ms < p->seen_ms + JOINED_MS;
}

static void send_page(struct node *n, struct tally_peer *p, uint64_t now_ms, uint64_t wall_ms,
                      struct effects *fx)
{
    struct tallies *t = n->tallies;
    struct message m = {.kind = MESSAGE_TALLY, .budget_ms = n->timeout_ms};

    if (!t->page && !(t->page = mem_alloc(TALLY_PAGE_BYTES)))
        return;
    struct writer w = writer_of(t->page, TALLY_PAGE_BYTES);
    if (!p->of_all && wants_all(t, p, now_ms)) {
        p->of_all = true;
        p->since = 0;
    }
    struct tally_page page = {.since = p->since, .receiver = p->node_id, .of_all = p->of_all};
    p->upto = tally_encode(t->tally, &page, wall_ms, &w, &p->more);
    if (writer_bytes(&w) == 0) {
        p->since = p->upto;
        p->told_all |= p->of_all;
        p->of_all = false;
        return;
    }
    struct blob *payload = blob_copy(span_of(t->page, writer_bytes(&w)));
    if (!payload)
        return;     /* said again */
    p->call_id = CALL_TALLY | (++t->calls & ~CALL_KIND_MASK);
    p->until_ms = now_ms + n->timeout_ms + LATE_MS;
    t->stats.pages_sent++;
    effects_call(fx, p->call_id, &p->addr, p->node_id, n->timeout_ms, &m, payload);
    blob_unref(payload);
}

static void lose(struct tallies *t, struct tally_peer *p, uint64_t now_ms)
{
    p->call_id = 0;
    p->retry_ms = now_ms + ROUND_MS;
    t->stats.pages_lost++;
}

void node_tally_tick(struct node *n, uint64_t now_ms, uint64_t wall_ms, struct effects *fx)
{
    struct tallies *t = n->tallies;

    while (trip_due_ms(t) <= now_ms)
        end_trip(n, CONTAINER_OF(t->trips.next, struct trip, of), false, 0, false, wall_ms, fx);
    if (round_due_ms(t) > now_ms)
        return;
    t->round_ms = now_ms;
    t->changed = false;
    t->stats.rounds++;
    tally_tick(t->tally, wall_ms);
    route(n);
    for (unsigned i = 0; i < t->count; i++) {
        struct tally_peer *p = &t->peers[i];
        if (p->call_id && now_ms >= p->until_ms)
            lose(t, p, now_ms);
        if (p->call_id)
            p->more = true;
        else if (now_ms >= p->retry_ms)
            send_page(n, p, now_ms, wall_ms, fx);
    }
}

bool node_call_is_tally(uint64_t call_id) { return (call_id & CALL_KIND_MASK) == CALL_TALLY; }

void node_tally_reply(struct node *n, uint64_t call_id, const struct message *m, struct blob *value,
                      uint64_t now_ms, uint64_t wall_ms, struct effects *fx)
{
    struct tallies *t = n->tallies;
    struct tally_peer *p = NULL;

    if (m && m->kind == MESSAGE_TALLY && !tally_merge(t->tally, blob_span(value), wall_ms)) {
        t->stats.pages_malformed++;
        m = NULL;
    }
    for (unsigned i = 0; i < t->count; i++) {
        if (t->peers[i].call_id == call_id)
            p = &t->peers[i];
    }
    if (!p)
        return;
    if (!m || (m->kind != MESSAGE_DONE && m->kind != MESSAGE_TALLY)) {
        lose(t, p, now_ms);
        return;
    }
    p->call_id = 0;
    p->retry_ms = 0;
    p->since = p->upto;
    if (p->more)
        send_page(n, p, now_ms, wall_ms, fx);
    else if (p->of_all) {
        p->told_all = true;
        p->of_all = false;
    }
}

void node_tally_frame(struct node *n, uint64_t conn_id, const struct message *m, struct blob *value,
                      uint64_t wall_ms, struct effects *fx)
{
    struct tallies *t = n->tallies;
    struct message answer = {.kind = MESSAGE_DONE, .request_id = m->request_id};
    struct span payload = blob_span(value);
    struct blob *sums = NULL;

    if (!tally_merge(t->tally, payload, wall_ms)) {
        t->stats.pages_malformed++;
        answer.kind = MESSAGE_UNSUPPORTED;
    } else {
        t->stats.pages_taken++;
        if (tally_wants_answer(payload)) {
            if (!t->page && !(t->page = mem_alloc(TALLY_PAGE_BYTES)))
                return;
            struct writer w = writer_of(t->page, TALLY_PAGE_BYTES);
            tally_answer(t->tally, payload, m->sender_id, &w);
            if (!(sums = blob_copy(span_of(t->page, writer_bytes(&w)))))
                return;
            answer.kind = MESSAGE_TALLY;
        }
    }
    effects_answer(fx, conn_id, &answer, sums);
    blob_unref(sums);
}

void node_tally_stats(const struct node *n, struct node_tally_stats *out)
{
    *out = n->tallies->stats;
    tally_stats(n->tallies->tally, &out->tally);
}
