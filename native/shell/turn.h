/* One stay under the node's short lock, and all that follows from it.
 *
 * Inside, core is called and gathers effects. At the end, still under the lock, what
 * concerns this process is handed over: completed waiters to their ports, loads to those
 * who run them. After it: blobs that were let go are unref'd, bells are rung, and what must
 * go out over a socket is done (on the loop thread) or mailed to it.
 */
#ifndef PEERAGE_SHELL_TURN_H
#define PEERAGE_SHELL_TURN_H

#include "core/effects.h"
#include "core/store.h"
#include "shell/port.h"
#include "shell/shell.h"

struct turn {
    struct effects effects;
    struct port *rings;         /* ports to ring, by ring_next; each with a reference */
    unsigned takers_to_wake;    /* threads of the pool, for loads that were queued */
    uint64_t now_ms;
    struct port *self;          /* this thread empties it afterwards: no need to ring */
    struct loop *loop;          /* NULL: not on the loop thread */
    bool has_parcel;            /* at its end: something for the loop thread to send */
};

void turn_begin(struct peerage *, struct turn *);       /* any thread but the loop's */
void turn_begin_loop(struct peerage *, struct loop *, struct turn *);
void turn_end(struct peerage *, struct turn *);

/* Under the lock: this port will be rung at the end of the turn. */
void turn_ring(struct turn *, struct port *);

#endif
