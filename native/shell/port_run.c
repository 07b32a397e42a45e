/* The event loop's port turning: what other threads left in its lists, what its sockets say,
 * what is due; and its making and end (see port_ask.h).
 *
 * Order in a turn: bell and sockets, then the lists, then deadlines (what lies in a socket
 * counts before a deadline does, O9), then everything that is to be written, at once.
 */
#include "shell/port_ask.h"

#include "core/err.h"
#include "core/mem.h"
#include "shell/change.h"
#include "shell/clock.h"
#include "shell/dial.h"
#include "shell/permit.h"
#include "shell/shell.h"
#include "shell/turn.h"

#define SWEEP_EVERY_MS 5000u

static struct peerage *node_of(const struct peerage_port *at)
{
    return at->port.peerage;
}

static void take_async_loads(struct peerage_port *at)
{
    struct peerage *p = node_of(at);
    bool more = true;

    while (more) {
        struct ready *r = mem_zalloc(sizeof *r);
        struct turn t;
        if (!r)
            return;         /* they stay queued, and are withdrawn in time */
        port_turn_begin(at, &t);
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
        port_turn_begin(at, &t);
        serve_lose(node_serve(p->node), load_id, t.now_ms, &t.effects);
        turn_end(p, &t);
        port_conn_leave(q, true);
        q->leads = false;
        if (q->gone)
            port_question_free(q);
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
            port_question_ask_again(q);
        return;
    }
    port_question_end(q, &a, q->change ? 0 : exchange_error(a.outcome));
}

static void close_all(struct peerage_port *at)
{
    LIST_FOREACH_SAFE(&at->questions, l) {
        struct port_question *q = CONTAINER_OF(l, struct port_question, of);
        struct peerage *p = node_of(at);
        struct turn t;
        if (q->ended)
            continue;
        port_turn_begin(at, &t);
        port_question_unwait(q, &t);
        if (q->leads)
            serve_lose(node_serve(p->node), q->load_id, t.now_ms, &t.effects);
        turn_end(p, &t);
        port_conn_leave(q, false);
        q->leads = false;
        port_question_trouble(q, ERR_CLOSED);
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
        if (q->gone || !port_question_say_load(q, q->load_here_id))
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
          !list_empty(&verified) || !list_empty(&here) || !list_empty(&cancels) ||
          !list_empty(&words);

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
    port_take_back_loads(q->at, q->token);
    list_add_tail(&q->at->ready, &r->of);
    port_question_leave(q);
}

/* What is due, after the sockets were read (O9). Arms the timer for what is not. */
static void take_due(struct peerage_port *at, uint64_t now_ms)
{
    struct peerage *p = node_of(at);
    uint64_t next_ms = NEVER_MS;
    bool again = true;
    struct turn t;

    port_turn_begin(at, &t);          /* without a loop thread the flights' deadlines are ours */
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

/* The port itself. */

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
        if (ready_is_end(r))
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
        port_question_free(q);
    }
    while (!list_empty(&at->conns))
        port_conn_free(CONTAINER_OF(at->conns.next, struct port_conn, of));
    port_unref(&at->port);
}
