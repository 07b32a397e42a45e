/* Tallies on their way between the members (rules T1, T2; the counting is tally.h's).
 *
 * In rounds: a node tells each live member that is no observer what has changed since that
 * member last acknowledged, one page a call, one call a member at a time. A round is held
 * once a second, and sooner where something was counted: a limit that holds over the fleet is
 * overshot by what the others let through before they hear of it, so news waits for 100 ms
 * only, or as much longer as bounds a node to a hundred calls a second.
 *
 * Who has just joined is told by one node of all counts, those of the dead among them: by the
 * coordinator, and also by the next one, should the first go within JOINED_MS. It tells those
 * who started after itself: it is no joiner to them. All others tell it only what they
 * counted themselves, as they do anyhow.
 *
 * Where there is a second tier the sums live there, exact for all, and this node's knowledge
 * is what remains when it is away: every node counts its own adds here as well and tells the
 * others. What this node knows is never more than what was counted, so a request it knows to
 * be above the limit is refused without a question; that also holds the limit when the
 * tier comes back empty.
 *
 * *lock* as in node.h, all of it: call these under the shell's short lock.
 */
#ifndef PEERAGE_NODE_TALLY_H
#define PEERAGE_NODE_TALLY_H

#include "effects.h"
#include "flight.h"
#include "tally.h"

struct node;

/* As tally_add and tally_total: of this node's knowledge, at once. */
int node_tally_add(struct node *, const struct tally_name *, uint64_t amount, uint64_t limit,
                   uint64_t wall_ms, uint64_t *total, bool *added);
uint64_t node_tally_total(struct node *, const struct tally_name *, uint64_t wall_ms);

/* The same with the second tier's word. TALLY_DECIDED: *total and *added are set. TALLY_WAITS:
 * `waiter` (caller's, port and token set) completes through effects.completed with
 * OUTCOME_VALUE and a blob (node_tally_word), after timeout_ms at the latest, then by what is
 * known here; it may leave by node_change_leave. Else an error, as of tally_add.
 * `amount` 0 asks for the sum. */
enum { TALLY_DECIDED, TALLY_WAITS };
int node_tally_take(struct node *, const struct tally_name *, uint64_t amount, uint64_t limit,
                    struct waiter *, uint64_t now_ms, uint64_t wall_ms, uint64_t *total,
                    bool *added, struct effects *);
bool node_tally_word(struct span, uint64_t *total, bool *added);    /* false: malformed */
/* Add here, and there without waiting for it. */
int node_tally_add_behind(struct node *, const struct tally_name *, uint64_t amount,
                          uint64_t wall_ms, uint64_t *total, bool *added, struct effects *);
/* What the tier said to an EFFECT_TIER_TALLY; `heard` false: nothing. */
void node_tally_said(struct node *, uint64_t call_id, bool heard, uint64_t total, bool added,
                     uint64_t wall_ms, struct effects *);

/* Hold a round if one is due (it is part of node_serve_due_ms). */
void node_tally_tick(struct node *, uint64_t now_ms, uint64_t wall_ms, struct effects *);

/* A TALLY frame from a connection, in node_frame's place: this one needs the wall's time. */
void node_tally_frame(struct node *, uint64_t conn_id, const struct message *, struct blob *value,
                      uint64_t wall_ms, struct effects *);
/* Is this call a round's? Then node_tally_reply takes its frame instead of node_reply. */
bool node_call_is_tally(uint64_t call_id);
void node_tally_reply(struct node *, uint64_t call_id, const struct message *, struct blob *value,
                      uint64_t now_ms, uint64_t wall_ms, struct effects *);

struct node_tally_stats {
    struct tally_stats tally;
    uint64_t rounds, pages_sent, pages_lost, pages_taken, pages_malformed;
};
void node_tally_stats(const struct node *, struct node_tally_stats *out);

#endif
