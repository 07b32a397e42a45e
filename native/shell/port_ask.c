/* The event loop's driver: questions and their events (see port_ask.h, and the public header
 * for the contract of each function).
 *
 * A question joins the flight that serves it as a waiter, also when it leads the query of
 * that flight. So there is one way for answers: core completes waiters, whichever thread
 * brought the value, and port_run turns what was completed into events.
 */
#include "shell/port_ask.h"

#include "core/err.h"
#include "core/mem.h"
#include "shell/change.h"
#include "shell/clock.h"
#include "shell/dial.h"
#include "shell/loop.h"
#include "shell/permit.h"
#include "shell/shell.h"
#include "shell/turn.h"

#define TRIES_MAX 16
#define SWEEP_EVERY_MS 5000u

static struct peerage *node_of(const struct peerage_port *at)
{
    return at->port.peerage;
}

static void begin(struct peerage_port *at, struct turn *t)
{
    turn_begin(node_of(at), t);
    if (at->running)
        t->self = &at->port;
}

/* ---- questions' memory -------------------------------------------------------------------- */

static struct list *token_bucket(struct peerage_port *at, const void *token)
{
    uintptr_t h = (uintptr_t)token;

    return &at->tokens[(h ^ h >> 12 ^ h >> 4) % TOKEN_BUCKETS];
}

static struct span put(uint8_t **at, const void *from, size_t bytes)
{
    struct span s = span_of(*at, bytes);

    if (bytes)
        memcpy(*at, from, bytes);
    *at += bytes;
    return s;
}

static struct port_question *new_question(struct peerage_port *at, const struct peerage_ask *in,
                                          void *token, int *error)
{
    struct port_question *q;
    struct question question;
    uint8_t *text;

    *error = exchange_question(node_of(at), in, &question);
    if (*error)
        return NULL;
    q = mem_zalloc(sizeof *q + in->key_bytes + in->channel_bytes + in->loader_bytes);
    *error = ERR_NOMEM;
    if (!q)
        return NULL;
    text = q->text;
    q->question = question;
    q->question.ask.key = put(&text, in->key, in->key_bytes);
    q->question.ask.channel = put(&text, question.ask.channel.at, question.ask.channel.bytes);
    q->question.ask.loader = put(&text, in->loader, in->loader_bytes);
    q->at = at;
    q->token = token;
    q->waiter.port = &at->port;
    q->waiter.token = q;
    q->until_ms = in->timeout_ms ? clock_now_ms() + in->timeout_ms : NEVER_MS;
    list_init(&q->of_here);
    list_init(&q->of_conn);
    list_init(&q->end.of);
    list_init(&q->waiter.link);
    gathered_init(&q->got);
    list_add_tail(&at->questions, &q->of);
    list_add_tail(token_bucket(at, token), &q->of_token);
    if (q->until_ms != NEVER_MS)
        poller_arm(&at->poller, q->until_ms, clock_now_ms());
    return q;
}

static void free_question(struct port_question *q)
{
    gathered_clear(&q->got);
    list_remove(&q->of);
    list_remove(&q->of_token);
    list_remove(&q->of_conn);
    list_remove(&q->end.of);
    mem_free(q);
}

/* ---- events --------------------------------------------------------------------------------- */

/* Is it the one in a question, not on the heap? */
static bool is_end(const struct ready *r)
{
    return (r->kind == PEERAGE_EVENT_ANSWER || r->kind == PEERAGE_EVENT_REPORT) && !r->is_load &&
           !r->alone;
}

/* The last event of a question; takes what the answer holds. */
static void end_question(struct port_question *q, struct answer *a, int error)
{
    if (q->gone) {
        answer_deinit(a);
        if (!q->leads)
            free_question(q);
        return;
    }
    q->ended = true;
    q->end.kind = q->change ? PEERAGE_EVENT_REPORT : PEERAGE_EVENT_ANSWER;
    q->end.token = q->token;
    q->end.answer = *a;
    q->end.error = error;
    list_add_tail(&q->at->ready, &q->end.of);
}

static void end_in_trouble(struct port_question *q, int error)
{
    struct answer none = {.outcome = OUTCOME_CLOSED};

    end_question(q, &none, error);
}

/* The leave to load, for the question's own task. False: out of memory. */
static bool say_load(struct port_question *q, uint64_t load_id, const struct turn *t)
{
    struct ready *r = mem_zalloc(sizeof *r);

    (void)t;
    if (!r)
        return false;
    r->kind = PEERAGE_EVENT_ANSWER;
    r->token = q->token;
    r->is_load = true;
    r->load_id = load_id;
    r->chain_count = serve_chain(node_serve(node_of(q->at)->node), load_id, r->chain);
    list_add_tail(&q->at->ready, &r->of);
    return true;
}

/* ---- asking ------------------------------------------------------------------------------------ */

/* Ask core. True: an answer at once, in *out. */
static bool ask(struct port_question *q, struct peerage_answer *out)
{
    struct peerage_port *at = q->at;
    struct peerage *p = node_of(at);
    struct query_rank ranks[RANKS_MAX];
    struct answer answer;
    unsigned count_ranks = 0;
    struct turn t;

    q->tries++;
    begin(at, &t);
    serve_ask(node_serve(p->node), &q->question, &q->waiter, t.now_ms, &answer, ranks,
              &count_ranks, &t.effects);
    if (p->closed && answer.outcome != OUTCOME_VALUE) {
        if (answer.outcome == OUTCOME_ASK || answer.outcome == OUTCOME_LOAD)
            serve_lose(node_serve(p->node), answer.load_id, t.now_ms, &t.effects);
        serve_leave(node_serve(p->node), &q->waiter, t.now_ms, &t.effects);
        answer_deinit(&answer);
        answer = (struct answer){.outcome = OUTCOME_CLOSED};
    }
    if (answer.outcome == OUTCOME_LOAD)
        exchange_load(p, answer.load_id, out);
    uint64_t due_ms = p->loop_wakes_ms == NEVER_MS ? node_serve_due_ms(p->node) : NEVER_MS;
    turn_end(p, &t);
    poller_arm(&at->poller, due_ms, t.now_ms);
    switch (answer.outcome) {
    case OUTCOME_WAIT:
        return false;
    case OUTCOME_LOAD:
        return true;
    case OUTCOME_ASK:
        count(&p->counters.asks_by_ports);
        q->leads = true;
        q->load_id = answer.load_id;
        port_question_step(q, query_begin(&q->query, ranks, count_ranks,
                                          q->question.ask.flags & MESSAGE_LOADS,
                                          p->settings.timeout_ms,
                                          q->question.ask.load_timeout_ms, t.now_ms));
        return false;
    default:
        exchange_answer(&answer, t.now_ms, out);
        return true;
    }
}

/* Its waiter came back with nothing: the load was lost, or the members changed. */
static void ask_again(struct port_question *q)
{
    struct peerage_answer out;

    if (q->tries >= TRIES_MAX) {
        end_in_trouble(q, ERR_LOST);
        return;
    }
    if (!ask(q, &out))
        return;
    if (out.kind == PEERAGE_LOAD) {
        struct turn t;
        begin(q->at, &t);
        if (!say_load(q, out.load_id, &t))
            serve_lose(node_serve(node_of(q->at)->node), out.load_id, t.now_ms, &t.effects);
        turn_end(node_of(q->at), &t);
        return;
    }
    struct answer a = {.outcome = out.kind == PEERAGE_VALUE    ? OUTCOME_VALUE
                                  : out.kind == PEERAGE_FAILED ? OUTCOME_FAILED
                                                               : OUTCOME_MISS,
                       .tier = (enum tier)out.tier,
                       .blob = (struct blob *)out.blob,
                       .value_type = (uint8_t)out.value_type,
                       .stale = out.stale};
    uint64_t now_ms = clock_now_ms();
    a.stored_ms = now_ms - out.age_ms;
    a.expires_ms = out.ttl_ms == UINT64_MAX ? NEVER_MS : now_ms + out.ttl_ms;
    end_question(q, &a, out.kind == PEERAGE_TROUBLE ? out.error : 0);
}

/* ---- leading a query ------------------------------------------------------------------------------ */

enum query_step port_question_frame(struct port_question *q, const struct message *m,
                                    struct blob *value, uint64_t now_ms)
{
    q->answering = true;
    q->last_kind = m->kind;
    if (m->kind == MESSAGE_VALUE || m->kind == MESSAGE_FAILED) {
        if (q->got.count == 0)
            q->stale = m->flags & MESSAGE_STALE;
        if (!gathered_add(&q->got, m, value))
            return query_broken(&q->query, false, now_ms);
        if (m->flags & MESSAGE_MORE) {
            query_progress(&q->query, now_ms);
            return QUERY_WAIT;
        }
    } else {
        blob_unref(value);
        if (m->kind == MESSAGE_PERMIT)
            q->got.delete_id = m->delete_id;
    }
    return query_frame(&q->query, m->kind, now_ms);
}

/* Under the lock: what the query learnt of a peer. True: *who was silent. */
static bool report_peer(struct port_question *q, uint64_t now_ms, struct addr *who)
{
    struct query *query = &q->query;
    bool silent = query->verdict == PEER_SILENT && !addr_is_zero(&query->verdict_of);

    if (!addr_is_zero(&query->verdict_of))
        serve_peer(node_serve(node_of(q->at)->node), &query->verdict_of, query->verdict, now_ms);
    *who = query->verdict_of;
    memset(&query->verdict_of, 0, sizeof query->verdict_of);
    return silent;
}

/* The leave to load: for the leader's task, if it is still there. False: it was given back. */
static bool take_load(struct port_question *q, enum query_step step, struct permit *permit,
                      struct turn *t)
{
    struct peerage *p = node_of(q->at);
    struct serve *s = node_serve(p->node);
    struct answer answer;

    if (q->gone) {
        serve_lose(s, q->load_id, t->now_ms, &t->effects);
        return false;
    }
    serve_answered_load(s, q->load_id, step, false, &q->waiter, t->now_ms, &answer, &t->effects);
    if (answer.outcome != OUTCOME_LOAD)
        return false;       /* the waiter moved to another flight, or was completed */
    if ((step == QUERY_PERMITTED && !permit) || !say_load(q, answer.load_id, t)) {
        serve_lose(s, answer.load_id, t->now_ms, &t->effects);
        return false;
    }
    if (permit) {
        permit->load_id = answer.load_id;
        permit_add(p, permit);
    }
    return true;
}

/* The query's end: core completes the waiters, ours among them. */
static void finish(struct port_question *q, enum query_step step)
{
    struct peerage_port *at = q->at;
    struct peerage *p = node_of(at);
    struct serve *s = node_serve(p->node);
    struct permit *permit = NULL;
    bool silent, recursive = false;
    struct addr who;
    struct turn t;

    port_conn_leave(q, false);
    if (step == QUERY_PERMITTED) {
        permit = permit_new(&q->question.ask, q->load_id, q->request_id, q->got.delete_id);
        if (permit) {
            permit->port = &at->port;
            permit->conn_id = q->conn_id;
        }
    }
    begin(at, &t);
    silent = report_peer(q, t.now_ms, &who);
    switch (step) {
    case QUERY_ANSWERED:
        if (q->last_kind == MESSAGE_FAILED)
            serve_answered_error(s, q->load_id, q->got.items[0].blob, t.now_ms, &t.effects);
        else
            serve_answered(s, q->load_id, q->got.items, q->got.count, q->got.delete_id,
                           exchange_tier(&q->query), q->asked_ms, t.now_ms, &t.effects);
        break;
    case QUERY_MISSED:
        serve_answered_miss(s, q->load_id, t.now_ms, &t.effects);
        break;
    case QUERY_RECURSIVE:
        recursive = true;
        if (!q->gone)
            serve_leave(s, &q->waiter, t.now_ms, &t.effects);
        serve_lose(s, q->load_id, t.now_ms, &t.effects);
        break;
    case QUERY_PERMITTED:
    case QUERY_OWN:
    case QUERY_LOAD:
        if (take_load(q, step, permit, &t))
            permit = NULL;
        break;
    case QUERY_SEND:
    case QUERY_WAIT:
        assert(false && "not an end");
    }
    turn_end(p, &t);
    if (silent)
        loop_hint_silent(p, &who);
    if (permit) {
        struct port_conn *k = port_conn_find(at, permit->conn_id);
        if (k && k->c && permit_queue(permit, k->c, MESSAGE_RETURNED, NULL, 0, NULL))
            port_conn_flush(k);
        permit_free(permit);
    }
    q->leads = false;
    gathered_clear(&q->got);
    if (q->gone)
        free_question(q);
    else if (recursive)
        end_in_trouble(q, ERR_RECURSIVE);
}

void port_question_step(struct port_question *q, enum query_step step)
{
    struct peerage_port *at = q->at;
    struct peerage *p = node_of(at);

    while (step == QUERY_SEND) {
        uint64_t now_ms = clock_now_ms();
        struct addr who;
        port_conn_leave(q, false);
        pthread_mutex_lock(&p->lock);
        bool silent = report_peer(q, now_ms, &who);
        pthread_mutex_unlock(&p->lock);
        if (silent)
            loop_hint_silent(p, &who);
        poller_arm(&at->poller, q->query.due_ms, now_ms);
        /* Sending may break the connection, and with it end the question: it is not touched
         * after this. */
        if (port_conn_send(q))
            return;
        step = query_broken(&q->query, false, now_ms);
    }
    if (step != QUERY_WAIT)
        finish(q, step);
    else
        poller_arm(&at->poller, q->query.due_ms, clock_now_ms());
}

/* ---- leaving ------------------------------------------------------------------------------------ */

/* The asker gives up. Its query goes on while somebody else waits for what it asks. */
static void leave(struct port_question *q)
{
    struct peerage_port *at = q->at;
    struct peerage *p = node_of(at);
    bool goes_on = false;
    struct turn t;

    begin(at, &t);
    list_remove(&q->of_here);
    if (q->change)
        node_change_leave(p->node, &q->waiter);
    else
        serve_leave(node_serve(p->node), &q->waiter, t.now_ms, &t.effects);
    if (q->load_here_id)
        serve_lose(node_serve(p->node), q->load_here_id, t.now_ms, &t.effects);
    if (q->leads) {
        goes_on = serve_waiters(node_serve(p->node), q->load_id) > 0;
        if (!goes_on)
            serve_lose(node_serve(p->node), q->load_id, t.now_ms, &t.effects);
    }
    turn_end(p, &t);
    list_remove(&q->of_token);
    q->gone = true;
    if (goes_on)
        return;
    port_conn_leave(q, true);
    q->leads = false;
    free_question(q);
}

static struct port_question *find(struct peerage_port *at, const void *token)
{
    LIST_FOREACH(token_bucket(at, token), l) {
        struct port_question *q = CONTAINER_OF(l, struct port_question, of_token);
        if (q->token == token)
            return q;
    }
    return NULL;
}

/* Loads offered to this token and not yet told are given back. */
static void take_back_loads(struct peerage_port *at, const void *token)
{
    struct peerage *p = node_of(at);

    LIST_FOREACH_SAFE(&at->ready, l) {
        struct ready *r = CONTAINER_OF(l, struct ready, of);
        if (r->token != token || !r->is_load)
            continue;
        uint64_t load_id = r->load_id;
        list_remove(&r->of);
        mem_free(r);
        peerage_lose(p, load_id);
    }
}

int peerage_port_leave(peerage_port *at, void *token)
{
    struct port_question *q = shell_is_foreign(node_of(at)) ? NULL : find(at, token);

    if (!q)
        return 0;
    take_back_loads(at, token);
    if (q->ended) {
        answer_deinit(&q->end.answer);
        free_question(q);
        return 1;
    }
    leave(q);
    return 1;
}

/* ---- running -------------------------------------------------------------------------------------- */

static void take_async_loads(struct peerage_port *at)
{
    struct peerage *p = node_of(at);
    bool more = true;

    while (more) {
        struct ready *r = mem_zalloc(sizeof *r);
        struct turn t;
        if (!r)
            return;         /* they stay queued, and are withdrawn in time */
        begin(at, &t);
        const struct flight *f = serve_take(node_serve(p->node), true, &at->port, t.now_ms,
                                            &t.effects);
        more = f && change_load(p, f, &r->load);
        if (f && !more)
            serve_lose(node_serve(p->node), f->id, t.now_ms, &t.effects);
        turn_end(p, &t);
        if (!more) {
            mem_free(r);
            return;
        }
        r->kind = PEERAGE_EVENT_LOAD;
        r->load_id = r->load.load_id;
        list_add_tail(&at->ready, &r->of);
    }
}

/* Nobody waits for a load any more: a query is given up, a task may be cancelled. */
static void take_cancel(struct peerage_port *at, uint64_t load_id)
{
    struct peerage *p = node_of(at);
    struct turn t;

    LIST_FOREACH(&at->questions, l) {
        struct port_question *q = CONTAINER_OF(l, struct port_question, of);
        if (!q->leads || q->load_id != load_id)
            continue;
        begin(at, &t);
        serve_lose(node_serve(p->node), load_id, t.now_ms, &t.effects);
        turn_end(p, &t);
        port_conn_leave(q, true);
        q->leads = false;
        if (q->gone)
            free_question(q);
        return;
    }
    struct ready *r = mem_zalloc(sizeof *r);
    if (!r)
        return;             /* the task runs on, and its value is stored */
    r->kind = PEERAGE_EVENT_CANCEL;
    r->load_id = load_id;
    list_add_tail(&at->ready, &r->of);
}

static void take_word(struct peerage_port *at, struct word *w)
{
    struct port_conn *k = port_conn_find(at, w->permit->conn_id);
    unsigned count_items = w->items ? bundle_count(w->items) : 0;

    if (k && k->c) {
        struct loaded *items = count_items ? mem_alloc(count_items * sizeof *items) : NULL;
        for (unsigned i = 0; items && i < count_items; i++)
            items[i] = *bundle_at(w->items, i);
        uint8_t kind = count_items && !items ? MESSAGE_RETURNED : w->kind;
        if (permit_queue(w->permit, k->c, kind, items, items ? count_items : 0, w->error))
            port_conn_flush(k);
        mem_free(items);
    }
    word_free(w);
}

static void take_completed(struct port_question *q)
{
    struct answer a = q->waiter.answer;

    memset(&q->waiter.answer, 0, sizeof q->waiter.answer);
    if (!q->change && a.outcome == OUTCOME_RETRY && !q->gone) {
        answer_deinit(&a);
        if (!q->leads)
            ask_again(q);
        return;
    }
    end_question(q, &a, q->change ? 0 : exchange_error(a.outcome));
}

static void close_all(struct peerage_port *at)
{
    LIST_FOREACH_SAFE(&at->questions, l) {
        struct port_question *q = CONTAINER_OF(l, struct port_question, of);
        struct peerage *p = node_of(at);
        struct turn t;
        if (q->ended)
            continue;
        begin(at, &t);
        if (q->change)
            node_change_leave(p->node, &q->waiter);
        else
            serve_leave(node_serve(p->node), &q->waiter, t.now_ms, &t.effects);
        if (q->leads)
            serve_lose(node_serve(p->node), q->load_id, t.now_ms, &t.effects);
        turn_end(p, &t);
        port_conn_leave(q, false);
        q->leads = false;
        end_in_trouble(q, ERR_CLOSED);
    }
    while (!list_empty(&at->conns))
        port_conn_free(CONTAINER_OF(at->conns.next, struct port_conn, of));
}

/* Everything other threads left in the port's lists. False: there was nothing. */
static bool take_lists(struct peerage_port *at)
{
    struct peerage *p = node_of(at);
    struct port *port = &at->port;
    struct list completed, dialled, verified, here, cancels, words;
    bool loads, members, closed, any;

    list_init(&completed);
    list_init(&dialled);
    list_init(&verified);
    list_init(&here);
    list_init(&cancels);
    list_init(&words);
    pthread_mutex_lock(&p->lock);
    list_move_all(&completed, &port->completed);
    list_move_all(&dialled, &port->dialled);
    list_move_all(&verified, &port->verified);
    list_move_all(&cancels, &port->cancels);
    list_move_all(&words, &port->words);
    while (!list_empty(&port->loads_here)) {
        struct port_question *q = CONTAINER_OF(port->loads_here.next, struct port_question,
                                               of_here);
        list_remove(&q->of_here);
        if (q->gone || !say_load(q, q->load_here_id, NULL))
            list_add_tail(&here, &q->of_here);
        else
            q->load_here_id = 0;
    }
    loads = port->loads_waiting;
    members = port->members_changed;
    closed = port->closed;
    port->loads_waiting = port->members_changed = false;
    pthread_mutex_unlock(&p->lock);
    any = loads || members || !list_empty(&completed) || !list_empty(&dialled) ||
          !list_empty(&verified) || !list_empty(&here) || !list_empty(&cancels) || !list_empty(&words);

    while (!list_empty(&here)) {
        struct port_question *q = CONTAINER_OF(here.next, struct port_question, of_here);
        uint64_t load_id = q->load_here_id;
        list_remove(&q->of_here);
        q->load_here_id = 0;
        peerage_lose(p, load_id);
    }
    while (!list_empty(&words))
        take_word(at, CONTAINER_OF(words.next, struct word, of));
    while (!list_empty(&dialled)) {
        struct dial_request *r = CONTAINER_OF(dialled.next, struct dial_request, of);
        list_remove(&r->of);
        port_conn_dialled(r->token, r);
    }
    while (!list_empty(&verified)) {
        struct verify_job *j = CONTAINER_OF(verified.next, struct verify_job, of);
        list_remove(&j->of);
        port_conn_verified(j->token, j);
    }
    while (!list_empty(&completed)) {
        struct waiter *w = CONTAINER_OF(completed.next, struct waiter, link);
        list_remove(&w->link);
        take_completed(w->token);
    }
    while (!list_empty(&cancels)) {
        struct cancel *c = CONTAINER_OF(cancels.next, struct cancel, of);
        uint64_t load_id = c->load_id;
        list_remove(&c->of);
        mem_free(c);
        take_cancel(at, load_id);
    }
    if (loads)
        take_async_loads(at);
    if (members)
        port_conn_check_members(at);
    if (closed)
        close_all(at);
    return any;
}

/* Its asker's patience has ended: told so, while its query may go on for others. */
static void expire_asker(struct port_question *q)
{
    struct ready *r = mem_zalloc(sizeof *r);

    if (!r) {
        q->until_ms = clock_now_ms() + 100;     /* there may be memory then */
        return;
    }
    r->kind = q->change ? PEERAGE_EVENT_REPORT : PEERAGE_EVENT_ANSWER;
    r->token = q->token;
    r->error = ERR_TIMEOUT;
    r->alone = true;
    take_back_loads(q->at, q->token);
    list_add_tail(&q->at->ready, &r->of);
    leave(q);
}

/* What is due, after the sockets were read (O9). Arms the timer for what is not. */
static void take_due(struct peerage_port *at, uint64_t now_ms)
{
    struct peerage *p = node_of(at);
    uint64_t next_ms = NEVER_MS;
    bool again = true;
    struct turn t;

    begin(at, &t);          /* without a loop thread the flights' deadlines are ours */
    if (p->loop_wakes_ms == NEVER_MS && !list_empty(&at->questions))
        next_ms = node_serve_due_ms(p->node);
    turn_end(p, &t);
    while (again) {         /* a step may end other questions too: start over after each */
        again = false;
        LIST_FOREACH(&at->questions, l) {
            struct port_question *q = CONTAINER_OF(l, struct port_question, of);
            if (q->ended)
                continue;
            if (q->leads && now_ms >= q->query.due_ms) {
                port_conn_leave(q, true);
                port_question_step(q, query_expired(&q->query, now_ms));
                again = true;
                break;
            }
            if (!q->gone && now_ms >= q->until_ms) {
                expire_asker(q);
                again = true;
                break;
            }
        }
    }
    LIST_FOREACH(&at->questions, l) {
        struct port_question *q = CONTAINER_OF(l, struct port_question, of);
        if (q->ended)
            continue;
        if (q->leads)
            next_ms = min_u64(next_ms, q->query.due_ms);
        if (!q->gone)
            next_ms = min_u64(next_ms, q->until_ms);
    }
    poller_arm(&at->poller, next_ms, now_ms);
}

void peerage_port_run(peerage_port *at)
{
    struct poller_event events[POLLER_EVENTS_MAX];
    bool fired = false;

    if (shell_is_foreign(node_of(at)))
        return;
    at->running = true;
    at->turn++;
    int count_events = poller_take(&at->poller, events);
    for (int i = 0; i < count_events; i++) {
        if (!events[i].token)
            fired = true;
        else if (events[i].token == at)
            bell_quiet(&at->port.bell);
    }
    for (int i = 0; i < count_events; i++) {
        struct port_conn *k = events[i].token;
        if (!k || events[i].token == at)
            continue;
        /* One event may have broken another's connection. */
        LIST_FOREACH(&at->conns, l) {
            if (CONTAINER_OF(l, struct port_conn, of) == k) {
                port_conn_ready(k, events[i].events);
                break;
            }
        }
    }
    while (take_lists(at))
        ;
    uint64_t now_ms = clock_now_ms();
    if (fired)
        take_due(at, now_ms);
    if (now_ms >= at->idle_ms) {
        at->idle_ms = now_ms + SWEEP_EVERY_MS;
        port_conn_sweep(at, now_ms);
    }
    do {
        port_conn_flush_all(at);        /* a connection that breaks may complete others */
    } while (take_lists(at));
    port_conn_flush_all(at);
    at->running = false;
}

int peerage_port_next(peerage_port *at, struct peerage_event *out)
{
    if (shell_is_foreign(node_of(at)) || list_empty(&at->ready))
        return 0;
    struct ready *r = CONTAINER_OF(at->ready.next, struct ready, of);
    list_remove(&r->of);
    memset(out, 0, sizeof *out);
    out->kind = r->kind;
    out->token = r->token;
    out->load_id = r->load_id;
    out->error = r->error;
    if (r->kind == PEERAGE_EVENT_LOAD)
        out->load = r->load;
    if (r->kind == PEERAGE_EVENT_ANSWER) {
        out->answer = &at->answer;
        if (r->is_load) {
            exchange_clear(&at->answer);
            at->answer.kind = PEERAGE_LOAD;
            at->answer.load_id = r->load_id;
            at->answer.chain_count = r->chain_count;
            memcpy(at->answer.chain, r->chain, sizeof r->chain);
        } else if (r->error) {
            answer_deinit(&r->answer);
            exchange_trouble(&at->answer, r->error);
        } else {
            exchange_answer(&r->answer, clock_now_ms(), &at->answer);
        }
    }
    if (r->kind == PEERAGE_EVENT_REPORT && !r->error)
        out->error = change_report(&r->answer, &out->report);
    if (is_end(r))
        free_question(CONTAINER_OF(r, struct port_question, end));
    else
        mem_free(r);
    return 1;
}

/* ---- the port itself ------------------------------------------------------------------------------- */

int peerage_port_new(peerage *p, peerage_port **out)
{
    struct peerage_port *at;

    if (shell_is_foreign(p))
        return ERR_FORKED;
    at = mem_zalloc(sizeof *at);
    if (!at)
        return ERR_NOMEM;
    if (!port_init(&at->port, p, true)) {
        mem_free(at);
        return ERR_SYSTEM;
    }
    if (!poller_init(&at->poller, true) ||
        !poller_watch(&at->poller, at->port.bell.fd, POLLER_READ, at, false)) {
        poller_deinit(&at->poller);
        port_deinit(&at->port);
        mem_free(at);
        return ERR_SYSTEM;
    }
    list_init(&at->questions);
    list_init(&at->conns);
    list_init(&at->dirty);
    at->turn = 1;
    list_init(&at->ready);
    for (unsigned b = 0; b < TOKEN_BUCKETS; b++)
        list_init(&at->tokens[b]);
    pthread_mutex_lock(&p->lock);
    list_add_tail(&p->ports, &at->port.of_node);
    at->port.closed = p->closed;
    pthread_mutex_unlock(&p->lock);
    *out = at;
    return 0;
}

int peerage_port_fd(const peerage_port *at)
{
    return at->poller.fd;
}

void peerage_port_ask(peerage_port *at, const struct peerage_ask *in, void *token,
                      struct peerage_answer *out)
{
    int error;

    if (shell_is_foreign(node_of(at))) {
        exchange_trouble(out, ERR_FORKED);
        return;
    }
    if (in->flags & PEERAGE_NO_WAIT) {
        if (peerage_get(node_of(at), in->key, in->key_bytes, out) != 1) {
            exchange_clear(out);
            out->kind = PEERAGE_MISS;
        }
        return;
    }
    struct port_question *q = new_question(at, in, token, &error);
    if (!q) {
        exchange_trouble(out, error);
        return;
    }
    if (!ask(q, out)) {
        exchange_clear(out);
        out->kind = PEERAGE_PENDING;
    } else if (out->kind != PEERAGE_LOAD) {
        free_question(q);
    }
}

int peerage_port_change(peerage_port *at, const struct peerage_ask *name,
                        const struct peerage_item *item, int by_channel, void *token)
{
    struct peerage *p = node_of(at);
    struct loaded loaded;
    struct turn t;
    int error;

    if (shell_is_foreign(p))
        return ERR_FORKED;
    struct port_question *q = new_question(at, name, token, &error);
    if (!q)
        return error;
    q->change = true;
    error = change_item(p, item, &q->question.ask, &loaded);
    if (error) {
        free_question(q);
        return error;
    }
    begin(at, &t);
    bool closed = p->closed;
    if (!closed)
        node_change(p->node, &q->question.ask, by_channel, item ? &loaded : NULL, &q->waiter,
                    t.now_ms, &t.effects);
    turn_end(p, &t);
    blob_unref(loaded.blob);
    if (!closed)
        return 0;
    free_question(q);
    return ERR_CLOSED;
}

void peerage_start_port(peerage *p, peerage_port *at)
{
    struct turn t;

    if (shell_is_foreign(p))
        return;
    turn_begin(p, &t);
    p->start_port = at ? &at->port : NULL;
    serve_start_loop(node_serve(p->node), at != NULL);
    if (at) {
        at->port.loads_waiting = true;      /* some may have been queued for another */
        turn_ring(&t, &at->port);
    }
    turn_end(p, &t);
}

void port_ask_free(struct port *port)
{
    struct peerage_port *at = (struct peerage_port *)port;

    poller_deinit(&at->poller);
    port_deinit(&at->port);
    mem_free(at);
}

static void empty_lists(struct peerage_port *at)
{
    struct port *port = &at->port;

    while (!list_empty(&port->words))
        word_free(CONTAINER_OF(port->words.next, struct word, of));
    LIST_FOREACH_SAFE(&port->cancels, l) {
        list_remove(l);
        mem_free(CONTAINER_OF(l, struct cancel, of));
    }
    LIST_FOREACH_SAFE(&at->ready, l) {
        struct ready *r = CONTAINER_OF(l, struct ready, of);
        if (is_end(r))
            continue;           /* in its question */
        list_remove(l);
        if (r->kind == PEERAGE_EVENT_LOAD)
            peerage_load_free(&r->load);
        mem_free(r);
    }
}

void peerage_port_gone(peerage_port *at, void (*token_gone)(void *, void *), void *argument)
{
    struct peerage *p = node_of(at);
    struct turn t;

    if (shell_is_foreign(p))
        return;                 /* closed by the fork already; given up like its node */
    turn_begin(p, &t);
    serve_port_gone(node_serve(p->node), &at->port, t.now_ms, &t.effects);
    permit_drop_port(p, &at->port);
    if (p->start_port == &at->port) {
        p->start_port = NULL;
        serve_start_loop(node_serve(p->node), false);
    }
    LIST_FOREACH(&at->questions, l) {
        struct port_question *q = CONTAINER_OF(l, struct port_question, of);
        if (q->change && !q->ended)
            node_change_leave(p->node, &q->waiter);
        list_remove(&q->waiter.link);
        list_remove(&q->of_here);
    }
    list_remove(&at->port.of_node);
    turn_end(p, &t);
    empty_lists(at);
    while (!list_empty(&at->questions)) {
        struct port_question *q = CONTAINER_OF(at->questions.next, struct port_question, of);
        if (!q->gone && token_gone)
            token_gone(q->token, argument);
        answer_deinit(&q->end.answer);
        answer_deinit(&q->waiter.answer);
        free_question(q);
    }
    while (!list_empty(&at->conns))
        port_conn_free(CONTAINER_OF(at->conns.next, struct port_conn, of));
    port_unref(&at->port);
}
