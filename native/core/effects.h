/* What the core wants done: returned, never acted on. An array of effects that the shell
 * (or the simulator) carries out in order, after it has let go of the short lock.
 *
 * An effect that can't be recorded for want of memory is dropped and counted: every wait
 * in the core has a deadline of its own, so a dropped effect costs time, not an answer.
 * Completed waiters never depend on memory: they are linked, not copied.
 */
#ifndef PEERAGE_EFFECTS_H
#define PEERAGE_EFFECTS_H

#include "addr.h"
#include "base.h"
#include "blob.h"
#include "message.h"

enum effect_kind {
    EFFECT_ANSWER,      /* send `message` (+ value) on connection conn_id */
    EFFECT_CALL,        /* ask node_id at addr; each frame of the reply comes back under
                           call_id; the call ends with the first that is neither MORE nor
                           interim (ACCEPTED, WORKING), or with its time */
    EFFECT_LOADS,       /* a registered load waits to be taken; `async`: by the start loop */
    EFFECT_LOAD_HERE,   /* `token` of `port` holds load_id now: it runs its loader, and its
                           waiter stays joined (an event loop's; a thread's is completed) */
    EFFECT_CANCEL_LOAD, /* nobody waits for load_id any more: `port`, its holder or the leader
                           of its query, may stop it and say serve_lose */
    EFFECT_TIER_ASK,    /* load_id asks the second tier for the message's key, with `lease` for
                           the leave to load as well, at most timeout_ms: then
                           serve_tier_value or serve_tier_load */
    EFFECT_TIER_PUT,    /* write behind: message and value; not where the tier has a mark of a
                           delete other than marks[] of key and channel, or, if load_id took
                           a lease, those it saw then (D5) */
    EFFECT_TIER_END,    /* load_id has ended: let go of its lease, ask no more */
    EFFECT_TIER_DELETE, /* remove the message's key, or channel, and leave its delete id as a
                           mark; with a value, set that; the reply comes under call_id */
    EFFECT_TIER_TALLY,  /* count in the second tier, in window `load_id` of the message's loader
                           (the tally's name), key and ttl_ms (the window's length): marks[0]
                           more unless the sum were then above marks[1] (UINT64_MAX: no limit).
                           call_id 0: nobody waits; else node_tally_said */
    EFFECT_GONE,        /* node_id at addr is no live member any more: shut down (2) every
                           connection on which somebody waits for it, so that they go on */
};

struct effect {
    enum effect_kind kind;
    uint64_t conn_id;
    uint64_t call_id, node_id;
    uint64_t load_id;
    void *port, *token;
    bool async, lease;
    uint64_t marks[2];
    uint32_t timeout_ms;
    struct addr addr;
    struct message message;     /* its spans point into `text` */
    struct blob *value;         /* a reference, or NULL */
    uint8_t *text;              /* owned copy of the message's spans, or NULL */
};

struct effects {
    struct effect *at;
    size_t count, room;
    uint64_t dropped;
    struct list completed;      /* struct waiter by its link: local waiters that have their answer */
};

void effects_init(struct effects *);
void effects_clear(struct effects *);   /* unrefs and frees what the effects hold; keeps the room */
void effects_deinit(struct effects *);

/* Append. The message's spans are copied, a reference to value is taken. */
void effects_answer(struct effects *, uint64_t conn_id, const struct message *, struct blob *value);
void effects_call(struct effects *, uint64_t call_id, const struct addr *, uint64_t node_id,
                  uint32_t timeout_ms, const struct message *, struct blob *value);
void effects_loads(struct effects *, bool async);
void effects_load_here(struct effects *, uint64_t load_id, void *port, void *token);
void effects_cancel_load(struct effects *, uint64_t load_id, void *port);
void effects_tier_ask(struct effects *, uint64_t load_id, bool lease, uint32_t timeout_ms,
                      const struct message *);
void effects_tier_put(struct effects *, uint64_t load_id, const uint64_t marks[2],
                      const struct message *, struct blob *value);
void effects_tier_end(struct effects *, uint64_t load_id);
void effects_tier_delete(struct effects *, uint64_t call_id, uint32_t timeout_ms,
                         const struct message *, struct blob *value);
void effects_tier_tally(struct effects *, uint64_t call_id, uint64_t window, uint64_t amount,
                        uint64_t limit, const struct message *);
void effects_gone(struct effects *, const struct addr *, uint64_t node_id);

#endif
