/* Where completions go: one port for each event loop, and one for each waiting thread.
 *
 * A port is a bell (a descriptor to poll) and lists of what has happened. The lists are
 * filled under the node's short lock, by whichever thread completes something, and the
 * bell is rung after it (turn.h). A thread's port is borrowed for one question from those
 * that are idle; an event loop's has its own driver behind it (port_ask.c).
 */
#ifndef PEERAGE_SHELL_PORT_H
#define PEERAGE_SHELL_PORT_H

#include <stdatomic.h>

#include "core/addr.h"
#include "shell/bell.h"

struct peerage;

struct port {
    struct peerage *peerage;
    struct bell bell;
    atomic_uint refs;           /* its owner's, and each ringer's on the way */
    atomic_bool ringing;        /* somebody is about to ring: nobody else need */
    struct port *ring_next;     /* in that somebody's turn */
    bool is_loop;               /* a struct peerage_port's */
    /* Under the node's lock: */
    struct list of_node;        /* in peerage.ports or idle_ports */
    struct list completed;      /* struct waiter by link */
    struct list dialled;        /* struct dial_request by of */
    struct list verified;       /* struct verify_job by of */
    struct list loads_here;     /* struct port_question by of_here (EFFECT_LOAD_HERE) */
    struct list cancels;        /* struct cancel */
    struct list words;          /* struct word: what other threads have to say of permits */
    bool loads_waiting;         /* the start loop: registered loads wait */
    bool members_changed;       /* somebody asked may be gone */
    bool closed;                /* the node closes: everybody goes home */
};

/* EFFECT_CANCEL_LOAD on its way to its port. */
struct cancel {
    struct list of;
    uint64_t load_id;
};

bool port_init(struct port *, struct peerage *, bool is_loop);     /* false: no descriptor */
void port_deinit(struct port *);

/* Under the lock: an idle thread's port, now in peerage.ports; NULL: none is idle. */
struct port *port_borrow(struct peerage *);
/* Without it: a new idle one. False: no memory or descriptor. */
bool port_make_idle(struct peerage *);
/* Under the lock. False: there are enough idle ones, port_unref it after the lock. */
bool port_return(struct peerage *, struct port *);
/* Drop a reference; the last frees a thread's port, or the event loop's whole one. */
void port_unref(struct port *);

#endif
