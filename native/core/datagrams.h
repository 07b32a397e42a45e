/* Frame + seal + replay for a node's UDP socket: one sender session out, windows in
 * (rules W4, W5). No sockets here. (TCP: link.h.)
 *
 * A datagram is one head, nothing else: no value, no randoms bound in, kind GOSSIP.
 * Its fields are
 *   payload bytes 2, payload, zeros up to the tag (padding).
 */
#ifndef PEERAGE_DATAGRAMS_H
#define PEERAGE_DATAGRAMS_H

#include "frame.h"
#include "replay.h"
#include "seal.h"

struct datagrams {
    const struct seal *seal;
    struct seal_session *session_out, *session_in;
    struct replay *replay;
    uint64_t self_id;
    uint8_t random_self[FRAME_RANDOM_BYTES];
    uint64_t counter_out;               /* last used */
};

/* `random` is fresh for this start of the node, `hash_key` secret to it.
 * Returns 0 or ERR_NOMEM. `seal` must outlive it. */
int datagrams_init(struct datagrams *, const struct seal *, uint64_t self_id,
                   const uint8_t random[FRAME_RANDOM_BYTES], const uint8_t hash_key[16]);
void datagrams_deinit(struct datagrams *);

/* Bytes of gossip payload one datagram can carry in this mode. */
size_t datagrams_payload_max(const struct datagrams *);

/* Seal `payload` for one node (0: open, joins only), zero-padded so that the datagram
 * has at least pad_to bytes (at most PACKET_BYTES_MAX). Returns the datagram's bytes, or
 * ERR_TOO_BIG, ERR_NOMEM, or ERR_FULL when the counters are used up. */
int datagrams_seal(struct datagrams *, uint64_t receiver_id, struct span payload, size_t pad_to,
                   uint64_t wall_ms, uint8_t out[PACKET_BYTES_MAX]);

/* Open one datagram in place. On VERDICT_OK: *payload (with its padding removed; borrows
 * from `in`), *frame for sender and receiver ids. Receiver 0 is accepted and left to
 * membership to judge. */
enum verdict datagrams_open(struct datagrams *, uint8_t *in, size_t bytes, uint64_t wall_ms,
                            struct frame *frame, struct span *payload);

#endif
