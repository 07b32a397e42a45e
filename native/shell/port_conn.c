/* An event loop's connections (see port_ask.h). */
#include "core/mem.h"
#include "shell/clock.h"
#include "shell/dial.h"
#include "shell/loop.h"
#include "shell/permit.h"
#include "shell/port_ask.h"
#include "shell/shell.h"

#define FILLS_A_TURN 8
#define LAST_TURNS_MAX 64           /* of reading, for a node that is gone */
#define IDLE_MS_MAX 30000u

static struct peerage *node_of(const struct port_conn *k)
{
    return k->at->port.peerage;
}

void port_conn_free(struct port_conn *k)
{
    assert(list_empty(&k->waiting));
    list_remove(&k->of);
    list_remove(&k->of_dirty);
    if (k->dial)
        dial_forget(k->dial);
    if (!k->verifying || verify_forget(k->verifying))
        stream_free(k->c);         /* closing takes it out of the poller */
    mem_free(k);
}

/* It is of no use. Each query on it goes its way, after the connection has gone: some of
 * them dial it afresh. */
static void break_off(struct port_conn *k, enum query_step (*how)(struct port_question *, bool))
{
    bool used = k->used;
    struct list left;

    list_init(&left);
    list_move_all(&left, &k->waiting);
    LIST_FOREACH(&left, l)
        CONTAINER_OF(l, struct port_question, of_conn)->conn = NULL;
    port_conn_free(k);
    while (!list_empty(&left)) {
        struct port_question *q = CONTAINER_OF(left.next, struct port_question, of_conn);
        list_remove(&q->of_conn);
        port_question_step(q, how(q, used));
    }
}

static enum query_step broken(struct port_question *q, bool used)
{
    return query_broken(&q->query, used && !q->answering, clock_now_ms());
}

static enum query_step stranger(struct port_question *q, bool used)
{
    (void)used;
    return query_stranger(&q->query, clock_now_ms());
}

static enum query_step dead(struct port_question *q, bool used)
{
    (void)used;
    return query_peer_dead(&q->query, clock_now_ms());
}

struct port_conn *port_conn_find(struct peerage_port *at, uint64_t id)
{
    LIST_FOREACH(&at->conns, l) {
        struct port_conn *k = CONTAINER_OF(l, struct port_conn, of);
        if (k->id == id)
            return k;
    }
    return NULL;
}

static void watch(struct port_conn *k)
{
    int events = POLLER_READ | (stream_wants_write(k->c) ? POLLER_WRITE : 0);

    if (k->verifying)
        return;
    if (events == k->events)
        return;
    if (poller_watch(&k->at->poller, k->c->fd, events, k, k->events != 0))
        k->events = events;
}

void port_conn_flush(struct port_conn *k)
{
    list_remove(&k->of_dirty);
    if (stream_flush(k->c) < 0)
        break_off(k, broken);
    else
        watch(k);
}

void port_conn_flush_all(struct peerage_port *at)
{
    while (!list_empty(&at->dirty))
        port_conn_flush(CONTAINER_OF(at->dirty.next, struct port_conn, of_dirty));
}

/* The first question of a turn goes out at once; those that follow it in the same turn (an
 * application that gathers many) leave together at the next, which the bell makes come
 * soon: one write for all of them, and one read at the other end. */
static void flush_soon(struct port_conn *k)
{
    struct peerage_port *at = k->at;

    if (!at->running && k->sent_turn != at->turn) {
        k->sent_turn = at->turn;
        port_conn_flush(k);
        return;
    }
    if (!at->running && list_empty(&at->dirty))
        bell_ring(&at->port.bell);
    if (list_empty(&k->of_dirty))
        list_add_tail(&at->dirty, &k->of_dirty);
}

static bool queue(struct port_conn *k, struct port_question *q)
{
    struct message m = q->question.ask;

    q->asked_ms = clock_now_ms();
    q->answering = false;
    gathered_clear(&q->got);
    q->request_id = m.request_id = k->c->next_request_id++;
    query_fill(&q->query, q->asked_ms, &m);
    count(&node_of(k)->counters.requests);
    count(&node_of(k)->counters.frames_out);
    return stream_queue(k->c, &m, NULL, clock_wall_ms()) == 0;
}

static struct port_conn *find_or_dial(struct peerage_port *at, const struct query *query)
{
    const struct query_rank *rank = query_at(query);

    LIST_FOREACH(&at->conns, l) {
        struct port_conn *k = CONTAINER_OF(l, struct port_conn, of);
        if (k->node_id == rank->node_id && addr_equal(&k->addr, &rank->addr))
            return k;
    }
    struct port_conn *k = mem_zalloc(sizeof *k);
    if (!k)
        return NULL;
    k->at = at;
    k->addr = rank->addr;
    k->node_id = rank->node_id;
    k->id = ++at->next_conn_id;
    list_init(&k->waiting);
    list_init(&k->of_dirty);
    k->dial = dial_ask(&at->port, &rank->addr, rank->node_id, query->due_ms, k);
    if (!k->dial) {
        mem_free(k);
        return NULL;
    }
    list_add_tail(&at->conns, &k->of);
    return k;
}

bool port_conn_send(struct port_question *q)
{
    struct port_conn *k = find_or_dial(q->at, &q->query);

    if (!k)
        return false;
    if (q->query.redialled)
        count(&node_of(k)->counters.redials);
    q->conn = k;
    q->request_id = 0;
    list_add_tail(&k->waiting, &q->of_conn);
    if (!k->c)
        return true;            /* sent when it is there */
    if (!queue(k, q)) {
        list_remove(&q->of_conn);
        q->conn = NULL;
        return false;
    }
    flush_soon(k);
    return true;
}

void port_conn_leave(struct port_question *q, bool cancel)
{
    struct port_conn *k = q->conn;
    struct message m = {.kind = MESSAGE_CANCEL, .request_id = q->request_id};

    if (!k)
        return;
    list_remove(&q->of_conn);
    q->conn = NULL;
    if (cancel && k->c && q->request_id && stream_queue(k->c, &m, NULL, clock_wall_ms()) == 0)
        flush_soon(k);
}

/* Reading. */

static struct port_question *asker_of(struct port_conn *k, uint64_t request_id)
{
    LIST_FOREACH(&k->waiting, l) {
        struct port_question *q = CONTAINER_OF(l, struct port_question, of_conn);
        if (q->request_id == request_id)
            return q;
    }
    return NULL;
}

/* Its value is large: the loop thread checks it, and this connection rests meanwhile. False:
 * it can't, and the value was checked here. */
static bool verify_elsewhere(struct port_conn *k)
{
    k->verifying = verify_ask(&k->at->port, k->c, k);
    if (!k->verifying) {
        stream_verify(k->c);
        return false;
    }
    if (k->events)
        poller_unwatch(&k->at->poller, k->c->fd);
    k->events = 0;
    k->last_turns = 0;
    return true;
}

/* Everything complete in the buffer. `ended` gathers the questions whose query goes on
 * elsewhere or ends: what they do next may need this connection, or break it. */
static bool take_frames(struct port_conn *k, struct list *ended)
{
    struct message m;
    struct blob *value;

    for (;;) {
        enum stream_next next = stream_next(k->c, clock_wall_ms(), &m, &value);
        if (next == STREAM_MORE && stream_is_unverified(k->c) && !verify_elsewhere(k))
            continue;
        if (next == STREAM_BAD)
            count(&node_of(k)->counters.verdicts[k->c->verdict]);
        if (next != STREAM_FRAME)
            return next != STREAM_BAD;
        struct port_question *q = asker_of(k, m.request_id);
        count(&node_of(k)->counters.frames_in);
        if (!q) {
            blob_unref(value);          /* late: its asker has left */
            continue;
        }
        enum query_step step = port_question_frame(q, &m, value, clock_now_ms());
        k->used = true;
        if (step == QUERY_WAIT)
            continue;
        q->step = step;
        q->conn_id = k->id;
        list_remove(&q->of_conn);
        list_add_tail(ended, &q->of_conn);
    }
}

static void go_on(struct list *ended)
{
    while (!list_empty(ended)) {
        struct port_question *q = CONTAINER_OF(ended->next, struct port_question, of_conn);
        list_remove(&q->of_conn);
        q->conn = NULL;
        port_question_step(q, q->step);
    }
}

void port_conn_ready(struct port_conn *k, int events)
{
    bool open = true;
    struct list ended;

    if (!k->c || k->verifying)
        return;
    list_init(&ended);
    if (events & POLLER_READ) {
        for (int n = 0; open && n < FILLS_A_TURN; n++) {
            uint64_t before = k->c->bytes_in;
            int filled = stream_fill(k->c);
            /* A peer that has closed may have sent all of its answer first. */
            open = take_frames(k, &ended) && (filled >= 0 || k->verifying);
            uint64_t arriving = stream_arriving(k->c);
            struct port_question *q = arriving ? asker_of(k, arriving) : NULL;
            if (q && k->c->bytes_in != before) {
                q->answering = true;
                query_progress(&q->query, clock_now_ms());
            }
            if (k->c->drained || k->verifying)
                break;
        }
    }
    k->c->used_ms = clock_now_ms();
    if (open)
        port_conn_flush(k);
    else
        break_off(k, k->gone ? dead : broken);
    go_on(&ended);
}

void port_conn_verified(struct port_conn *k, struct verify_job *j)
{
    struct peerage_port *at = k->at;
    bool gone = k->gone;
    struct list ended;

    list_init(&ended);
    k->verifying = NULL;
    verify_forget(j);
    if (take_frames(k, &ended))
        port_conn_flush(k);
    else
        break_off(k, broken);
    go_on(&ended);
    if (gone)
        port_conn_check_members(at);        /* it was left alone until now */
}

void port_conn_dialled(struct port_conn *k, struct dial_request *r)
{
    enum dial_result result = r->result;

    k->dial = NULL;
    k->c = r->connection;
    r->connection = NULL;
    if (result == DIAL_STRANGER)
        loop_hint_replaced(node_of(k), &k->addr, r->other_id);
    dial_forget(r);
    if (result == DIAL_STRANGER) {
        break_off(k, stranger);
        return;
    }
    if (result != DIAL_PROVEN) {
        break_off(k, broken);
        return;
    }
    k->c->used_ms = clock_now_ms();
    k->c->verify_above = VERIFY_ELSEWHERE_BYTES;
    LIST_FOREACH(&k->waiting, l) {
        if (!queue(k, CONTAINER_OF(l, struct port_question, of_conn))) {
            break_off(k, broken);
            return;
        }
    }
    port_conn_flush(k);
}

/* Members that are gone, connections that nobody uses. */

static bool is_heard_out(const struct port_conn *k)
{
    return !k->c || (k->last_turns && k->c->drained) || k->last_turns == LAST_TURNS_MAX;
}

void port_conn_check_members(struct peerage_port *at)
{
    struct peerage *p = at->port.peerage;

    LIST_FOREACH_SAFE(&at->conns, l) {
        struct port_conn *k = CONTAINER_OF(l, struct port_conn, of);
        pthread_mutex_lock(&p->lock);
        const struct view *v = serve_view(node_serve(p->node));
        int found = v ? view_find(v, &k->addr) : -1;
        k->gone = v && (found < 0 || v->members[found].node_id != k->node_id);
        if (!k->gone)
            k->last_turns = 0;
        pthread_mutex_unlock(&p->lock);
    }
    /* A node that leaves says so after its last answers: what lies in the socket counts first.
     * What one query does next may add connections, and breaks none that is marked. */
    for (bool again = true; again;) {
        again = false;
        LIST_FOREACH(&at->conns, l) {
            struct port_conn *k = CONTAINER_OF(l, struct port_conn, of);
            if (!k->gone || k->verifying)
                continue;
            if (is_heard_out(k)) {
                break_off(k, dead);
            } else {
                k->last_turns++;
                port_conn_ready(k, POLLER_READ);
            }
            again = true;
            break;
        }
    }
}

static bool holds_permits(const struct port_conn *k)
{
    struct peerage *p = node_of(k);

    pthread_mutex_lock(&p->lock);
    bool holds = permit_is_on(p, &k->at->port, k->id);
    pthread_mutex_unlock(&p->lock);
    return holds;
}

void port_conn_sweep(struct peerage_port *at, uint64_t now_ms)
{
    LIST_FOREACH_SAFE(&at->conns, l) {
        struct port_conn *k = CONTAINER_OF(l, struct port_conn, of);
        if (k->c && list_empty(&k->waiting) && now_ms - k->c->used_ms > IDLE_MS_MAX &&
            !stream_wants_write(k->c) && !holds_permits(k))
            port_conn_free(k);
    }
}
