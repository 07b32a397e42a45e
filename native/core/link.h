/* Frame + message + seal for one TCP connection. Bytes in, verified messages out;
 * messages in, sealed bytes out. No sockets here. (UDP: datagrams.h.)
 *
 * A connection opens with the server's challenge, in the clear (rule W3):
 *   magic "PGC", version 1, server's node id 8, server's random 16, label hash 8,
 *   mode 1, 0 x 3                                                     = 40 bytes
 * Each side seals with its own 16 random bytes as the nonce's first part; both sides'
 * randoms are bound into every tag, so a frame is worthless on any other connection.
 * Counters rise strictly, and a frame with a value takes two. The client's first frame
 * is HELLO, the server's WELCOME. Any verdict but OK and MORE ends the connection.
 */
#ifndef PEERAGE_LINK_H
#define PEERAGE_LINK_H

#include "frame.h"
#include "message.h"
#include "seal.h"

#define LINK_CHALLENGE_BYTES 40u

struct link {
    const struct seal *seal;
    struct seal_session *session_out, *session_in;
    uint64_t self_id, peer_id;          /* peer_id 0: not known yet */
    uint8_t random_self[FRAME_RANDOM_BYTES], random_peer[FRAME_RANDOM_BYTES];
    uint64_t counter_out, counter_in;   /* last used, last seen */
    bool server;
    bool proven;                        /* one head of the peer has verified */
};

/* Whether there is somebody to seal for: a client has its challenge, a server has
 * opened the client's first head. */
static inline bool link_ready(const struct link *l) { return l->peer_id != 0; }

/* `random` is fresh for this connection. Returns 0 or ERR_NOMEM. */
int link_init(struct link *, const struct seal *, uint64_t self_id, bool server,
              const uint8_t random[FRAME_RANDOM_BYTES]);
void link_deinit(struct link *);

void link_challenge(const struct link *, uint8_t out[LINK_CHALLENGE_BYTES]);    /* server */
/* Client: take the server's challenge. Sets peer_id. OK, GARBAGE, VERSION, MODE, LABEL, or
 * SENDER: we dialled ourselves. */
enum verdict link_challenged(struct link *, const uint8_t in[LINK_CHALLENGE_BYTES]);

/* Seal a message's head; the link must be ready. m->kind, m->request_id and the fields are the
 * caller's; m->value_bytes and the digest are set here from `value` (may be NULL: none).
 * Writes the head to `head` (room HEAD_BYTES_MAX) and returns its bytes, or a negative
 * error: ERR_TOO_BIG, ERR_NOMEM, or ERR_FULL when the counters are used up (the
 * connection must then be made anew). On an error nothing is taken or left behind.
 * *wire_value is what must follow on the wire: in the clear mode a new reference to
 * `value` itself, encrypted a new blob that link_seal_value has to fill before anything else
 * is sealed; NULL if none. The caller unrefs it.
 * An empty value is no value: it has no bytes to protect beyond the head's.
 * The counter is taken here: call and queue under the connection's lock (W2). */
int link_seal_head(struct link *, struct message *m, struct blob *value, uint64_t wall_ms,
                   uint8_t head[HEAD_BYTES_MAX], struct blob **wire_value);
/* Encrypt `value` into what link_seal_head made for it; nothing to do in the clear mode or for
 * NULL. 0 or ERR_NOMEM: nothing may follow its head then, if that has gone out. */
int link_seal_value(struct link *, const struct blob *value, struct blob *wire_value);
/* Both. */
int link_seal(struct link *, struct message *m, struct blob *value, uint64_t wall_ms,
              uint8_t head[HEAD_BYTES_MAX], struct blob **wire_value);

/* Look at what has arrived: VERDICT_MORE until a whole head is there (in.bytes may
 * hold more), a hostile verdict, or VERDICT_OK: *m is filled (spans borrow from `in`,
 * whose fields were decrypted in place: keep that head until it is done with), *head_bytes is what was consumed, and
 * m->value_bytes bytes of value (clear length) follow as *wire_bytes bytes.
 * An unproven peer may send no value (VERDICT_BOUND). */
enum verdict link_open(struct link *, uint8_t *in, size_t bytes, uint64_t wall_ms,
                       struct message *m, size_t *head_bytes, size_t *wire_bytes);

/* The value that follows the head just opened, complete in `at` (wire_bytes of it);
 * decrypted in place or checked against m->digest. VERDICT_OK or VERDICT_VALUE. On OK in
 * the clear mode m->digest is the value's own (see blob_remember). */
enum verdict link_open_value(struct link *, const struct message *m, uint8_t *at,
                             size_t wire_bytes);

#endif
