/* The member table: records in chunks that never move, a hash by address, the
 * order in which members are probed, digests of who is live, and the one door
 * through which a record changes state.
 *
 * A record costs 64 bytes, 4 in the probe order, and 5.3 to 10.7 in the hash
 * (4 bytes a slot at a load of 3/8 to 3/4): below 80. Members are named by
 * their index, which is stable for a record's life; index 0 is the node itself.
 */
#ifndef PEERAGE_SWIM_MEMBERS_H
#define PEERAGE_SWIM_MEMBERS_H

#include "prng.h"
#include "swim.h"

#define MEMBER_NONE UINT32_MAX
#define MEMBER_SELF 0u
#define MEMBER_CHUNK 64u
#define DIGEST_BUCKETS 64u

enum member_marks {
    MARK_USED = 1,          /* the record is in the table */
    MARK_QUEUED = 2,        /* it is in the gossip queue */
    MARK_CONTESTED = 4,     /* someone holds a tombstone for what others call alive */
    MARK_SEEN = 8,          /* scratch of a page merge */
};

struct members {
    struct member **chunks;
    uint32_t chunk_count, chunk_capacity;
    uint32_t used;              /* records ever handed out */
    uint32_t free_head;         /* of those given back, linked by queue_next */
    uint32_t count;             /* records in the table, tombstones too */
    uint32_t *slots;            /* index + 1, 0 = empty; linear probing */
    uint32_t slot_count;        /* a power of two */
    uint32_t *order;            /* live members but ourselves, shuffled */
    uint32_t order_count, order_capacity, order_next;
    uint32_t live;              /* with ourselves, without observers: N */
    uint64_t digest;            /* of all live records: the XOR of the buckets */
    uint64_t buckets[DIGEST_BUCKETS];
};

/* What a record says of its member, apart from the address: what changes at once. */
struct standing {
    uint8_t state, flags, speaks_min, speaks_max;
    uint64_t node_id, started_ms, version;
    uint32_t since_s;
};

void members_init(struct members *);
void members_deinit(struct members *);

static inline struct member *members_at(const struct members *t, uint32_t i)
{
    return &t->chunks[i / MEMBER_CHUNK][i % MEMBER_CHUNK];
}

/* The next index in use from `i` on; MEMBER_NONE at the end. */
uint32_t members_from(const struct members *, uint32_t i);

uint32_t members_find(const struct members *, const struct addr *);

/* Add a record; the address must be unknown. ERR_NOMEM, ERR_FULL: state unchanged.
 * A live member enters the probe order at a random place of the current round. */
int members_add(struct members *, const struct addr *, const struct standing *,
                struct prng *, uint32_t *index);

/* The one door. Asserts that the step is allowed: within one incarnation only
 * forward; back to alive only under a newer one. Never fails. */
void members_become(struct members *, uint32_t i, const struct standing *, struct prng *);

/* Forget a record; it must be in no queue, and not live. Its index is used again. */
void members_remove(struct members *, uint32_t i);

/* Whom to probe next: round robin over a shuffled order, so that a member is
 * probed within 2N - 1 periods (SWIM, section 4.3). MEMBER_NONE if alone. */
uint32_t members_probe_next(struct members *, struct prng *);

/* Put a live member next in the order. */
void members_probe_soon(struct members *, uint32_t i);

/* Is the first incarnation {started_ms, node_id} newer (> 0), the same (0) or older? */
int start_compare(uint64_t started_ms, uint64_t node_id, const struct member *);

uint64_t members_digest_of(const struct member *);
uint32_t members_bucket(const struct addr *);
size_t members_memory(const struct members *);

#endif
