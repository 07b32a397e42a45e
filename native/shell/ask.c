/* The blocked thread's driver (see ask.h).
 *
 *     serve_ask -> a hit, or a load for us          done
 *               -> WAIT: somebody asks or loads     wait on the port
 *               -> ASK: we lead                     query: send, poll, read, next step
 *
 * A load that was lost, and members that changed, end in RETRY: then it asks again, with
 * what is left of the caller's patience.
 */
#include "shell/ask.h"

#include <errno.h>
#include <poll.h>

#include "core/err.h"
#include "core/mem.h"
#include "core/node_tally.h"
#include "shell/change.h"
#include "shell/clock.h"
#include "shell/dial.h"
#include "shell/exchange.h"
#include "shell/loop.h"
#include "shell/permit.h"
#include "shell/shell.h"
#include "shell/turn.h"

#define TRIES_MAX 16            /* of a question whose loads keep being lost */

struct asking {
    struct peerage *p;
    struct port *port;
    struct question question;
    struct waiter waiter;
    uint64_t until_ms;          /* the caller's patience */
    int (*interrupted)(void *);
    void *argument;
    struct peerage_answer *out;
    /* While it leads: */
    uint64_t load_id, request_id, asked_ms;
    struct query query;
    struct stream *c;              /* with our request on it, or NULL */
    bool answering;             /* bytes of our answer have come */
    uint8_t last_kind;          /* of the frame that ended it */
    struct gathered got;
};

enum woken { WOKEN_READY, WOKEN_LATE, WOKEN_GIVE_UP };

/* Waiting. */

static bool ends_it(const struct asking *a)
{
    return a->interrupted && a->interrupted(a->argument);
}

/* As poll(), until end_ms. *cut: a signal came whose handler ends the question. */
static int poll_and_hear(struct asking *a, struct pollfd *fds, nfds_t nfds, uint64_t end_ms,
                         bool *cut)
{
    uint64_t now_ms = clock_now_ms();
    int timeout_ms = end_ms == NEVER_MS ? -1
                     : end_ms > now_ms  ? (int)min_u64(end_ms - now_ms, 3600000)
                                        : 0;
    int rc = poll(fds, nfds, timeout_ms);

    *cut = rc < 0 && errno == EINTR && ends_it(a);
    return rc;
}

/* The same, which looks first (W10): a signal that came meanwhile has cut no poll, and its handler
 * may take its time. */
static int look_and_hear(struct asking *a, struct pollfd *fds, nfds_t nfds, uint64_t end_ms,
                         bool *cut)
{
    struct counters *counters = &a->p->counters;
    enum spin_look look;
    int rc = spin_poll(&a->c->spin, fds, nfds, &look);

    if (look != SPIN_RESTED)
        count(&counters->spins);
    if (look == SPIN_VAIN)
        count(&counters->spins_in_vain);
    *cut = look == SPIN_VAIN && ends_it(a);
    return rc || *cut ? rc : poll_and_hear(a, fds, nfds, end_ms, cut);
}

/* Poll the port's bell, and the connection if there is one, until due_ms. GIVE_UP: *error
 * is the reason. */
static enum woken wait_for(struct asking *a, uint64_t due_ms, int *error)
{
    struct pollfd fds[2] = {{.fd = a->port->bell.fd, .events = POLLIN}};
    nfds_t count = 1;
    uint64_t now_ms = clock_now_ms(), end_ms = min_u64(due_ms, a->until_ms);

    if (now_ms >= a->until_ms) {
        *error = ERR_TIMEOUT;
        return WOKEN_GIVE_UP;
    }
    if (now_ms >= due_ms)
        return WOKEN_LATE;
    if (a->c) {
        fds[1].fd = a->c->fd;
        fds[1].events = (short)(POLLIN | (stream_wants_write(a->c) ? POLLOUT : 0));
        count = 2;
    }
    bool cut;
    int rc = a->c ? look_and_hear(a, fds, count, end_ms, &cut)
                  : poll_and_hear(a, fds, count, end_ms, &cut);
    if (cut) {
        *error = ERR_INTERRUPTED;
        return WOKEN_GIVE_UP;
    }
    if (rc > 0 && fds[0].revents)
        bell_quiet(&a->port->bell);
    return WOKEN_READY;
}

static void give_up(struct asking *a, int error)
{
    exchange_trouble(a->out, error);
}

/* As one who waits. */

/* Without a loop thread the flights' deadlines are ours to look after (turn_begin does). */
static uint64_t flights_due(struct peerage *p)
{
    return p->loop_wakes_ms == NEVER_MS ? node_serve_due_ms(p->node) : NEVER_MS;
}

/* True: *out is filled; false: ask again. */
static bool await(struct asking *a)
{
    struct peerage *p = a->p;
    struct turn t;
    int error = 0;

    for (;;) {
        turn_begin(p, &t);
        bool done = !list_empty(&a->port->completed);
        uint64_t due_ms = flights_due(p);
        if (done)
            list_remove(&a->waiter.link);
        else if (a->port->closed)
            error = ERR_CLOSED;
        if (error && !done)
            serve_leave(node_serve(p->node), &a->waiter, t.now_ms, &t.effects);
        if (done && a->waiter.answer.outcome == OUTCOME_LOAD)
            exchange_load(p, a->waiter.answer.load_id, a->out);
        turn_end(p, &t);
        if (done && a->waiter.answer.outcome == OUTCOME_LOAD)
            return true;
        if (done && a->waiter.answer.outcome == OUTCOME_RETRY)
            return false;
        if (done) {
            exchange_answer(&a->waiter.answer, t.now_ms, a->out);
            return true;
        }
        if (error) {
            give_up(a, error);
            return true;
        }
        wait_for(a, due_ms, &error);
    }
}

/* As one who asks. */

/* The connection with the request on it: given back when the answer is complete, else
 * closed, which the other side takes as our leaving. */
static void let_go(struct asking *a, bool clean)
{
    if (!a->c)
        return;
    if (clean)
        pool_give(&a->p->pool, a->c, clock_now_ms());
    else
        stream_free(a->c);
    a->c = NULL;
}

/* Dial by way of the loop thread. True: a->c is there, or *step says how to go on. */
static bool dial(struct asking *a, enum query_step *step, int *error)
{
    const struct query_rank *rank = query_at(&a->query);
    struct dial_request *r = dial_ask(a->port, &rank->addr, rank->node_id, a->query.due_ms, NULL);
    bool done = false;
    enum woken woken = WOKEN_READY;

    if (!r) {
        *step = query_broken(&a->query, false, clock_now_ms());
        return true;
    }
    while (!done && woken == WOKEN_READY) {
        woken = wait_for(a, a->query.due_ms, error);
        pthread_mutex_lock(&a->p->lock);
        done = r->done;
        if (a->port->closed && !*error) {
            *error = ERR_CLOSED;
            woken = WOKEN_GIVE_UP;
        }
        pthread_mutex_unlock(&a->p->lock);
    }
    if (done && woken != WOKEN_GIVE_UP && r->result == DIAL_PROVEN) {
        a->c = r->connection;
        r->connection = NULL;
    } else if (done && r->result == DIAL_STRANGER) {
        loop_hint_replaced(a->p, &rank->addr, r->other_id);
        *step = query_stranger(&a->query, clock_now_ms());
    } else if (done) {
        *step = query_broken(&a->query, false, clock_now_ms());
    } else {
        *step = query_expired(&a->query, clock_now_ms());
    }
    dial_forget(r);
    return woken != WOKEN_GIVE_UP;
}

/* QUERY_SEND. False: give up with *error. */
static bool send(struct asking *a, enum query_step *step, int *error)
{
    const struct query_rank *rank = query_at(&a->query);
    struct message m = a->question.ask;

    *step = QUERY_WAIT;
    if (!a->query.redialled)
        a->c = pool_take(&a->p->pool, &rank->addr, rank->node_id);
    else
        count(&a->p->counters.redials);
    if (!a->c && !dial(a, step, error))
        return false;
    if (!a->c)
        return true;
    a->asked_ms = clock_now_ms();
    a->answering = false;
    gathered_clear(&a->got);
    a->request_id = m.request_id = a->c->next_request_id++;
    query_fill(&a->query, a->asked_ms, &m);
    count(&a->p->counters.requests);
    count(&a->p->counters.frames_out);
    if (stream_queue(a->c, &m, NULL, clock_wall_ms()) < 0 || stream_flush(a->c) < 0) {
        bool reused = a->c->reused;
        let_go(a, false);
        *step = query_broken(&a->query, reused, clock_now_ms());
    }
    return true;
}

/* A frame of our answer. */
static enum query_step take_frame(struct asking *a, const struct message *m, struct blob *value,
                                  uint64_t now_ms)
{
    enum query_step step;

    a->answering = true;
    a->last_kind = m->kind;
    bool whole = gathered_frame(&a->got, &a->query, m, value, now_ms, &step);
    if (!whole || (step != QUERY_WAIT && step != QUERY_PERMITTED))
        let_go(a, whole);
    return step;
}

/* Everything complete in the buffer. */
static enum query_step take_frames(struct asking *a)
{
    struct message m;
    struct blob *value;

    for (;;) {
        enum stream_next next = stream_next(a->c, clock_wall_ms(), &m, &value);
        if (next == STREAM_BAD) {
            count(&a->p->counters.verdicts[a->c->verdict]);
            let_go(a, false);
            return query_broken(&a->query, false, clock_now_ms());
        }
        if (next != STREAM_FRAME)
            return QUERY_WAIT;
        count(&a->p->counters.frames_in);
        if (m.request_id != a->request_id) {
            blob_unref(value);          /* late: somebody who has left had asked for it */
            continue;
        }
        enum query_step step = take_frame(a, &m, value, clock_now_ms());
        if (step != QUERY_WAIT)
            return step;
    }
}

/* Read what is there. */
static enum query_step read_frames(struct asking *a)
{
    uint64_t before = a->c->bytes_in;
    enum query_step step;
    int filled;

    do {
        filled = stream_fill(a->c);
        step = take_frames(a);
        if (step != QUERY_WAIT)
            return step;
    } while (filled > 0 && !a->c->drained);
    if (filled < 0) {
        bool reused = a->c->reused && !a->answering;
        let_go(a, false);
        return query_broken(&a->query, reused, clock_now_ms());
    }
    if (stream_arriving(a->c) == a->request_id && a->c->bytes_in != before) {
        a->answering = true;
        query_progress(&a->query, clock_now_ms());
    }
    return QUERY_WAIT;
}

/* Is the asked node a live member no more? */
static bool peer_is_gone(struct asking *a, bool *closed)
{
    struct peerage *p = a->p;
    bool gone = false;

    pthread_mutex_lock(&p->lock);
    *closed = a->port->closed;
    if (a->port->members_changed) {
        const struct view *v = serve_view(node_serve(p->node));
        const struct query_rank *rank = query_at(&a->query);
        int at = v ? view_find(v, &rank->addr) : -1;
        a->port->members_changed = false;
        gone = v && (at < 0 || v->members[at].node_id != rank->node_id);
    }
    pthread_mutex_unlock(&p->lock);
    return gone;
}

/* QUERY_WAIT. False: give up with *error. */
static bool wait_frames(struct asking *a, enum query_step *step, int *error)
{
    while (*step == QUERY_WAIT) {
        bool closed = false;
        enum woken woken = wait_for(a, a->query.due_ms, error);
        if (woken == WOKEN_GIVE_UP)
            return false;
        /* Whatever woke us, and also when it is too late: what lies in the socket counts
         * before a deadline does (O9). */
        if (stream_wants_write(a->c) && stream_flush(a->c) < 0) {
            bool reused = a->c->reused && !a->answering;
            let_go(a, false);
            *step = query_broken(&a->query, reused, clock_now_ms());
            break;
        }
        bool gone = peer_is_gone(a, &closed);   /* its last answer was sent before */
        *step = read_frames(a);
        if (*step != QUERY_WAIT)
            break;
        if (woken == WOKEN_LATE && clock_now_ms() >= a->query.due_ms) {
            let_go(a, false);
            *step = query_expired(&a->query, clock_now_ms());
        } else if (gone) {
            let_go(a, false);
            *step = query_peer_dead(&a->query, clock_now_ms());
        } else if (closed) {
            *error = ERR_CLOSED;
            return false;
        }
    }
    return true;
}

/* Under the lock: what the query learnt of a peer. */
static void report_peer(struct asking *a, uint64_t now_ms, bool *silent, struct addr *who)
{
    struct query *q = &a->query;

    *silent = false;
    if (addr_is_zero(&q->verdict_of))
        return;
    serve_peer(node_serve(a->p->node), &q->verdict_of, q->verdict, now_ms);
    *silent = q->verdict == PEER_SILENT;
    *who = q->verdict_of;
    memset(&q->verdict_of, 0, sizeof q->verdict_of);
}

static void report_now(struct asking *a)
{
    struct addr who;
    bool silent;

    if (addr_is_zero(&a->query.verdict_of))
        return;
    pthread_mutex_lock(&a->p->lock);
    report_peer(a, clock_now_ms(), &silent, &who);
    pthread_mutex_unlock(&a->p->lock);
    if (silent)
        loop_hint_silent(a->p, &who);
}

/* The leave to load: by a permit, or because nobody else does. True: *out is filled. */
static bool take_load(struct asking *a, enum query_step step, struct turn *t,
                      struct permit *permit, bool *await_it)
{
    struct peerage *p = a->p;
    struct answer answer;

    serve_answered_load(node_serve(p->node), a->load_id, step, true, &a->waiter, t->now_ms,
                        &answer, &t->effects);
    *await_it = answer.outcome == OUTCOME_WAIT;
    if (answer.outcome != OUTCOME_LOAD)
        return false;
    exchange_load(p, answer.load_id, a->out);
    if (permit) {
        permit->load_id = answer.load_id;
        permit->c = a->c;
        a->c = NULL;
        permit_add(p, permit);
    }
    return true;
}

/* The query's end. True: *out is filled; false: *await_it, or ask again. */
static bool finish(struct asking *a, enum query_step step, bool *await_it)
{
    struct peerage *p = a->p;
    struct serve *s = node_serve(p->node);
    struct permit *permit = NULL;
    struct answer answer = {.outcome = OUTCOME_MISS};
    struct addr who;
    struct turn t;
    bool filled = false, silent;

    *await_it = false;
    if (step == QUERY_PERMITTED)
        permit = permit_new(&a->question.ask, a->load_id, a->request_id, a->got.delete_id);
    turn_begin(p, &t);
    report_peer(a, t.now_ms, &silent, &who);
    switch (step) {
    case QUERY_ANSWERED:
        if (a->last_kind == MESSAGE_FAILED) {
            serve_answered_error(s, a->load_id, a->got.items[0].blob, t.now_ms, &t.effects);
            answer = (struct answer){.outcome = OUTCOME_FAILED, .tier = exchange_tier(&a->query),
                                     .blob = blob_ref(a->got.items[0].blob),
                                     .value_type = VALUE_ERROR, .expires_ms = t.now_ms};
        } else {
            serve_answered(s, a->load_id, a->got.items, a->got.count, a->got.delete_id,
                           exchange_tier(&a->query), a->asked_ms, t.now_ms, &t.effects);
            gathered_answer(&a->got, exchange_tier(&a->query), a->asked_ms, &answer);
        }
        break;
    case QUERY_MISSED:
        serve_answered_miss(s, a->load_id, t.now_ms, &t.effects);
        break;
    case QUERY_RECURSIVE:
        serve_lose(s, a->load_id, t.now_ms, &t.effects);
        answer.outcome = OUTCOME_RECURSIVE;
        break;
    case QUERY_PERMITTED:
        if (!permit) {
            serve_lose(s, a->load_id, t.now_ms, &t.effects);
            answer.outcome = OUTCOME_NOMEM;
            break;
        }
        answer.outcome = OUTCOME_WAIT;
        filled = take_load(a, step, &t, permit, await_it);
        if (filled)
            permit = NULL;
        break;
    case QUERY_OWN:
    case QUERY_LOAD:
        answer.outcome = OUTCOME_WAIT;
        filled = take_load(a, step, &t, NULL, await_it);
        break;
    case QUERY_SEND:
    case QUERY_WAIT:
        assert(false && "not an end");
    }
    turn_end(p, &t);
    if (silent)
        loop_hint_silent(p, &who);
    if (permit && a->c) {       /* the flight has gone: the next one may load */
        permit->c = a->c;
        a->c = NULL;
        permit_say(p, permit, MESSAGE_RETURNED, NULL, 0, NULL);
        permit = NULL;
    }
    permit_free(permit);
    let_go(a, false);
    if (answer.outcome != OUTCOME_WAIT) {
        exchange_answer(&answer, t.now_ms, a->out);
        filled = true;
    }
    return filled;
}

/* True: *out is filled; false: ask again. */
static bool lead(struct asking *a, const struct answer *asked, const struct query_rank *ranks,
                 unsigned count_ranks)
{
    struct peerage *p = a->p;
    uint32_t timeout_ms = p->settings.timeout_ms;
    bool loads = a->question.ask.flags & MESSAGE_LOADS, going = true, await_it;
    enum query_step step;
    int error = 0;
    struct turn t;

    count(&p->counters.asks_by_threads);
    gathered_init(&a->got);
    step = query_begin(&a->query, ranks, count_ranks, loads, timeout_ms,
                       a->question.ask.load_timeout_ms, clock_now_ms());
    query_know_delete(&a->query, asked->delete_id, asked->deleted_ms);
    while (going && (step == QUERY_SEND || step == QUERY_WAIT)) {
        if (step == QUERY_SEND)
            going = send(a, &step, &error);
        else
            going = wait_frames(a, &step, &error);
        if (going && (step == QUERY_SEND || step == QUERY_WAIT))
            report_now(a);
    }
    if (!going) {
        let_go(a, false);
        turn_begin(p, &t);
        serve_lose(node_serve(p->node), a->load_id, t.now_ms, &t.effects);
        turn_end(p, &t);
        gathered_clear(&a->got);
        give_up(a, error);
        return true;
    }
    bool filled = finish(a, step, &await_it);
    gathered_clear(&a->got);
    return filled || (await_it && await(a));
}

/* The whole. */

/* Under the lock; may let go of it for a new port. */
static bool get_port(struct asking *a, struct turn *t)
{
    struct peerage *p = a->p;

    while (!(a->port = port_borrow(p))) {
        turn_end(p, t);
        if (!port_make_idle(p))
            return false;
        turn_begin(p, t);
    }
    a->waiter.port = a->port;
    return true;
}

static void drop_port(struct asking *a)
{
    struct peerage *p = a->p;

    if (!a->port)
        return;
    pthread_mutex_lock(&p->lock);
    bool kept = port_return(p, a->port);
    pthread_mutex_unlock(&p->lock);
    if (!kept)
        port_unref(a->port);
    a->port = NULL;
}

/* No descriptor is left to wait by. Who has a loader runs it, for itself alone: 0 is no flight,
 * so what it reports is nobody's. */
static void help_yourself(struct asking *a)
{
    const struct message *ask = &a->question.ask;

    if (!(ask->flags & MESSAGE_LOADS) || atomic_load(&a->p->state) == PEERAGE_CLOSED) {
        give_up(a, ERR_SYSTEM);
        return;
    }
    exchange_clear(a->out);
    a->out->kind = PEERAGE_LOAD;
    a->out->chain_count = ask->chain_count;
    memcpy(a->out->chain, ask->chain, sizeof a->out->chain);
}

/* One round. True: *out is filled; false: ask again. */
static bool ask_once(struct asking *a)
{
    struct peerage *p = a->p;
    struct query_rank ranks[RANKS_MAX];
    unsigned count_ranks;
    struct answer answer;
    struct turn t;

    turn_begin(p, &t);
    if (!a->port && !get_port(a, &t)) {
        help_yourself(a);
        return true;
    }
    exchange_ask(p, &a->question, &a->waiter, &t, &answer, ranks, &count_ranks, a->out);
    turn_end(p, &t);
    switch (answer.outcome) {
    case OUTCOME_LOAD:
        return true;
    case OUTCOME_WAIT:
        return await(a);
    case OUTCOME_ASK:
        a->load_id = answer.load_id;
        return lead(a, &answer, ranks, count_ranks);
    case OUTCOME_RETRY:
        return false;
    default:
        exchange_answer(&answer, t.now_ms, a->out);
        return true;
    }
}

void ask_drive(peerage *p, const struct peerage_ask *in, struct peerage_answer *out,
               int (*interrupted)(void *), void *argument)
{
    struct asking a = {.p = p, .out = out, .interrupted = interrupted, .argument = argument};
    int rc = exchange_question(p, in, &a.question);

    if (rc < 0) {
        exchange_trouble(out, rc);
        return;
    }
    a.question.run_inline = true;
    a.until_ms = in->timeout_ms ? clock_now_ms() + in->timeout_ms : NEVER_MS;
    bool filled = false;
    for (int tries = 0; !filled && tries < TRIES_MAX; tries++)
        filled = ask_once(&a);
    if (!filled)
        exchange_trouble(out, ERR_LOST);
    drop_port(&a);
}

/* Sets and deletes. */

/* Until core has completed the waiter; else why it won't. */
static int await_word(struct asking *a)
{
    struct peerage *p = a->p;
    int error = 0, gave_up = 0;
    struct turn t;

    for (;;) {
        turn_begin(p, &t);
        uint64_t due_ms = flights_due(p);
        bool done = !list_empty(&a->port->completed);
        if (!done)
            error = a->port->closed ? ERR_CLOSED : gave_up;
        if (done)
            list_remove(&a->waiter.link);
        else if (error)
            node_change_leave(p->node, &a->waiter);
        turn_end(p, &t);
        if (done || error)
            return error;
        wait_for(a, due_ms, &gave_up);
    }
}

int ask_change(peerage *p, const struct peerage_ask *name, const struct peerage_item *item,
               int by_channel, struct peerage_report *report)
{
    struct peerage_answer unused;
    struct asking a = {.p = p, .out = &unused, .until_ms = NEVER_MS};
    struct loaded loaded;
    struct turn t;
    int rc = exchange_question(p, name, &a.question), error = 0;

    if (rc == 0)
        rc = change_item(p, item, &a.question.ask, &loaded);
    if (rc < 0)
        return rc;
    turn_begin(p, &t);
    if (!get_port(&a, &t)) {
        blob_unref(loaded.blob);
        return ERR_SYSTEM;
    }
    if (p->closed)
        error = ERR_CLOSED;
    else
        node_change(p->node, &a.question.ask, by_channel, item ? &loaded : NULL, &a.waiter,
                    t.now_ms, &t.effects);
    turn_end(p, &t);
    blob_unref(loaded.blob);
    if (!error)
        error = await_word(&a);
    drop_port(&a);
    return error ? error : change_report(&a.waiter.answer, report);
}

/* Tallies. */

int ask_tally(peerage *p, const struct tally_name *name, uint64_t amount, uint64_t limit,
              uint64_t *total, int (*interrupted)(void *), void *argument)
{
    struct peerage_answer unused;
    struct asking a = {.p = p, .out = &unused, .until_ms = NEVER_MS, .interrupted = interrupted,
                       .argument = argument};
    struct turn t;
    bool added = false;
    int rc = ERR_CLOSED;

    turn_begin(p, &t);
    if (!get_port(&a, &t))
        return ERR_SYSTEM;
    if (!p->closed)
        rc = node_tally_take(p->node, name, amount, limit, &a.waiter, t.now_ms, clock_wall_ms(),
                             total, &added, &t.effects);
    turn_end(p, &t);
    if (rc == TALLY_WAITS) {
        rc = await_word(&a);
        if (rc == 0 && !node_tally_word(blob_span(a.waiter.answer.blob), total, &added))
            rc = ERR_NOMEM;
        answer_deinit(&a.waiter.answer);
    }
    drop_port(&a);
    return rc < 0 ? rc : added;
}
