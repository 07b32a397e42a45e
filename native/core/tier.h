/* The second tier: what a node wants of a store that the whole fleet shares (Redis), as a
 * state machine and as bytes; the shell does the talking.
 *
 * Asking. One question does everything in one step at the server, by a script: the value if
 * it is there, else the load lease if it is free, else who holds it goes on holding. In one
 * step because between a "no value" and a "lease free" the holder may have written and let
 * go, and the key would be loaded twice; and because a server far away then costs one round
 * trip, not two.
 *
 *   begin -> SEND -> value            -> LAND
 *                 -> lease is ours    -> LOAD  (renewed while the load runs, then let go)
 *                 -> somebody has it  -> WAIT, a short growing pause -> SEND ...
 *                 -> no answer, away  -> LOAD  (without a lease: never worse than without it)
 *
 * in all at most as long as a load may take (Nishtala et al., "Scaling Memcache at
 * Facebook", NSDI 2013, section 3.2.1: leases; there the server hands the loser a stale
 * value or a pause, here the loser polls).
 *
 * Values. What is left of a TTL is told by the server's own expiry, not by wall clocks: the
 * server drops the value when its TTL is over, and says with each answer how long that is
 * still to go, so clocks of two hosts are never compared. Only fresh values are kept there:
 * a stale one is served by the nodes' own stores, and here it would stand in the lease's
 * way.
 */
#ifndef PEERAGE_TIER_H
#define PEERAGE_TIER_H

#include "base.h"
#include "blob.h"
#include "flight.h"

/* A lease lasts so long unless renewed: what a killed holder costs the others. Three tries
 * to renew it fit in. */
#define TIER_LEASE_MS 3000u
#define TIER_RENEW_MS (TIER_LEASE_MS / 3)
#define TIER_PAUSE_MS_MIN 10u
#define TIER_PAUSE_MS_MAX 200u
/* An entry that never expires is kept there for a day: nobody tidies up after a release
 * that changed its keys. */
#define TIER_EVER_MS (24u * 3600u * 1000u)

enum tier_step { TIER_SEND, TIER_WAIT, TIER_LAND, TIER_GO };

enum tier_reply {
    TIER_VALUE,         /* it is there, and readable */
    TIER_LEASED,        /* no value; the lease is ours now */
    TIER_HELD,          /* no value; somebody else holds the lease */
    TIER_NOTHING,       /* no value, and no lease was wanted */
    TIER_AWAY,          /* no answer, or one of no use */
};

struct tier_ask {
    bool wants_lease;
    bool leased;                /* ours: to be renewed and let go */
    uint64_t until_ms;          /* then it is loaded anyway */
    uint64_t due_ms;            /* the pause's end */
    uint32_t pause_ms;
};

/* Always SEND. */
enum tier_step tier_begin(struct tier_ask *, bool wants_lease, uint64_t until_ms);
/* LAND, GO, or WAIT until due_ms. */
enum tier_step tier_replied(struct tier_ask *, enum tier_reply, uint64_t now_ms);
/* due_ms has passed: SEND or GO. */
enum tier_step tier_due(struct tier_ask *, uint64_t now_ms);

/* Values. */

/* version 1 | value type 1 | zero 2 | ttl ms 4 | stale ms 4 | age ms 4, then the value. */
#define TIER_HEAD_BYTES 16u

/* For how long the server keeps such an entry. */
static inline uint32_t tier_kept_ms(uint32_t ttl_ms)
{
    return ttl_ms < TIER_EVER_MS || ttl_ms == 0 ? ttl_ms : TIER_EVER_MS;
}

void tier_write(const struct loaded *, uint8_t out[TIER_HEAD_BYTES]);
/* left_ms: what the server says is left. Fills all of *out but key and blob, ttl_ms being
 * what is left; the value are the bytes behind the head. False: not one of ours. */
bool tier_read(struct span, uint64_t left_ms, struct loaded *out);

#endif
