/* What node.c, node_change.c and node_tally.c share. Only they include it. */
#ifndef PEERAGE_NODE_STATE_H
#define PEERAGE_NODE_STATE_H

#include "node.h"
#include "prng.h"

/* Whose call it is stands in the top bits of its id; serve's own have them clear. */
#define CALL_CHANGE (UINT64_C(1) << 63)
#define CALL_PULL (UINT64_C(3) << 62)
#define CALL_TALLY (UINT64_C(7) << 61)
#define CALL_OWNER_MASK (UINT64_C(3) << 62)
#define CALL_KIND_MASK (UINT64_C(7) << 61)      /* what tells a pull from a tally */

struct node {
    struct swim *swim;              /* loop; NULL: the layer is off */
    struct serve *serve;            /* lock */
    uint32_t timeout_ms;
    uint64_t epoch;                 /* loop: of the last view made */
    uint64_t pulled_from;           /* loop: node id of the pull under way */
    struct prng prng;               /* lock */
    uint64_t change_count;          /* lock */
    uint64_t wall_ahead_ms;         /* of now_ms; modulo 2^64 */
    uint64_t last_delete_id;        /* lock: the greatest drawn or heard of */
    struct list changes;            /* lock: deletes and sets under way */
    struct tallies *tallies;        /* lock */
};

/* node_change.c; lock */
void change_request(struct node *, uint64_t conn_id, const struct message *, struct blob *,
                    uint64_t now_ms, struct effects *);
void change_drop(struct node *, uint64_t conn_id, const struct message *, struct blob *,
                 uint64_t now_ms, struct effects *);
void change_reply(struct node *, uint64_t call_id, const struct message *, struct blob *,
                  uint64_t now_ms, struct effects *);
void change_members(struct node *, uint64_t now_ms, struct effects *);
void change_conn_closed(struct node *, uint64_t conn_id);
void changes_free(struct node *);

/* node_tally.c; lock */
struct tallies *tallies_new(uint64_t node_id, const uint8_t hash_key[16]);  /* NULL: no memory */
void tallies_free(struct tallies *);
void tallies_members(struct node *, uint64_t now_ms);
void tallies_leave(struct node *, struct waiter *);
uint64_t tallies_due_ms(const struct tallies *);

#endif
