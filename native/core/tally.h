/* Counters summed over all nodes, in fixed windows of wall time (rules T1, T2): how often a
 * client asked in this minute, how popular a page is in this hour.
 *
 * A grow-only counter (Shapiro et al., "Conflict-free Replicated Data Types", SSS 2011) for
 * each (tally, key, window): a node counts only its own adds and tells others the absolute
 * number, never a difference; of two numbers for one node the higher wins. So messages may
 * be lost, repeated and reordered, a dead node's count stays until the window ends, and
 * whoever joins is given the counts of all. The window's number, wall ms / window, travels
 * in the message; clocks that differ a little misplace a little.
 *
 * Who is told (the node's part, see tally_encode):
 *   - up to TALLY_DIRECT_MEMBERS_MAX members, everyone tells everyone what changed;
 *   - above, a node tells each key's owner and its heir, and asks them with the same message
 *     about the keys it counted or looked at. They answer for each with the sum of all
 *     others, which only grows as well: of two sums told the higher wins, whoever told it.
 *     The heir is told so that an owner's crash loses no count. When owner or heir change,
 *     everyone tells the new one its own count, and who was owner or heir so far tells it
 *     what it knows of the others, the dead among them.
 * A count that reached only some before its node died is not passed on among the rest.
 *
 * A payload, all big-endian: flags 1 (1: answer with sums), then records to its end:
 *
 *   name bytes 1, key bytes 2, window ms 4, window 8, counts 2, name, key,
 *   counts x { node id 8, count 8 }      node id 0: all but the receiver together
 *
 * Under the shell's short lock, like the store. Wall time comes in as an argument.
 */
#ifndef PEERAGE_TALLY_H
#define PEERAGE_TALLY_H

#include "base.h"
#include "limits.h"
#include "wire.h"

/* A page's room: any record fits in one. */
#define TALLY_PAGE_BYTES (1u + 17u + TALLY_NAME_BYTES_MAX + KEY_BYTES_MAX + 16u * TALLY_NODES_MAX)

struct tally;

/* hash_key: random, against chosen collisions. NULL: out of memory. */
struct tally *tally_new(uint64_t node_id, const uint8_t hash_key[16]);
void tally_free(struct tally *);

/* What is counted. One name with two windows is two tallies. */
struct tally_name {
    struct span name, key;
    uint32_t window_ms;             /* > 0 */
};

/* Add to this window's count unless the total would then be above `limit` (UINT64_MAX: no
 * limit): a refused request is not added (T2). *total, of all nodes, is the new one, or the
 * one that was too high. *added says which. ERR_TOO_BIG (a length), ERR_FULL (too many
 * keys), ERR_NOMEM: nothing was added, *total is 0. */
int tally_add(struct tally *, const struct tally_name *, uint64_t amount, uint64_t limit,
              uint64_t wall_ms, uint64_t *total, bool *added);

/* What is known of a window that has not ended; 0 when it has, or nothing was counted.
 * Through owners a look is also a wish: the key is asked for with the next message. */
static inline uint64_t tally_window(const struct tally_name *n, uint64_t wall_ms)
{
    return wall_ms / n->window_ms;
}
uint64_t tally_total(struct tally *, const struct tally_name *, uint64_t window,
                     uint64_t wall_ms);
/* This node's own part of it (for a total that lives in Redis, T2). */
uint64_t tally_own(const struct tally *, const struct tally_name *, uint64_t window);

/* The ids of a key's owner and its heir, 0 for none. (Of rendezvous_channel(key), say.) */
typedef void tally_owners_of(void *context, struct span name, struct span key,
                             uint64_t owners[2]);

/* How counts travel from now on: through owners, or, with NULL, from everyone to everyone.
 * Call it before each round of encoding: it asks for the keys that are new, and for all when
 * members_version is another than the last time. */
void tally_route(struct tally *, uint64_t members_version, tally_owners_of *, void *context);

struct tally_page {
    uint64_t since;     /* what tally_encode returned for this receiver, 0 at first */
    uint64_t receiver;  /* its node id; through owners it is told only of its keys */
    bool of_all;        /* all that is known of every node, for one that joins (from one node
                         * only, the coordinator, say); it is told of every key */
};

/* Write what changed since: one page, for which `w` is empty and has TALLY_PAGE_BYTES.
 * Nothing to say: nothing is written. Returns what to give as `since` once the receiver has
 * acknowledged (until then the same as before: what is lost is said again); *more: there is
 * another page from there. */
uint64_t tally_encode(struct tally *, const struct tally_page *, uint64_t wall_ms,
                      struct writer *w, bool *more);

/* Take in a payload. False: malformed, and nothing of it was taken. What is beyond a bound
 * or not of this time is passed over and counted. */
bool tally_merge(struct tally *, struct span payload, uint64_t wall_ms);

/* After the merge of a payload: does it want an answer, and write it (as much as fits). */
bool tally_wants_answer(struct span payload);
void tally_answer(const struct tally *, struct span payload, uint64_t asker_id,
                  struct writer *w);

/* Forget some of the windows that have ended; call it once a second or so. */
void tally_tick(struct tally *, uint64_t wall_ms);

struct tally_stats {
    uint64_t keys;          /* records held */
    uint64_t refused;       /* adds and counts for which there was no room */
    uint64_t misplaced;     /* counts of windows that have ended, or lie too far ahead */
};
void tally_stats(const struct tally *, struct tally_stats *out);

#endif
