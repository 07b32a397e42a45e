/* The loop thread's dialling (see dial.h). */
#include "shell/dial.h"

#include "core/mem.h"
#include "shell/clock.h"
#include "shell/loop.h"
#include "shell/shell.h"
#include "shell/sockets.h"
#include "shell/turn.h"

struct dial {
    struct list of;             /* loop.dials */
    struct loop *loop;
    struct tcp *c;
    struct addr addr;
    uint64_t node_id, other_id;
    enum { CONNECTING, GREETING } state;
    ev_io io;
    ev_timer timer;
    dial_done *done;
    void *token;
};

static void stop(struct dial *d)
{
    ev_io_stop(d->loop->ev, &d->io);
    ev_timer_stop(d->loop->ev, &d->timer);
    list_remove(&d->of);
}

static void end(struct dial *d, enum dial_result result)
{
    struct tcp *c = d->c;

    stop(d);
    if (result != DIAL_PROVEN) {
        count(&d->loop->peerage->counters.dials_failed);
        if (c && c->verdict != VERDICT_OK)
            udp_refused(d->loop, &d->addr, c->verdict, "a connection to");
        tcp_free(c);
        c = NULL;
    }
    d->done(d->token, d->loop, result, c, d->other_id);
    mem_free(d);
}

static void expire(struct ev_loop *ev, ev_timer *timer, int events)
{
    (void)ev;
    (void)events;
    end(timer->data, DIAL_FAILED);
}

static void watch(struct dial *d, int events)
{
    if (d->io.events == (events & (EV_READ | EV_WRITE)) && ev_is_active(&d->io))
        return;
    ev_io_stop(d->loop->ev, &d->io);
    ev_io_set(&d->io, d->c->fd, events);
    ev_io_start(d->loop->ev, &d->io);
}

static bool greet(struct dial *d)
{
    struct message hello = {.kind = MESSAGE_HELLO, .request_id = d->c->next_request_id++};

    d->other_id = d->c->link.peer_id;
    if (d->node_id && d->node_id != d->other_id) {
        count(&d->loop->peerage->counters.strangers);
        end(d, DIAL_STRANGER);
        return false;
    }
    if (tcp_queue(d->c, &hello, NULL, clock_wall_ms()) < 0) {
        end(d, DIAL_FAILED);
        return false;
    }
    return true;
}

static void read_greeting(struct dial *d)
{
    struct message m;
    struct blob *value;
    int filled = tcp_fill(d->c);

    for (;;) {
        switch (tcp_next(d->c, clock_wall_ms(), &m, &value)) {
        case TCP_CHALLENGED:
            if (!greet(d))
                return;
            continue;
        case TCP_FRAME:
            blob_unref(value);
            end(d, m.kind == MESSAGE_WELCOME ? DIAL_PROVEN : DIAL_FAILED);
            return;
        case TCP_BAD:
            end(d, DIAL_FAILED);
            return;
        case TCP_MORE:
            break;
        }
        break;
    }
    int written = tcp_flush(d->c);
    if (filled < 0 || written < 0)
        end(d, DIAL_FAILED);
    else
        watch(d, written ? EV_READ : EV_READ | EV_WRITE);
}

static void ready(struct ev_loop *ev, ev_io *io, int events)
{
    struct dial *d = io->data;

    (void)ev;
    (void)events;
    if (d->state == CONNECTING) {
        if (sockets_connect_result(d->c->fd) != 0) {
            end(d, DIAL_FAILED);
            return;
        }
        d->state = GREETING;
    }
    read_greeting(d);
}

struct dial *dial_start(struct loop *loop, const struct addr *a, uint64_t node_id,
                        uint64_t due_ms, dial_done *done, void *token)
{
    struct dial *d = mem_zalloc(sizeof *d);
    uint64_t now = clock_now_ms();

    if (!d)
        return NULL;
    count(&loop->peerage->counters.dials);
    d->loop = loop;
    d->addr = *a;
    d->node_id = node_id;
    d->done = done;
    d->token = token;
    list_add_tail(&loop->dials, &d->of);
    int fd = sockets_connect(a);
    if (fd >= 0)
        d->c = tcp_new(fd, a, &loop->peerage->settings.seal, loop->peerage->node_id, false);
    ev_init(&d->io, ready);
    d->io.data = d;
    ev_timer_init(&d->timer, expire, d->c && due_ms > now ? (double)(due_ms - now) / 1000 : 0, 0);
    d->timer.data = d;
    ev_now_update(loop->ev);
    ev_timer_start(loop->ev, &d->timer);
    if (d->c)
        watch(d, EV_WRITE);
    return d;
}

void dial_cancel(struct dial *d)
{
    stop(d);
    tcp_free(d->c);
    mem_free(d);
}

void dial_cancel_all(struct loop *loop)
{
    while (!list_empty(&loop->dials))
        end(CONTAINER_OF(loop->dials.next, struct dial, of), DIAL_FAILED);
}

/* ---- for other threads -------------------------------------------------------------- */

static void free_request(struct dial_request *r)
{
    struct peerage *p = r->peerage;

    if (r->connection)
        pool_give(&p->pool, r->connection, clock_now_ms());
    port_unref(r->port);
    mem_free(r);
}

static void hand_over(struct dial_request *r, struct loop *loop, enum dial_result result,
                      struct tcp *c, uint64_t other_id)
{
    struct peerage *p = r->peerage;
    struct turn t;

    r->result = result;
    r->connection = c;
    r->other_id = other_id;
    if (loop)
        turn_begin_loop(p, loop, &t);
    else
        turn_begin(p, &t);
    bool abandoned = r->abandoned;
    if (!abandoned) {
        r->done = true;
        list_add_tail(&r->port->dialled, &r->of);
        turn_ring(&t, r->port);
    }
    turn_end(p, &t);
    if (abandoned)
        free_request(r);
}

static void dialled(void *token, struct loop *loop, enum dial_result result, struct tcp *c,
                    uint64_t other_id)
{
    hand_over(token, loop, result, c, other_id);
}

static void start_for_port(struct mail *mail, struct loop *loop)
{
    struct dial_request *r = CONTAINER_OF(mail, struct dial_request, mail);

    if (!loop || !dial_start(loop, &r->addr, r->node_id, r->due_ms, dialled, r))
        hand_over(r, loop, DIAL_FAILED, NULL, 0);
}

struct dial_request *dial_ask(struct port *port, const struct addr *a, uint64_t node_id,
                              uint64_t due_ms, void *token)
{
    struct dial_request *r = mem_zalloc(sizeof *r);

    if (!r)
        return NULL;
    list_init(&r->of);
    r->mail.run = start_for_port;
    r->peerage = port->peerage;
    r->port = port;
    r->token = token;
    r->addr = *a;
    r->node_id = node_id;
    r->due_ms = due_ms;
    atomic_fetch_add(&port->refs, 1);
    if (mailbox_post(&port->peerage->mailbox, &r->mail))
        return r;
    port_unref(port);
    mem_free(r);
    return NULL;
}

void dial_forget(struct dial_request *r)
{
    struct peerage *p = r->peerage;

    pthread_mutex_lock(&p->lock);
    bool done = r->done;
    r->abandoned = true;
    list_remove(&r->of);
    pthread_mutex_unlock(&p->lock);
    if (done)
        free_request(r);
}
