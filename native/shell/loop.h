/* The loop thread: gossip, the server side, dialling, this node's own calls, all timers.
 *
 * It blocks all signals before it starts, never calls the application, and never waits for
 * anything but its sockets. A turn drains what has arrived (64 datagrams, then TCP) before
 * any timer fires, so that a machine that was starved hears the acknowledgements before
 * it accuses anybody; but timers are at most 20 ms late because of that (rule M5).
 */
#ifndef PEERAGE_SHELL_LOOP_H
#define PEERAGE_SHELL_LOOP_H

#include <ev.h>

#include "core/effects.h"
#include "core/swim.h"
#include "peerage.h"
#include "shell/call.h"
#include "shell/poller.h"
#include "shell/server.h"
#include "shell/udp.h"

struct redis;
struct resolver;

struct loop {
    struct peerage *peerage;
    struct ev_loop *ev;
    ev_async async;             /* the mailbox */
    ev_timer timer;             /* whatever is due next */
    ev_prepare prepare;         /* before it waits: write, re-arm */
    uint64_t due_ms;            /* what the timer is set to */
    struct swim_out out;
    struct udp udp;
    struct server server;
    struct calls calls;
    struct list dials;          /* struct dial by of */
    struct poller dialling;     /* their sockets: see dial.c */
    ev_io dialling_io;
    struct resolver *resolver;  /* NULL: no names in PEERS */
    struct redis *redis;        /* NULL: no REDIS_URL */
    int adopted[ADOPTED_MAX];   /* libev's own descriptors, kept for fork */
    unsigned adopted_count;
    bool observing;             /* no port of the range was free: tries again (M7) */
    bool parted;                /* membership has ended: left, or M6 */
    bool stopping;              /* as soon as its last answers are written */
    uint64_t stop_by_ms;        /* or then */
    bool spread;                /* news or a phase wait to be made a view */
    uint64_t started_ms;
    uint64_t sweep_ms, range_ms;
    uint64_t said_hash;         /* of the last "Peers: ..." line */
    struct addr coordinator;    /* last said; zero: none */
};

/* Bind, join, start the thread; p->loop is set. 0 or an error with its line. Under life. */
int loop_start(struct peerage *, char line[PEERAGE_LINE_MAX]);
/* Leave, end all connections and waits, join the thread, free. Under life. */
void loop_stop(struct peerage *);
/* As soon as the loop thread comes by: draining, out of the contest (O8). */
void loop_drain(struct peerage *);

/* On the loop thread: send answers, start calls. */
void loop_carry(struct loop *, struct effects *);
/* On the loop thread: do what membership wants, after any call that filled loop->out. */
void loop_news(struct loop *);

/* From any thread: what a query learnt about a member, for membership (W6). */
void loop_hint_silent(struct peerage *, const struct addr *);
void loop_hint_replaced(struct peerage *, const struct addr *, uint64_t other_id);

#endif
