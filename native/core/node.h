/* A whole node without its sockets: membership, answering and asking composed.
 *
 * Two halves (rule O12). What touches store and flights stands in `node_serve(node)` and in
 * the functions marked *lock*: call them under the shell's short lock. What touches
 * membership is marked *loop*: the loop thread alone calls it, without the lock. The
 * simulator calls both from one thread.
 *
 *   loop:  node_tick, node_datagram, node_proven, node_leave ... -> struct swim_out, and
 *          then, if news says so, node_view() -> under the lock node_set_view()
 *   lock:  node_frame, node_reply, node_closed, node_change, node_late_change, node_serve_tick
 *          and all of node_tally.h -> struct effects
 */
#ifndef PEERAGE_NODE_H
#define PEERAGE_NODE_H

#include "effects.h"
#include "serve.h"
#include "swim.h"
#include "view.h"

struct node_config {
    struct swim_config swim;
    struct serve_config serve;
    bool peers;                     /* false: the layer is off, there is no membership */
    uint64_t seed;                  /* for call, load and delete ids */
    uint64_t node_id;               /* swim's; 0: one of `seed`, where there is no membership */
    uint64_t wall_ms;               /* the wall's clock now, where delete ids begin (D1) */
};

struct node;

/* Everything is copied but what swim_config says is borrowed. ERR_NOMEM. */
int node_new(struct node **out, const struct node_config *, uint64_t now_ms);
void node_free(struct node *);

struct swim *node_swim(struct node *);      /* loop; NULL: no membership */
struct serve *node_serve(struct node *);    /* lock */

/* Loop. */

/* Begin membership, or begin it anew under another address (an observer that found a port,
 * M7): the port is known only after binding, long after the cache is in use. What was
 * there before is freed. node_config.swim is only read where `peers` is set. ERR_NOMEM:
 * nothing changed. */
int node_join(struct node *, const struct swim_config *, uint64_t now_ms);
/* No membership any more (left, or M6): node_swim() is NULL. Then set a NULL view under
 * the lock: the node works alone. */
void node_part(struct node *);

/* The current live members as a view for serve; NULL: out of memory (try again later). */
struct view *node_view(struct node *);

/* SWIM_PULL of an out: the request to make of it, as an effect (EFFECT_CALL). */
void node_pull(struct node *, const struct swim_effect *, struct span payload, struct effects *);

/* Lock. */

/* Takes the view. Deletes under way include whoever became live (D3). */
void node_set_view(struct node *, struct view *, uint64_t now_ms, struct effects *);

/* A verified frame from a connection (not HELLO or WELCOME), its value complete and
 * verified (borrowed, may be NULL). Unknown kinds are answered UNSUPPORTED (W8).
 * TABLE is not answered here but by node_table (loop), TALLY by node_tally_frame. */
void node_frame(struct node *, uint64_t conn_id, const struct message *, struct blob *value,
                uint64_t now_ms, struct effects *);
/* loop: answer a TABLE request with its pages. */
void node_table(struct node *, uint64_t conn_id, const struct message *, struct blob *value,
                uint64_t now_ms, struct effects *);

/* A frame in answer to an EFFECT_CALL; NULL message: no connection, closed, or timed out. A
 * call ends with its first frame without MESSAGE_MORE, or with NULL. */
void node_reply(struct node *, uint64_t call_id, const struct message *, struct blob *value,
                uint64_t now_ms, struct effects *);
/* loop: is this call membership's (a table pull)? Then node_page takes its frames instead. */
bool node_call_is_pull(uint64_t call_id);
void node_page(struct node *, uint64_t call_id, const struct message *, struct blob *value,
               uint64_t now_ms, uint64_t wall_ms, struct swim_out *);

void node_closed(struct node *, uint64_t conn_id, uint64_t now_ms, struct effects *);

/* Set or delete (D1-D4). item NULL: delete. `waiter` (caller's, port and token set) completes
 * through effects.completed with OUTCOME_VALUE and a blob: the report (node_report_read).
 * It, or one of node_tally_take, may leave by node_change_leave. */
void node_change(struct node *, const struct message *name, bool by_channel,
                 const struct loaded *item, struct waiter *, uint64_t now_ms, struct effects *);
void node_change_leave(struct node *, struct waiter *);
/* A frame of a set or delete whose sender gave it up before this node, stopped meanwhile, read
 * it. By now others have run it, and newer ones perhaps, which it must not undo (D1): it is not
 * run and its value not kept. What is here of the key or channel goes. */
void node_late_change(struct node *, const struct message *, uint64_t now_ms);

/* Who acknowledged, who could not be reached: up to `room` each. False: malformed. */
struct node_report {
    unsigned acknowledged_count, unreached_count;
    struct addr acknowledged[256], unreached[256];
};
bool node_report_read(struct span, struct node_report *out);

/* Deadlines of flights, calls and deletes; the next round of tallies is among the due
 * (node_tally_tick). */
void node_serve_tick(struct node *, uint64_t now_ms, struct effects *);
uint64_t node_serve_due_ms(const struct node *);

#endif
