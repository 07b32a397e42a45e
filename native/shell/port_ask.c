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
#include "shell/tallies.h"
#include "shell/turn.h"

#define TRIES_MAX 16

static struct peerage *node_of(const struct peerage_port *at)
{
    return at->port.peerage;
}

void port_turn_begin(struct peerage_port *at, struct turn *t)
{
    turn_begin(node_of(at), t);
    if (at->running)
        t->self = &at->port;
}

/* Questions' memory. */

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

void port_question_free(struct port_question *q)
{
    gathered_clear(&q->got);
    list_remove(&q->of);
    list_remove(&q->of_token);
    list_remove(&q->of_conn);
    list_remove(&q->end.of);
    mem_free(q);
}

/* Events. */

/* Is it the one in a question, not on the heap? */
bool ready_is_end(const struct ready *r)
{
    return (r->kind == PEERAGE_EVENT_ANSWER || r->kind == PEERAGE_EVENT_REPORT ||
            r->kind == PEERAGE_EVENT_TALLY) &&
           !r->is_load && !r->alone;
}

/* The last event of a question; takes what the answer holds. */
void port_question_end(struct port_question *q, struct answer *a, int error)
{
    if (q->gone) {
        answer_deinit(a);
        if (!q->leads)
            port_question_free(q);
        return;
    }
    q->ended = true;
    q->end.kind = q->tally    ? PEERAGE_EVENT_TALLY
                  : q->change ? PEERAGE_EVENT_REPORT
                              : PEERAGE_EVENT_ANSWER;
    q->end.token = q->token;
    q->end.answer = *a;
    q->end.error = error;
    list_add_tail(&q->at->ready, &q->end.of);
}

void port_question_trouble(struct port_question *q, int error)
{
    struct answer none = {.outcome = OUTCOME_CLOSED};

    port_question_end(q, &none, error);
}

/* The leave to load, for the question's own task. False: out of memory. */
bool port_question_say_load(struct port_question *q, uint64_t load_id)
{
    struct ready *r = mem_zalloc(sizeof *r);

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

/* Asking. */

/* Ask core. True: an answer at once, in *out. */
static bool ask(struct port_question *q, struct peerage_answer *out)
{
    struct peerage_port *at = q->at;
    struct peerage *p = node_of(at);
    struct query_rank ranks[RANKS_MAX];
    enum query_step step;
    struct answer answer;
    unsigned count_ranks;
    struct turn t;

    q->tries++;
    port_turn_begin(at, &t);
    exchange_ask(p, &q->question, &q->waiter, &t, &answer, ranks, &count_ranks, out);
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
        step = query_begin(&q->query, ranks, count_ranks, q->question.ask.flags & MESSAGE_LOADS,
                           p->settings.timeout_ms, q->question.ask.load_timeout_ms, t.now_ms);
        query_know_delete(&q->query, answer.delete_id, answer.deleted_ms);
        port_question_step(q, step);
        return false;
    default:
        exchange_answer(&answer, t.now_ms, out);
        return true;
    }
}

/* Its waiter came back with nothing: the load was lost, or the members changed. */
void port_question_ask_again(struct port_question *q)
{
    struct peerage_answer out;

    if (q->tries >= TRIES_MAX) {
        port_question_trouble(q, ERR_LOST);
        return;
    }
    if (!ask(q, &out))
        return;
    if (out.kind == PEERAGE_LOAD) {
        struct turn t;
        port_turn_begin(q->at, &t);
        if (!port_question_say_load(q, out.load_id))
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
    port_question_end(q, &a, out.kind == PEERAGE_TROUBLE ? out.error : 0);
}

/* Leading a query. */

enum query_step port_question_frame(struct port_question *q, const struct message *m,
                                    struct blob *value, uint64_t now_ms)
{
    enum query_step step;

    q->answering = true;
    q->last_kind = m->kind;
    gathered_frame(&q->got, &q->query, m, value, now_ms, &step);
    return step;
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
    if ((step == QUERY_PERMITTED && !permit) || !port_question_say_load(q, answer.load_id)) {
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
    port_turn_begin(at, &t);
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
        port_question_free(q);
    else if (recursive)
        port_question_trouble(q, ERR_RECURSIVE);
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

/* Leaving. */

/* In a turn: it waits for nothing of core's any more, and a load that it was to run and was not
 * told of yet goes back. */
void port_question_unwait(struct port_question *q, struct turn *t)
{
    struct peerage *p = node_of(q->at);
    struct serve *s = node_serve(p->node);

    if (q->change)
        node_change_leave(p->node, &q->waiter);
    else
        serve_leave(s, &q->waiter, t->now_ms, &t->effects);
    list_remove(&q->of_here);
    if (q->load_here_id)
        serve_lose(s, q->load_here_id, t->now_ms, &t->effects);
    q->load_here_id = 0;
}

/* The asker gives up. Its query goes on while somebody else waits for what it asks. */
void port_question_leave(struct port_question *q)
{
    struct peerage_port *at = q->at;
    struct peerage *p = node_of(at);
    bool goes_on = false;
    struct turn t;

    port_turn_begin(at, &t);
    port_question_unwait(q, &t);
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
    port_question_free(q);
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
void port_take_back_loads(struct peerage_port *at, const void *token)
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
    port_take_back_loads(at, token);
    if (q->ended) {
        answer_deinit(&q->end.answer);
        port_question_free(q);
        return 1;
    }
    port_question_leave(q);
    return 1;
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
    if (r->kind == PEERAGE_EVENT_TALLY && !r->error) {
        bool added;
        if (!node_tally_word(blob_span(r->answer.blob), &out->total, &added))
            out->error = ERR_NOMEM;
        out->added = !out->error && added;
        answer_deinit(&r->answer);
    }
    if (ready_is_end(r))
        port_question_free(CONTAINER_OF(r, struct port_question, end));
    else
        mem_free(r);
    return 1;
}

/* From the application. */

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
        port_question_free(q);
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
        port_question_free(q);
        return error;
    }
    port_turn_begin(at, &t);
    bool closed = p->closed;
    if (!closed)
        node_change(p->node, &q->question.ask, by_channel, item ? &loaded : NULL, &q->waiter,
                    t.now_ms, &t.effects);
    turn_end(p, &t);
    blob_unref(loaded.blob);
    if (!closed)
        return 0;
    port_question_free(q);
    return ERR_CLOSED;
}

int peerage_port_tally(peerage_port *at, const struct peerage_tally *in, uint64_t amount,
                       uint64_t limit, void *token, uint64_t *total)
{
    struct peerage *p = node_of(at);
    struct tally_name name = tally_name_of(in);
    struct peerage_ask nothing = {.key = "-", .key_bytes = 1};     /* it asks for no entry */
    bool added = false;
    struct turn t;
    int rc;

    *total = 0;
    if (shell_is_foreign(p))
        return ERR_FORKED;
    if (!tally_in_redis(p))
        return tally_here(p, &name, amount, limit, total);
    struct port_question *q = new_question(at, &nothing, token, &rc);
    if (!q)
        return rc;
    q->change = q->tally = true;
    port_turn_begin(at, &t);
    rc = p->closed ? ERR_CLOSED
                   : node_tally_take(p->node, &name, amount, limit, &q->waiter, t.now_ms,
                                     clock_wall_ms(), total, &added, &t.effects);
    turn_end(p, &t);
    if (rc == TALLY_WAITS)
        return PEERAGE_PENDING_TALLY;
    port_question_free(q);
    return rc < 0 ? rc : added;
}
