/* Dialling a node until it has proven itself: connect, its challenge (which says
 * who lives there, W6), our HELLO, its WELCOME. On the loop thread; the connection is then
 * the caller's: a call's, a prove's, or handed to the thread or event loop that asked for
 * it (rule O13).
 */
#ifndef PEERAGE_SHELL_DIAL_H
#define PEERAGE_SHELL_DIAL_H

#include "shell/mailbox.h"
#include "shell/port.h"
#include "shell/stream.h"

enum dial_result {
    DIAL_PROVEN,
    DIAL_FAILED,        /* refused, broken, not in time, or it did not verify */
    DIAL_STRANGER,      /* another node than expected lives there */
};

/* `c` is the callee's on DIAL_PROVEN, else NULL. other_id: who lives there, if known. */
typedef void dial_done(void *token, struct loop *, enum dial_result, struct stream *c,
                       uint64_t other_id);

struct dial;

/* On the loop, once: the set of sockets that are being dialled. False: no descriptor. */
bool dial_init(struct loop *);
void dial_watch(struct loop *);
void dial_deinit(struct loop *);        /* after dial_cancel_all */

/* Which way: over a Unix socket where the node is of this host and has one, else TCP; or TCP
 * alone, to find out whether others can reach it. */
enum dial_way { DIAL_NEAREST, DIAL_TCP };

/* node_id 0: whoever is there. `done` is called once, never before this returns. NULL: out
 * of memory, and it is never called. */
struct dial *dial_start(struct loop *, enum dial_way, const struct addr *, uint64_t node_id,
                        uint64_t due_ms, dial_done *, void *token);
void dial_cancel(struct dial *);        /* `done` is not called */
void dial_cancel_all(struct loop *);    /* `done` is called with DIAL_FAILED */

/* A thread's or an event loop's wish for a connection. On the heap, one owner at a time:
 * the asker's port, then the loop thread, then the port again. */
struct dial_request {
    struct mail mail;
    struct list of;             /* port->dialled when it is done; else in none */
    struct peerage *peerage;
    struct port *port;          /* a reference */
    void *token;                /* the port driver's */
    struct addr addr;
    uint64_t node_id, due_ms;
    bool abandoned;             /* under the lock: nobody waits any more */
    bool done;                  /* under the lock */
    enum dial_result result;
    struct stream *connection;
    uint64_t other_id;
};

/* Ask the loop thread; the answer appears in port->dialled. NULL: out of memory or closed. */
struct dial_request *dial_ask(struct port *, const struct addr *, uint64_t node_id,
                              uint64_t due_ms, void *token);
/* Not wanted any more (or read): frees it now or when the loop thread is done with it. A
 * connection in it goes to the pool. */
void dial_forget(struct dial_request *);

#endif
