/* Permits held by this process: an owner elsewhere gave the leave to run a loader here, and
 * the value has to go back over the connection that brought the permit (rules O6, O11,
 * O13). A thread's permit keeps the connection to itself; an event loop's belongs to its
 * port, which is told what to send.
 */
#ifndef PEERAGE_SHELL_PERMIT_H
#define PEERAGE_SHELL_PERMIT_H

#include "core/flight.h"
#include "shell/port.h"
#include "shell/stream.h"

struct permit {
    struct list of;             /* peerage.permits */
    uint64_t load_id, request_id, delete_id;
    struct stream *c;              /* a thread's */
    struct port *port;          /* an event loop's: borrowed, it outlives its permits */
    uint64_t conn_id;           /* which of the port's connections */
    struct span key, channel;   /* into text */
    uint8_t text[];
};

/* The holder's word on its way to a port. */
struct word {
    struct list of;             /* port.words */
    uint8_t kind;               /* MESSAGE_LOADED, RAISED, RETURNED */
    struct bundle *items;       /* LOADED */
    struct blob *error;         /* RAISED */
    struct permit *permit;      /* owned */
};

/* Copies the spans; c, port and conn_id are the caller's to set. NULL: out of memory. */
struct permit *permit_new(const struct message *ask, uint64_t load_id, uint64_t request_id,
                          uint64_t delete_id);
void permit_free(struct permit *);      /* not its connection; NULL is fine */

/* Under the lock. */
void permit_add(struct peerage *, struct permit *);
struct permit *permit_take(struct peerage *, uint64_t load_id);     /* NULL: none */
bool permit_is_on(const struct peerage *, const struct port *, uint64_t conn_id);
void permit_drop_port(struct peerage *, const struct port *);

/* Without the lock; takes the permit, borrows the rest. Sends at once (a thread's; blocks for
 * at most the node's timeout) or by its port. */
void permit_say(struct peerage *, struct permit *, uint8_t kind, const struct loaded *items,
                unsigned count, struct blob *error);
/* Queue the frames. False: the connection is of no use. */
bool permit_queue(const struct permit *, struct stream *, uint8_t kind, const struct loaded *items,
                  unsigned count, struct blob *error);
void word_free(struct word *);

#endif
