/* Answering: what a node does with a question for a key, its own or a peer's. Store,
 * flights, deletes and the view of the members come together here, all under the
 * shell's one short lock (rule O12); nothing here hashes a value, allocates much, or
 * touches a socket. With the layer off the same code works without members.
 *
 * A question becomes a hit, joins a flight, starts one (the owner peeks at who may have it where
 * the members changed lately, then a registered loader is queued, the local caller loads,
 * or the remote asker gets a permit), or is refused ("not me", "busy").
 * When a load is lost (its holder died, was cancelled, gave it back) everybody who waits
 * is told to ask again: the first one back loads, the others join it.
 */
#ifndef PEERAGE_SERVE_H
#define PEERAGE_SERVE_H

#include "deletes.h"
#include "effects.h"
#include "flight.h"
#include "query.h"
#include "rendezvous.h"
#include "store.h"
#include "view.h"

struct serve_config {
    struct span label;
    size_t cache_bytes;
    uint32_t timeout_ms, load_timeout_ms;
    bool heir;                          /* PEER_HEIR */
    uint8_t hash_key[16];               /* random */
};

struct serve_stats {
    uint64_t hits_local, hits_stale, misses;
    uint64_t served_hits, served_misses, served_loads, served_not_me, served_busy;
    uint64_t loads_started, loads_joined, loads_finished, loads_failed, loads_lost;
    uint64_t permits_granted, permits_returned, peeks_asked, peeks_hit, peeks_served;
    uint64_t pushes_sent, pushes_taken, stored, stored_refused, too_big;
    uint64_t answers_owner, answers_heir, asks_silent, asks_busy, drops;
    uint64_t answers_tier, early;
};

struct serve;

struct serve *serve_new(const struct serve_config *);   /* NULL: out of memory */
void serve_free(struct serve *);

/* Members. */

/* Takes `view` (mem_free'd later); NULL: no members, this node works alone. Wakes those who
 * waited for the looking to end. */
void serve_set_view(struct serve *, struct view *, uint64_t now_ms, struct effects *);
const struct view *serve_view(const struct serve *);    /* under the lock; NULL: layer off */
/* What this node has to hand on since the members changed has reached who lacks it, as far as
 * it could: a draining node waits for that (O8), and for serve_flights. */
bool serve_handed_on(const struct serve *);
/* Nobody else takes part in the contest. */
bool serve_is_alone(const struct serve *);
/* Who stands for a channel, owner, heir and next, silent or not: indices into the view, best
 * first. Returns how many; 0 without a view. Remembered until the members change. */
unsigned serve_standing(struct serve *, uint64_t channel_hash, unsigned want,
                        unsigned out[RANKS_MAX]);
/* A channel's ranks as an asker should try them: those avoided left out but for the one
 * probe a time (O2). Returns how many. */
unsigned serve_ranks(struct serve *, struct span channel, uint64_t now_ms,
                     struct query_rank out[RANKS_MAX]);
/* What a query learnt of a peer. */
void serve_peer(struct serve *, const struct addr *, enum query_verdict, uint64_t now_ms);

/* A local question. */

struct question {
    struct message ask;         /* key, channel, loader, ttl, stale, load timeout, chain, flags */
    bool run_inline;            /* a thread: told OUTCOME_LOAD it loads itself and does not
                                   wait; else (an event loop) `waiter` is joined as well and
                                   gets the value like everyone */
    bool fresh;                 /* skip the store: a refresh */
};

/* Fill *answer. OUTCOME_WAIT: `waiter` (caller's memory, port and token set) is linked
 * and completes later through effects.completed; so also with OUTCOME_ASK and
 * OUTCOME_LOAD unless run_inline. With OUTCOME_ASK ranks and *count are set. */
void serve_ask(struct serve *, const struct question *, struct waiter *, uint64_t now_ms,
               struct answer *, struct query_rank ranks[RANKS_MAX], unsigned *count,
               struct effects *);

/* The store alone. */
bool serve_hit(struct serve *, const struct question *, uint64_t now_ms, struct answer *);
/* The same without an answer to be made: the hot path of a local hit. */
bool serve_get(struct serve *, struct span key, uint64_t now_ms, struct store_hit *);

/* A waiter gives up; it is in no list afterwards. */
void serve_leave(struct serve *, struct waiter *, uint64_t now_ms, struct effects *);

/* The leader's query ended (see query_step). QUERY_ANSWERED: items[0] is the asked entry
 * (ttl_ms is what is left of it), further ones of its channel behind, delete_id and
 * tier as answered; or `error`. Stores what may be stored (D2), completes the waiters.
 * asked_ms: when the request was sent, from which ttls count (O14). */
void serve_answered(struct serve *, uint64_t load_id, const struct loaded *items, unsigned count,
                    uint64_t delete_id, enum tier, uint64_t asked_ms, uint64_t now_ms,
                    struct effects *);
void serve_answered_error(struct serve *, uint64_t load_id, struct blob *error, uint64_t now_ms,
                          struct effects *);
void serve_answered_miss(struct serve *, uint64_t load_id, uint64_t now_ms, struct effects *);
/* QUERY_OWN, QUERY_LOAD, QUERY_PERMITTED: the leader loads. Fills *answer with
 * OUTCOME_LOAD, or OUTCOME_WAIT when an owning flight was there to join (the waiter moved),
 * or OUTCOME_RETRY when the flight is gone. Ignored waiter if run_inline. */
void serve_answered_load(struct serve *, uint64_t load_id, enum query_step, bool run_inline,
                         struct waiter *, uint64_t now_ms, struct answer *, struct effects *);

/* Loads. */

/* The oldest registered load that waits, taken: from now on it is accepted (O5).
 * NULL: none. The flight is borrowed under the lock: copy what you need. `port`: who
 * holds it (NULL: a pool thread). */
const struct flight *serve_take(struct serve *, bool async, void *port, uint64_t now_ms,
                                struct effects *);
/* The chain that questions asked by this load must carry: its own and its key (O6).
 * Returns how many; 0 also when the flight is gone. */
unsigned serve_chain(const struct serve *, uint64_t load_id, uint64_t out[CHAIN_MAX]);
/* How many wait for this flight (asking or owning); 0 also when it is gone. A driver whose
 * own asker left goes on only while somebody does, else it gives up with serve_lose. */
size_t serve_waiters(const struct serve *, uint64_t load_id);

/* The holder's word. Unknown ids (deleted, closed) are fine: the loader's own caller has
 * its value already. items[0] answers, the rest are stored and sent along. */
void serve_finish(struct serve *, uint64_t load_id, const struct loaded *items, unsigned count,
                  uint64_t now_ms, struct effects *);
void serve_fail(struct serve *, uint64_t load_id, struct blob *error, uint32_t negative_ttl_ms,
                uint64_t now_ms, struct effects *);
void serve_lose(struct serve *, uint64_t load_id, uint64_t now_ms, struct effects *);
/* A port (event loop) is gone: its waiters leave, its loads are lost. */
void serve_port_gone(struct serve *, void *port, uint64_t now_ms, struct effects *);

/* Which functions this process can run for others. `async`: on the start loop. Copies. */
int serve_register(struct serve *, struct span loader, bool async);
/* Load its values anew so long before they end, where they are asked for (serve_early.c). */
void serve_set_early(struct serve *, struct span loader, uint32_t early_ms);
void serve_start_loop(struct serve *, bool there);  /* without one async loaders get permits */

/* The second tier. */

/* There is one (EFFECT_TIER_...), or not any more: who waits for it then loads. */
void serve_set_tier(struct serve *, bool there, uint64_t now_ms, struct effects *);
bool serve_has_tier(const struct serve *);
/* What came of an EFFECT_TIER_ASK: the value (asked_ms: when the request was sent, from
 * which its ttl counts), or the leave to load. False: nobody is there to load any more. */
void serve_tier_value(struct serve *, uint64_t load_id, const struct loaded *, uint64_t asked_ms,
                      uint64_t now_ms, struct effects *);
bool serve_tier_load(struct serve *, uint64_t load_id, uint64_t now_ms, struct effects *);

/* A peer's question, and other frames from connections. */

/* Peers' questions for these keys come in a moment (see store_prefetch, which has the bounds). */
void serve_prefetch(struct serve *, const struct span *keys, unsigned count, uint64_t now_ms);
/* A frame from conn_id. ASK, PEEK, CANCEL, LOADED, RAISED, RETURNED, PUSH, DROP; others
 * return false. The value, if any, is borrowed. Answers appear as effects. */
bool serve_frame(struct serve *, uint64_t conn_id, const struct message *, struct blob *value,
                 uint64_t now_ms, struct effects *);
/* The connection is gone: its waiters leave, its permits are lost. */
void serve_closed(struct serve *, uint64_t conn_id, uint64_t now_ms, struct effects *);

/* A reply to an EFFECT_CALL that serve made; NULL message: it failed or timed out.
 * False: the call id is not serve's. Serve's ids have the top bit clear. */
bool serve_reply(struct serve *, uint64_t call_id, const struct message *, struct blob *value,
                 uint64_t now_ms, struct effects *);

/* Sets and deletes. */

/* Apply a delete with this id here (D1): drops the key's entry (or all of the channel),
 * detaches its flights, remembers the id (0: there is none). With `item` (a set) that value
 * takes its place, if no later delete is remembered. */
void serve_drop(struct serve *, struct span key, struct span channel, bool by_channel,
                uint64_t delete_id, const struct loaded *item, uint64_t now_ms);
/* The id of the last delete of the key or its channel that is remembered here; 0: none. */
uint64_t serve_last_delete(struct serve *, struct span key, struct span channel, uint64_t now_ms);
/* An entry that was stored with this key (D4), taken out of what is remembered: the caller's,
 * to delete it as well and to mem_free. NULL: none (any more). */
struct kin {
    struct list age, of_parent, of_child;
    uint64_t parent, child;     /* keys' hashes */
    size_t bytes;
    uint8_t key[];
};
struct kin *serve_take_kin(struct serve *, struct span key);
/* Is the member at this address (NULL: this node) owner or heir of the channel? This node is,
 * too, where there are no members. */
bool serve_keeps(struct serve *, struct span channel, const struct addr *who);
/* Everything goes (D3): a node that was declared dead and is back. */
void serve_drop_all(struct serve *);

/* Time. */

void serve_tick(struct serve *, uint64_t now_ms, struct effects *);
uint64_t serve_due_ms(const struct serve *);

/* Blobs let go under the lock; unref them after it. Moves up to STORE_DROPPED_MAX. */
void serve_take_dropped(struct serve *, struct store_dropped *);

const struct serve_stats *serve_stats(const struct serve *);
void serve_store_stats(const struct serve *, struct store_stats *);
uint64_t serve_channel_hash(const struct serve *, struct span channel);
uint64_t serve_member_hash(const struct serve *, const struct addr *);
size_t serve_flights(const struct serve *);
struct store *serve_store(struct serve *);          /* for swaps and walks, under the lock */

#endif
