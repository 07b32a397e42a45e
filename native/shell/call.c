/* The loop thread's own requests (see call.h). */
#include "shell/call.h"

#include <ev.h>

#include "core/mem.h"
#include "core/node_tally.h"
#include "shell/clock.h"
#include "shell/dial.h"
#include "shell/loop.h"
#include "shell/shell.h"
#include "shell/sockets.h"
#include "shell/stream.h"
#include "shell/turn.h"

#define IDLE_MS_MAX 30000u
#define FILLS_A_TURN 8

/* One node we call. */
struct peer {
    struct list of, of_dirty;
    struct loop *loop;
    struct addr addr;
    uint64_t node_id;
    struct stream *c;              /* NULL: being dialled */
    bool broken;                /* of no use: to be freed by who flushes it next */
    struct dial *dial;
    ev_io io;
    struct list calls;          /* struct call by of */
    uint64_t used_ms;
};

struct call {
    struct list of;
    uint64_t id, due_ms, request_id;    /* request_id 0: not sent yet */
    struct message message;
    uint8_t *text;
    struct blob *value;
};

void call_init(struct calls *s)
{
    list_init(&s->peers);
    list_init(&s->dirty);
    list_init(&s->failed);
    s->due_ms = NEVER_MS;
}

/* A frame for the call, or its end without one. */
static void tell(struct loop *loop, uint64_t id, const struct message *m, struct blob *value)
{
    struct peerage *p = loop->peerage;
    struct turn t;

    if (node_call_is_pull(id)) {
        if (node_swim(p->node))
            node_page(p->node, id, m, value, clock_now_ms(), clock_wall_ms(), &loop->out);
        loop_news(loop);
        return;
    }
    turn_begin_loop(p, loop, &t);
    if (node_call_is_tally(id))
        node_tally_reply(p->node, id, m, value, t.now_ms, clock_wall_ms(), &t.effects);
    else
        node_reply(p->node, id, m, value, t.now_ms, &t.effects);
    turn_end(p, &t);
}

static void free_call(struct call *call)
{
    list_remove(&call->of);
    blob_unref(call->value);
    mem_free(call->text);
    mem_free(call);
}

/* All its calls fail; told later, since core may be what we were called from. */
static void free_peer(struct peer *peer)
{
    struct calls *s = &peer->loop->calls;

    if (peer->dial)
        dial_cancel(peer->dial);
    ev_io_stop(peer->loop->ev, &peer->io);
    list_remove(&peer->of);
    list_remove(&peer->of_dirty);
    list_move_all(&s->failed, &peer->calls);
    stream_free(peer->c);
    mem_free(peer);
}

static void mark_dirty(struct peer *peer)
{
    if (list_empty(&peer->of_dirty))
        list_add_tail(&peer->loop->calls.dirty, &peer->of_dirty);
}

/* False: the connection is of no use. */
static bool send_call(struct peer *peer, struct call *call)
{
    call->request_id = peer->c->next_request_id++;
    call->message.request_id = call->request_id;
    count(&peer->loop->peerage->counters.frames_out);
    return stream_queue(peer->c, &call->message, call->value, clock_wall_ms()) == 0;
}

static bool flush(struct peer *peer)
{
    int written = peer->broken ? -1 : stream_flush(peer->c);
    int events = written ? EV_READ : EV_READ | EV_WRITE;

    if (written < 0)
        return false;
    if (!ev_is_active(&peer->io) || (peer->io.events & (EV_READ | EV_WRITE)) != events) {
        ev_io_stop(peer->loop->ev, &peer->io);
        ev_io_set(&peer->io, peer->c->fd, events);
        ev_io_start(peer->loop->ev, &peer->io);
    }
    return true;
}

static void take_frame(struct peer *peer, const struct message *m, struct blob *value)
{
    struct loop *loop = peer->loop;

    count(&loop->peerage->counters.frames_in);
    LIST_FOREACH(&peer->calls, l) {
        struct call *call = CONTAINER_OF(l, struct call, of);
        if (call->request_id != m->request_id)
            continue;
        uint64_t id = call->id;
        bool interim = m->kind == MESSAGE_ACCEPTED || m->kind == MESSAGE_WORKING;
        if (!interim && !(m->flags & MESSAGE_MORE))
            free_call(call);
        tell(loop, id, m, value);
        return;
    }
}

static void ready(struct ev_loop *ev, ev_io *io, int events)
{
    struct peer *peer = io->data;
    struct message m;
    struct blob *value;
    bool open = true;

    (void)ev;
    if (events & EV_READ) {
        for (int n = 0; open && n < FILLS_A_TURN; n++) {
            open = stream_fill(peer->c) >= 0;
            enum stream_next next;
            while ((next = stream_next(peer->c, clock_wall_ms(), &m, &value)) == STREAM_FRAME) {
                take_frame(peer, &m, value);
                blob_unref(value);
            }
            if (next == STREAM_BAD) {
                udp_refused(peer->loop, &peer->addr, peer->c->verdict, "an answer from");
                open = false;
            }
            if (peer->c->drained)
                break;
        }
    }
    peer->used_ms = clock_now_ms();
    if (!open || !flush(peer))
        free_peer(peer);
}

static void dialled(void *token, struct loop *loop, enum dial_result result, struct stream *c,
                    uint64_t other_id)
{
    struct peer *peer = token;

    peer->dial = NULL;
    if (result == DIAL_STRANGER && node_swim(loop->peerage->node)) {
        swim_hint_replaced(node_swim(loop->peerage->node), clock_now_ms(), &peer->addr, other_id);
    }
    if (result != DIAL_PROVEN) {
        free_peer(peer);
        return;
    }
    peer->c = c;
    LIST_FOREACH(&peer->calls, l) {
        if (!send_call(peer, CONTAINER_OF(l, struct call, of))) {
            free_peer(peer);
            return;
        }
    }
    mark_dirty(peer);
}

static struct peer *find_or_dial(struct loop *loop, const struct effect *e, uint64_t due_ms)
{
    LIST_FOREACH(&loop->calls.peers, l) {
        struct peer *peer = CONTAINER_OF(l, struct peer, of);
        if (peer->node_id == e->node_id && addr_equal(&peer->addr, &e->addr))
            return peer;
    }
    struct peer *peer = mem_zalloc(sizeof *peer);
    if (!peer)
        return NULL;
    peer->loop = loop;
    peer->addr = e->addr;
    peer->node_id = e->node_id;
    peer->used_ms = clock_now_ms();
    list_init(&peer->calls);
    list_init(&peer->of_dirty);
    ev_init(&peer->io, ready);
    peer->io.data = peer;
    peer->dial = dial_start(loop, DIAL_NEAREST, &e->addr, e->node_id, due_ms, dialled, peer);
    if (!peer->dial) {
        mem_free(peer);
        return NULL;
    }
    list_add_tail(&loop->calls.peers, &peer->of);
    return peer;
}

void call_start(struct loop *loop, struct effect *e)
{
    struct calls *s = &loop->calls;
    struct call *call = mem_zalloc(sizeof *call);
    struct peer *peer;

    if (!call)
        return;         /* core gives its calls deadlines of their own */
    count(&loop->peerage->counters.calls_by_loop);
    call->id = e->call_id;
    call->due_ms = clock_now_ms() + e->timeout_ms;
    call->message = e->message;
    call->text = e->text;
    call->value = e->value;
    e->text = NULL;
    e->value = NULL;
    peer = find_or_dial(loop, e, call->due_ms);
    if (!peer) {
        list_add_tail(&s->failed, &call->of);
        return;
    }
    list_add_tail(&peer->calls, &call->of);
    s->due_ms = min_u64(s->due_ms, call->due_ms);
    if (!peer->c)
        return;
    /* Not freed here: a frame of this very peer may be what made core call it. */
    peer->broken |= !send_call(peer, call);
    mark_dirty(peer);
}

static void tell_failed(struct loop *loop)
{
    struct list *failed = &loop->calls.failed;

    while (!list_empty(failed)) {
        struct call *call = CONTAINER_OF(failed->next, struct call, of);
        uint64_t id = call->id;
        free_call(call);
        tell(loop, id, NULL, NULL);
    }
}

void call_flush(struct loop *loop)
{
    struct calls *s = &loop->calls;

    tell_failed(loop);
    while (!list_empty(&s->dirty)) {
        struct peer *peer = CONTAINER_OF(s->dirty.next, struct peer, of_dirty);
        list_remove(&peer->of_dirty);
        if (!flush(peer))
            free_peer(peer);
        tell_failed(loop);
    }
}

/* The calls of this peer whose time has passed end. True: a change among them lies in its
 * socket, or on the way there. */
static bool give_up(struct calls *s, struct peer *peer, uint64_t now_ms)
{
    bool change = false;

    LIST_FOREACH_SAFE(&peer->calls, l) {
        struct call *call = CONTAINER_OF(l, struct call, of);
        if (call->due_ms > now_ms) {
            s->due_ms = min_u64(s->due_ms, call->due_ms);
            continue;
        }
        change |= call->request_id && message_is_change(&call->message);
        /* A late answer finds no call of its request id, and is dropped. */
        list_remove(&call->of);
        list_add_tail(&s->failed, &call->of);
    }
    return change;
}

void call_tick(struct loop *loop, uint64_t now_ms)
{
    struct calls *s = &loop->calls;

    LIST_FOREACH_SAFE(&s->peers, l) {
        struct peer *peer = CONTAINER_OF(l, struct peer, of);
        if (list_empty(&peer->calls) && peer->c && now_ms - peer->used_ms > IDLE_MS_MAX)
            free_peer(peer);
    }
    if (now_ms < s->due_ms)
        return;
    s->due_ms = NEVER_MS;
    LIST_FOREACH_SAFE(&s->peers, l) {
        struct peer *peer = CONTAINER_OF(l, struct peer, of);
        /* A peer that is stopped finds the change when it goes on, after newer ones perhaps: the
         * reset says that nobody waits for it any more (node_late_change). */
        if (give_up(s, peer, now_ms) && peer->c) {
            sockets_reset(peer->c->fd);
            free_peer(peer);
        }
    }
    tell_failed(loop);
}

void call_deinit(struct loop *loop)
{
    struct calls *s = &loop->calls;

    while (!list_empty(&s->peers))
        free_peer(CONTAINER_OF(s->peers.next, struct peer, of));
    tell_failed(loop);
}
