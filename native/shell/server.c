/* Accepted connections (see server.h). */
#include "shell/server.h"

#include <errno.h>

#include "core/err.h"
#include "core/limits.h"
#include "core/mem.h"
#include "core/node_tally.h"
#include "shell/burst.h"
#include "shell/clock.h"
#include "shell/fork.h"
#include "shell/loop.h"
#include "shell/shell.h"
#include "shell/sockets.h"
#include "shell/turn.h"

#define ACCEPTS_A_TURN 64
#define FILLS_A_TURN 8              /* then the others' turn */
#define PAUSE_BYTES (4u << 20)      /* queued: read no further questions until it drains */
#define STALL_MS_MAX 10000u         /* in the middle of a frame or of a write ... */
#define STALL_BYTES_MIN (64u << 10) /* ... it has to move so many in that time */
#define REST_S 0.1

/* How far one direction has come, as the sweeps see it. */
struct pace {
    uint64_t since_ms, bytes, frames;
};

struct inbound {
    struct list of_id, of_all, of_unproven, of_dirty;
    struct loop *loop;
    struct stream *c;
    ev_io io;
    uint64_t id;
    uint64_t since_ms;              /* accepted */
    unsigned absences;              /* of this process's, when it was accepted */
    bool near;                      /* over the Unix socket */
    struct pace reading, writing;
    bool proven;
    bool emptied;                   /* nothing waited to be written, since the last sweep */
    bool held;                      /* there may be frames that had to wait: nothing is read until
                                       they are taken */
    struct burst *kept;             /* of these, what was opened already; NULL: nothing */
    bool dead;                      /* to be closed by server_flush */
};

static void unlink_unproven(struct server *s, struct inbound *i)
{
    if (list_empty(&i->of_unproven))
        return;
    list_remove(&i->of_unproven);
    s->unproven_count--;
}

static void close_one(struct inbound *i)
{
    struct loop *loop = i->loop;
    struct server *s = &loop->server;
    struct peerage *p = loop->peerage;
    struct turn t;

    ev_io_stop(loop->ev, &i->io);
    unlink_unproven(s, i);
    list_remove(&i->of_id);
    list_remove(&i->of_all);
    list_remove(&i->of_dirty);
    s->count--;
    atomic_store_explicit(&p->counters.inbound, s->count, memory_order_relaxed);
    if (i->proven) {
        turn_begin_loop(p, loop, &t);
        node_closed(p->node, i->id, t.now_ms, &t.effects);
        turn_end(p, &t);
    }
    burst_deinit(i->kept);
    mem_free(i->kept);
    stream_free(i->c);
    mem_free(i);
}

static void mark_dirty(struct inbound *i)
{
    if (list_empty(&i->of_dirty))
        list_add_tail(&i->loop->server.dirty, &i->of_dirty);
}

static bool is_paused(const struct inbound *i)
{
    return i->c->queued_bytes >= PAUSE_BYTES;
}

/* A peer that does not read gets a reset: what it left in the system's buffers is freed too. */
static void cut(struct inbound *i)
{
    count(&i->loop->peerage->counters.cut);
    sockets_reset(i->c->fd);
}

static void watch(struct inbound *i)
{
    int events = 0;

    if (!is_paused(i))
        events |= EV_READ;
    if (stream_wants_write(i->c))
        events |= EV_WRITE;
    if (ev_is_active(&i->io) && (i->io.events & (EV_READ | EV_WRITE)) == events)
        return;
    ev_io_stop(i->loop->ev, &i->io);
    ev_io_set(&i->io, i->c->fd, events);
    ev_io_start(i->loop->ev, &i->io);
}

/* Write what is queued; false: broken. */
static bool flush(struct inbound *i)
{
    if (stream_flush(i->c) < 0)
        return false;
    i->emptied |= !stream_wants_write(i->c);
    watch(i);
    return true;
}

static struct inbound *find(struct server *s, uint64_t id)
{
    LIST_FOREACH(&s->by_id[id % SERVER_BUCKETS], l) {
        struct inbound *i = CONTAINER_OF(l, struct inbound, of_id);
        if (i->id == id)
            return i;
    }
    return NULL;
}

void server_answer(struct loop *loop, uint64_t conn_id, struct message *m, struct blob *value)
{
    struct inbound *i = find(&loop->server, conn_id);

    if (!i || i->dead)
        return;
    uint64_t wall_ms = loop->server.wall_ms;
    int rc = stream_queue(i->c, m, value, wall_ms ? wall_ms : clock_wall_ms());
    if (rc == ERR_FULL) {
        cut(i);
        i->dead = true;
    } else if (rc < 0) {
        /* The asker must not wait for what will not come. */
        i->dead = true;
    } else {
        count(&loop->peerage->counters.frames_out);
    }
    mark_dirty(i);
}

static void welcome(struct inbound *i, uint64_t request_id)
{
    struct message m = {.kind = MESSAGE_WELCOME, .request_id = request_id};

    i->proven = true;
    unlink_unproven(&i->loop->server, i);
    if (stream_queue(i->c, &m, NULL, clock_wall_ms()) < 0)
        i->dead = true;
}

/* Its sender has waited in vain and reset the connection (call.c). */
static void take_late_change(struct inbound *i, const struct message *m)
{
    struct peerage *p = i->loop->peerage;
    struct turn t;

    count(&p->counters.changes_late);
    turn_begin_loop(p, i->loop, &t);
    node_late_change(p->node, m, t.now_ms);
    turn_end(p, &t);
}

static void take_frame(struct inbound *i, const struct message *m, struct blob *value)
{
    struct loop *loop = i->loop;
    struct peerage *p = loop->peerage;
    struct turn t;

    if (m->kind == MESSAGE_HELLO) {
        welcome(i, m->request_id);
    } else if (!i->proven) {
        i->dead = true;
    } else if (message_is_change(m) && stream_is_forsaken(i->c)) {
        take_late_change(i, m);
    } else if (m->kind == MESSAGE_TABLE) {
        struct effects effects;
        effects_init(&effects);
        if (node_swim(p->node))
            node_table(p->node, i->id, m, value, clock_now_ms(), &effects);
        loop_carry(loop, &effects);
        effects_deinit(&effects);
    } else {
        turn_begin_loop(p, loop, &t);
        /* A copy that may have lain here while this process stood still: who lived was told what
         * was deleted meanwhile, and nobody remembers it for us. Its sender dials again. */
        if (m->kind == MESSAGE_PUSH && i->absences != atomic_load(&p->absences))
            i->dead = true;
        else if (m->kind == MESSAGE_TALLY)
            node_tally_frame(p->node, i->id, m, value, clock_wall_ms(), &t.effects);
        else
            node_frame(p->node, i->id, m, value, t.now_ms, &t.effects);
        turn_end(p, &t);
    }
}

/* The questions at the burst's front, in one turn, until their answers are too much. False: none
 * stands there. */
static bool take_questions(struct inbound *i, struct burst *b)
{
    struct peerage *p = i->loop->peerage;
    struct span keys[BURST_MAX];
    unsigned questions = burst_questions(b, keys);
    size_t seen = 0, bytes = i->c->queued_bytes;
    struct turn t;

    if (!questions)
        return false;
    turn_begin_loop(p, i->loop, &t);
    if (questions > 1)      /* for a single one there is nothing to do meanwhile */
        serve_prefetch(node_serve(p->node), keys, questions, t.now_ms);
    for (; questions && bytes < PAUSE_BYTES; questions--) {
        node_frame(p->node, i->id, &b->at[b->next++].message, NULL, t.now_ms, &t.effects);
        for (; seen < t.effects.count; seen++)      /* or a little less: some are for others */
            bytes += blob_span(t.effects.at[seen].value).bytes;
    }
    turn_end(p, &t);
    return true;
}

static void take_next(struct inbound *i, struct burst *b)
{
    unsigned before = b->next;

    if (!i->proven || !take_questions(i, b)) {
        struct opened *o = &b->at[b->next++];
        take_frame(i, &o->message, o->value);
        blob_unref(o->value);
    }
    count_more(&i->loop->peerage->counters.frames_in, b->next - before);
}

/* Everything complete in the buffer, until too much waits to be written: then a peer has to
 * read its answers first. False: close it. */
static bool take_burst(struct inbound *i, struct burst *b, uint64_t wall_ms)
{
    while (!i->dead) {
        i->held = is_paused(i);
        if (i->held)
            return true;
        if (burst_is_taken(b) && b->end == STREAM_FRAME)
            burst_open(b, i->c, wall_ms);
        if (!burst_is_taken(b)) {
            take_next(i, b);
        } else if (b->end == STREAM_BAD) {
            udp_refused(i->loop, &i->c->peer, i->c->verdict, "a frame from");
            return false;
        } else {
            return true;
        }
    }
    return false;
}

/* The same, of what was kept first, and what has to wait is kept. */
static bool take_complete(struct inbound *i, uint64_t wall_ms)
{
    struct burst fresh, *b = i->kept ? i->kept : &fresh;

    if (b == &fresh)
        burst_init(b);
    if (!burst_is_taken(b) && !burst_is_timely(b, wall_ms)) {
        udp_refused(i->loop, &i->c->peer, VERDICT_CLOCK, "a frame from");
        return false;
    }
    bool open = take_burst(i, b, wall_ms);
    /* Past a value that does not verify stream_next would take what follows: so a bad frame is
     * remembered, too, until it is its turn. */
    bool waits = open && (!burst_is_taken(b) || b->end == STREAM_BAD);
    if (waits && !i->kept)
        return (i->kept = burst_keep(b)) != NULL;
    if (!waits) {
        burst_deinit(b);
        mem_free(i->kept);
        i->kept = NULL;
    }
    return open;
}

static bool take_frames(struct inbound *i)
{
    struct server *s = &i->loop->server;

    s->now_ms = clock_now_ms();
    s->wall_ms = clock_wall_ms();
    bool open = take_complete(i, s->wall_ms);
    s->now_ms = s->wall_ms = 0;
    return open;
}

/* Write, and go on with what had to wait for that. */
static bool write_on(struct inbound *i)
{
    while (flush(i)) {
        if (!i->held || is_paused(i))
            return true;
        if (!take_frames(i) || i->dead)
            return false;
    }
    return false;
}

void server_flush(struct loop *loop)
{
    struct list *dirty = &loop->server.dirty;

    while (!list_empty(dirty)) {
        struct inbound *i = CONTAINER_OF(dirty->next, struct inbound, of_dirty);
        list_remove(&i->of_dirty);
        if (i->dead || !write_on(i))
            close_one(i);
    }
}

bool server_is_writing(const struct loop *loop)
{
    for (unsigned b = 0; b < SERVER_BUCKETS; b++) {
        LIST_FOREACH((struct list *)&loop->server.by_id[b], l) {
            if (stream_wants_write(CONTAINER_OF(l, struct inbound, of_id)->c))
                return true;
        }
    }
    return false;
}

static void ready(struct ev_loop *ev, ev_io *io, int events)
{
    struct inbound *i = io->data;
    bool open = true;

    (void)ev;
    if (events & EV_READ) {
        for (int n = 0; open && !i->held && !is_paused(i) && n < FILLS_A_TURN; n++) {
            assert(!i->kept);       /* its frames lie in the buffer */
            int filled = stream_fill(i->c);
            open = take_frames(i);
            if (open && filled < 0 && stream_is_within(i->c))
                count(&i->loop->peerage->counters.broken);
            open = open && filled >= 0;
            if (i->c->drained)
                break;
        }
    }
    list_remove(&i->of_dirty);
    if (!open || i->dead || !write_on(i))
        close_one(i);
}

/* Accepting. */

/* The oldest of those that have proven nothing makes room, of the same address if that has
 * its share; peers of this host and user have no share, but what there is in all. Refusing the
 * newcomer instead would let a few silent connections, renewed every two seconds, keep
 * everybody out; so a flood pushes out its own, and whoever means well has long proven itself
 * before its turn comes. */
static bool make_room(struct loop *loop, const struct addr *peer, bool near)
{
    struct server *s = &loop->server;
    struct inbound *oldest = NULL;
    unsigned same = 0;

    LIST_FOREACH(&s->unproven, l) {
        struct inbound *i = CONTAINER_OF(l, struct inbound, of_unproven);
        if (!near && !i->near && addr_same_host(&i->c->peer, peer) && same++ == 0)
            oldest = i;
    }
    if (same < UNPROVEN_PER_ADDRESS_MAX)
        oldest = NULL;
    if (!oldest && s->unproven_count &&
        (s->unproven_count >= UNPROVEN_MAX || s->count >= CONNECTIONS_MAX))
        oldest = CONTAINER_OF(s->unproven.next, struct inbound, of_unproven);
    if (oldest) {
        count(&loop->peerage->counters.refused_full);
        close_one(oldest);
    }
    return s->count < CONNECTIONS_MAX;
}

static void admit(struct loop *loop, int fd, const struct addr *peer, bool near)
{
    struct server *s = &loop->server;
    struct peerage *p = loop->peerage;
    struct inbound *i;

    if (!near && !settings_allow(&p->settings, p->own_hosts, p->own_hosts_count, peer)) {
        udp_outside(loop, peer, "a connection from");
        fork_close(fd);
        return;
    }
    if (!make_room(loop, peer, near) || !(i = mem_zalloc(sizeof *i))) {
        count(&p->counters.refused_full);
        fork_close(fd);
        return;
    }
    i->c = stream_new(fd, peer, &p->settings.seal, p->node_id, true);
    if (!i->c) {
        mem_free(i);
        return;
    }
    i->loop = loop;
    i->near = near;
    i->absences = atomic_load(&p->absences);
    i->id = s->next_id++;
    i->since_ms = i->reading.since_ms = i->writing.since_ms = clock_now_ms();
    list_init(&i->of_dirty);
    list_add_tail(&s->by_id[i->id % SERVER_BUCKETS], &i->of_id);
    list_add_tail(&s->all, &i->of_all);
    list_add_tail(&s->unproven, &i->of_unproven);
    s->count++;
    s->unproven_count++;
    atomic_store_explicit(&p->counters.inbound, s->count, memory_order_relaxed);
    count(&p->counters.accepted);
    ev_io_init(&i->io, ready, fd, EV_READ);
    i->io.data = i;
    ev_io_start(loop->ev, &i->io);
    if (!flush(i))
        close_one(i);
}

static void acceptable(struct ev_loop *ev, ev_io *io, int events)
{
    struct loop *loop = io->data;
    bool near = io == &loop->server.near.io;
    struct addr here = loop->peerage->self, peer;

    (void)events;
    here.port = 0;
    for (int n = 0; n < ACCEPTS_A_TURN; n++) {
        int fd = sockets_accept(io->fd, &peer);
        if (fd >= 0) {
            admit(loop, fd, near ? &here : &peer, near);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* Accepting again at once would only spin: the backlog stays readable. */
            notice_log(&loop->peerage->notices, LOG_ERROR,
                       "Out of file descriptors: no connections are accepted for a moment");
            ev_io_stop(ev, &loop->server.tcp.io);
            ev_io_stop(ev, &loop->server.near.io);
            ev_timer_again(ev, &loop->server.rest);
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

static void listen_on(struct loop *loop)
{
    struct listener *both[] = {&loop->server.tcp, &loop->server.near};

    for (size_t i = 0; i < ARRAY_COUNT(both); i++) {
        if (both[i]->fd >= 0)
            ev_io_start(loop->ev, &both[i]->io);
    }
}

static void rested(struct ev_loop *ev, ev_timer *timer, int events)
{
    struct loop *loop = timer->data;

    (void)events;
    ev_timer_stop(ev, timer);
    listen_on(loop);
}

void server_init(struct server *s, int tcp, int near)
{
    memset(s, 0, sizeof *s);
    s->tcp.fd = tcp;
    s->near.fd = near;
    s->next_id = 1;
    for (unsigned b = 0; b < SERVER_BUCKETS; b++)
        list_init(&s->by_id[b]);
    list_init(&s->all);
    list_init(&s->unproven);
    list_init(&s->dirty);
    ev_init(&s->tcp.io, acceptable);
    ev_init(&s->near.io, acceptable);
    ev_init(&s->rest, rested);
    s->rest.repeat = REST_S;
}

void server_close_listeners(struct server *s, const struct addr *self)
{
    if (s->near.fd >= 0)
        sockets_unlink_unix(self);      /* while the port is ours: its next holder has the path */
    fork_close(s->tcp.fd);
    fork_close(s->near.fd);
    s->tcp.fd = s->near.fd = -1;
}

void server_watch(struct server *s, struct loop *loop)
{
    s->tcp.io.data = s->near.io.data = s->rest.data = loop;
    ev_io_set(&s->tcp.io, s->tcp.fd, EV_READ);
    ev_io_set(&s->near.io, s->near.fd, EV_READ);
    listen_on(loop);
}

static void unwatch(struct server *s, struct loop *loop)
{
    ev_timer_stop(loop->ev, &s->rest);
    ev_io_stop(loop->ev, &s->tcp.io);
    ev_io_stop(loop->ev, &s->near.io);
}

void server_replace(struct server *s, struct loop *loop, int tcp, int near)
{
    unwatch(s, loop);
    fork_close(s->tcp.fd);
    s->tcp.fd = tcp;
    s->near.fd = near;
    server_watch(s, loop);
}

void server_deinit(struct server *s, struct loop *loop)
{
    unwatch(s, loop);
    server_close_listeners(s, &loop->peerage->self);
    while (!list_empty(&s->all))
        close_one(CONTAINER_OF(s->all.next, struct inbound, of_all));
}

/* One byte a second is no progress: who keeps a frame or our answers waiting moves a fair
 * number of bytes, finishes one, or is cut. */
static bool stalls(struct pace *p, bool waits, uint64_t bytes, uint64_t frames, uint64_t now_ms)
{
    if (!waits || frames != p->frames || bytes - p->bytes >= STALL_BYTES_MIN)
        *p = (struct pace){now_ms, bytes, frames};
    return now_ms - p->since_ms > STALL_MS_MAX;
}

static bool is_too_slow(struct inbound *i, uint64_t now_ms)
{
    const struct stream *c = i->c;
    bool waits = stream_is_within(c) && !is_paused(i);     /* else it is we who do not read */
    bool slow = stalls(&i->reading, waits, c->bytes_in, c->frames_in, now_ms);

    slow |= stalls(&i->writing, stream_wants_write(c) && !i->emptied, c->bytes_out, 0, now_ms);
    i->emptied = false;
    return slow;
}

void server_sweep(struct loop *loop, uint64_t now_ms)
{
    struct server *s = &loop->server;

    while (!list_empty(&s->unproven)) {
        struct inbound *i = CONTAINER_OF(s->unproven.next, struct inbound, of_unproven);
        if (now_ms - i->since_ms < UNPROVEN_MS_MAX)
            break;
        cut(i);
        close_one(i);
    }
    LIST_FOREACH_SAFE(&s->all, l) {
        struct inbound *i = CONTAINER_OF(l, struct inbound, of_all);
        if (is_too_slow(i, now_ms)) {
            cut(i);
            close_one(i);
        }
    }
}
