/* The layout of gossip payloads, and of table pages. All integers big-endian.
 *
 *     payload   version u8 | kind u8 | bytes u8 | head | update ... | 0 ...
 *     head      sender's advertised address, then what the kind carries:
 *         PING, ACK     sequence u32 | live u32 | digest u64
 *         ASK           sequence u32 | target's node id u64 | target's address
 *         REACHED, NACK sequence u32
 *         JOIN          live u32 | digest u64      (first update: the joiner itself)
 *         CHALLENGE, PROOF  token u64
 *         WELCOME       complete u8                (first update: who welcomes)
 *         GOSSIP        nothing
 *     update    bytes u8 | bits u8 | address | node id u64 | started_ms u64
 *               | version u64 | flags u8 | speaks min u8 | speaks max u8
 *               | dead, left: age in s u32 | suspect: accusers' hosts
 *     address   4 or 16 bytes, port u16 (a length byte before it in heads)
 *     bits      0-1 state | 2 IPv6 | 3 contested | 4-6 accusers
 *     host      bytes u8 (4 or 16) | address bytes
 *
 * Lengths let an older release skip what a newer one adds behind the known
 * fields (W8). An update of no bytes ends the list: the rest is padding (W5).
 *
 * "Contested" marks a suspicion that comes from a tombstone, see swim_merge.c.
 * A suspicion carries all hosts known to accuse, so that confirmations are a
 * union and survive loss and reordering.
 */
#ifndef PEERAGE_SWIM_WIRE_H
#define PEERAGE_SWIM_WIRE_H

#include "swim_suspicion.h"
#include "wire.h"

#define SWIM_WIRE_VERSION 1u
#define UPDATE_BYTES_MAX 128u

enum swim_message_kind {
    SWIM_PING = 1,
    SWIM_ACK,
    SWIM_ASK,            /* SWIM's ping-req */
    SWIM_REACHED,        /* the helper's answer: the target acked */
    SWIM_NACK,           /* the helper's answer: not yet, but I am here */
    SWIM_GOSSIP,
    SWIM_JOIN,
    SWIM_CHALLENGE,
    SWIM_PROOF,
    SWIM_WELCOME,
    SWIM_MESSAGE_KINDS,
};

struct swim_message {
    uint8_t version, kind;
    struct addr sender;
    uint32_t sequence, live;
    uint64_t digest, token, target_id;
    struct addr target;
    bool complete;
    struct span updates;
};

struct update {
    struct addr addr;
    struct standing s;          /* since_s is not carried; age_s is */
    uint32_t age_s;
    bool contested;
    uint8_t accuser_count;
    struct host accusers[ACCUSERS_MAX];
};

/* The head of a payload; updates follow with update_put(). */
void swim_message_put(struct writer *, const struct swim_message *);

/* Borrows. SWIM_UNKNOWN_KIND leaves sender and updates readable. */
enum swim_verdict swim_message_take(struct span payload, struct swim_message *);

/* False, and nothing written, if there is no room. */
bool update_put(struct writer *, const struct update *);

/* The next update, or false at the end. A bad one sets r->failed. */
bool update_take(struct reader *r, struct update *);

#endif
