/* The node's own requests (EFFECT_CALL): peeks, pushes, drops, table pulls. One connection a
 * peer, shared by request id, on the loop thread (rule O13). Every call ends: with its last
 * frame, with its time, or with its connection.
 */
#ifndef PEERAGE_SHELL_CALL_H
#define PEERAGE_SHELL_CALL_H

#include "core/effects.h"

struct loop;

struct calls {
    struct list peers;          /* struct peer by `of` */
    struct list dirty;          /* peers to write to before the loop waits */
    struct list failed;         /* calls that ended without a connection, to be told */
    uint64_t due_ms;            /* the earliest call's; may be too early, never too late */
};

void call_init(struct calls *);
void call_deinit(struct loop *);        /* all calls fail */

/* Takes what the effect holds (text, value). */
void call_start(struct loop *, struct effect *);
/* Write what waits, end what failed. */
void call_flush(struct loop *);
/* End the calls whose time has passed; close what has been idle for long. */
void call_tick(struct loop *, uint64_t now_ms);

#endif
