/* The loop thread's dialling (see dial.h).
 *
 * Its sockets are watched by an epoll set of their own, itself watched by libev: libev does
 * not take a descriptor out of its set when a watcher stops, only when it next fires, and
 * by then it is another thread's, or closed and somebody else's (the hazard of rule O10).
 * From this set a socket is taken before it is handed over.
 */
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
    struct stream *c;
    struct addr addr;
    uint64_t node_id, other_id;
    enum { CONNECTING, GREETING } state;
    int events;                 /* watched for; 0: not yet */
    ev_timer timer;
    dial_done *done;
    void *token;
};

static void stop(struct dial *d)
{
    if (d->events)
        poller_unwatch(&d->loop->dialling, d->c->fd);
    d->events = 0;
    ev_timer_stop(d->loop->ev, &d->timer);
    list_remove(&d->of);
}

static void end(struct dial *d, enum dial_result result)
{
    struct stream *c = d->c;

    stop(d);
    if (result != DIAL_PROVEN) {
        count(&d->loop->peerage->counters.dials_failed);
        if (c && c->verdict != VERDICT_OK)
            udp_refused(d->loop, &d->addr, c->verdict, "a connection to");
        stream_free(c);
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

static bool watch(struct dial *d, int events)
{
    if (d->events == events)
        return true;
    if (!poller_watch(&d->loop->dialling, d->c->fd, events, d, d->events != 0))
        return false;
    d->events = events;
    return true;
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
    if (stream_queue(d->c, &hello, NULL, clock_wall_ms()) < 0) {
        end(d, DIAL_FAILED);
        return false;
    }
    return true;
}

static void read_greeting(struct dial *d)
{
    struct message m;
    struct blob *value;
    int filled = stream_fill(d->c);

    for (;;) {
        switch (stream_next(d->c, clock_wall_ms(), &m, &value)) {
        case STREAM_CHALLENGED:
            if (!greet(d))
                return;
            continue;
        case STREAM_FRAME:
            blob_unref(value);
            end(d, m.kind == MESSAGE_WELCOME ? DIAL_PROVEN : DIAL_FAILED);
            return;
        case STREAM_BAD:
            end(d, DIAL_FAILED);
            return;
        case STREAM_MORE:
            break;
        }
        break;
    }
    int written = stream_flush(d->c);
    if (filled < 0 || written < 0 ||
        !watch(d, written ? POLLER_READ : POLLER_READ | POLLER_WRITE))
        end(d, DIAL_FAILED);
}

static void ready(struct dial *d)
{
    if (d->state == CONNECTING) {
        if (sockets_connect_result(d->c->fd) != 0) {
            end(d, DIAL_FAILED);
            return;
        }
        d->state = GREETING;
    }
    read_greeting(d);
}

static void some_ready(struct ev_loop *ev, ev_io *io, int events)
{
    struct loop *loop = io->data;
    struct poller_event found[POLLER_EVENTS_MAX];
    int count_found = poller_take(&loop->dialling, found);

    (void)ev;
    (void)events;
    for (int i = 0; i < count_found; i++) {
        /* What came of one may have ended another. */
        LIST_FOREACH(&loop->dials, l) {
            if (CONTAINER_OF(l, struct dial, of) == found[i].token) {
                ready(found[i].token);
                break;
            }
        }
    }
}

bool dial_init(struct loop *loop)
{
    list_init(&loop->dials);
    return poller_init(&loop->dialling, false);
}

void dial_watch(struct loop *loop)
{
    ev_io_init(&loop->dialling_io, some_ready, loop->dialling.fd, EV_READ);
    loop->dialling_io.data = loop;
    ev_io_start(loop->ev, &loop->dialling_io);
}

void dial_deinit(struct loop *loop)
{
    if (loop->ev)
        ev_io_stop(loop->ev, &loop->dialling_io);
    poller_deinit(&loop->dialling);
}

static struct stream *stream_to(struct peerage *p, int fd, const struct addr *a)
{
    return fd < 0 ? NULL : stream_new(fd, a, &p->settings.seal, p->node_id, false);
}

static struct stream *connect_to(struct peerage *p, enum dial_way way, const struct addr *a)
{
    int fd = way == DIAL_NEAREST && p->settings.unix_sockets ? sockets_connect_unix(a) : -1;

    if (fd < 0)
        return stream_to(p, sockets_connect(a), a);
    count(&p->counters.dials_unix);
    struct stream *c = stream_to(p, fd, a);
    if (c)
        c->spin.max_ns = p->settings.spin_us * 1000;
    return c;
}

struct dial *dial_start(struct loop *loop, enum dial_way way, const struct addr *a,
                        uint64_t node_id, uint64_t due_ms, dial_done *done, void *token)
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
    d->c = connect_to(loop->peerage, way, a);
    /* What can't even begin ends at once, but not before this returns. */
    bool begun = d->c && watch(d, POLLER_WRITE);
    ev_timer_init(&d->timer, expire, begun && due_ms > now ? (double)(due_ms - now) / 1000 : 0, 0);
    d->timer.data = d;
    ev_now_update(loop->ev);
    ev_timer_start(loop->ev, &d->timer);
    return d;
}

void dial_cancel(struct dial *d)
{
    stop(d);
    stream_free(d->c);
    mem_free(d);
}

void dial_cancel_all(struct loop *loop)
{
    while (!list_empty(&loop->dials))
        end(CONTAINER_OF(loop->dials.next, struct dial, of), DIAL_FAILED);
}

/* For other threads. */

static void free_request(struct dial_request *r)
{
    struct peerage *p = r->peerage;

    if (r->connection)
        pool_give(&p->pool, r->connection, clock_now_ms());
    port_unref(r->port);
    mem_free(r);
}

static void hand_over(struct dial_request *r, struct loop *loop, enum dial_result result,
                      struct stream *c, uint64_t other_id)
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

static void dialled(void *token, struct loop *loop, enum dial_result result, struct stream *c,
                    uint64_t other_id)
{
    hand_over(token, loop, result, c, other_id);
}

static void start_for_port(struct mail *mail, struct loop *loop)
{
    struct dial_request *r = CONTAINER_OF(mail, struct dial_request, mail);

    if (!loop || !dial_start(loop, DIAL_NEAREST, &r->addr, r->node_id, r->due_ms, dialled, r))
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
