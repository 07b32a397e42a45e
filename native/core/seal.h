/* Authenticate or encrypt heads and values (rules W1, W2).
 *
 * Keys: HKDF-SHA256 (RFC 5869) of the secret, one info string a purpose.
 * Clear mode: HMAC-SHA256 (RFC 2104) over the head and the connection's randoms (hmac.h).
 * Encrypted: XChaCha20-Poly1305 (xchacha.h), the randoms as associated data.
 */
#ifndef PEERAGE_SEAL_H
#define PEERAGE_SEAL_H

#include "base.h"
#include "blob.h"
#include "frame.h"
#include "hmac.h"

#define SEAL_TAG_HMAC_BYTES 32u
#define SEAL_TAG_AEAD_BYTES 16u

/* One secret's keys. `id` is a byte of a fourth derivation: it stands in the head, and
 * a receiver tries only the keys it names (both, if two secrets share theirs). It says
 * nothing about the secret. */
struct seal_key {
    struct hmac_key hmac;
    uint8_t aead[32], redis[32];
    uint8_t id;
};

/* All a cluster's members share: what seals (keys[0]) and what is accepted. */
struct seal {
    struct seal_key keys[SECRETS_MAX];
    unsigned key_count;
    enum frame_mode mode;
    uint8_t label[FRAME_LABEL_BYTES];   /* first bytes of BLAKE2b-512(label) */
};

/* Derive from `secret`: 64 hex characters, or two such joined by a comma, the first
 * seals. Returns NULL, or what is wrong with it, as a constant text that contains no
 * part of the secret. */
const char *seal_init(struct seal *, struct span secret, struct span label, enum frame_mode);
void seal_deinit(struct seal *);        /* wipes */

static inline size_t seal_tag_bytes(enum frame_mode m)
{
    return m == FRAME_AEAD ? SEAL_TAG_AEAD_BYTES : SEAL_TAG_HMAC_BYTES;
}

/* One direction of one connection or socket: a kept cipher context, keyed for one
 * secret and one 16-byte random until a head comes with others. Not thread-safe; its
 * link's lock covers it. */
struct seal_session;

/* Owned by the caller, seal_session_free. NULL: out of memory. `seal` must outlive it. */
struct seal_session *seal_session_new(const struct seal *);
void seal_session_free(struct seal_session *);      /* wipes; NULL is fine */

/* Seal the head in place, under keys[0]. `head` holds the fixed part (encoded, its
 * head_bytes final, its key id that of keys[0]) and the fields in the clear, and has room
 * for the tag behind them. `bound` are bytes that the tag covers too without being sent
 * (the connection's randoms). Returns 0 or ERR_NOMEM. */
int seal_head(struct seal_session *, const struct frame *, uint8_t *head, struct span bound);

/* Check a head's tag, and decrypt its fields in place. VERDICT_OK or VERDICT_TAG; the
 * head is then as it came. */
enum verdict seal_open_head(struct seal_session *, const struct frame *, uint8_t *head,
                            struct span bound);

/* Encrypt the value of the head just sealed by this session, under the counter after
 * the head's, the head's tag as associated data: `out` takes in.bytes +
 * SEAL_TAG_AEAD_BYTES. AEAD mode only. Returns 0 or ERR_NOMEM. */
int seal_value(struct seal_session *, struct span in, uint8_t *out);

/* Decrypt in place the value of the head just opened by this session; on VERDICT_OK the
 * first bytes - SEAL_TAG_AEAD_BYTES are the value. VERDICT_VALUE otherwise, also when no
 * head has been opened; what lies in `value` is then worthless. AEAD mode only. */
enum verdict seal_open_value(struct seal_session *, uint8_t *value, size_t bytes);

/* SHA-256. */
void seal_digest(struct span, uint8_t out[DIGEST_BYTES]);
/* The blob's digest, computed at first use and remembered. Any thread. */
void seal_blob_digest(struct blob *, uint8_t out[DIGEST_BYTES]);

/* Constant time. */
bool seal_equal(const void *, const void *, size_t bytes);

/* Values at rest in Redis: out = 1 version byte, 24 nonce bytes (`nonce`, random, the
 * caller's), ciphertext, 16 tag; `name` (the Redis key) is bound in. Opening tries
 * every key. */
#define SEAL_REST_BYTES 41u
int seal_rest(const struct seal *, struct span name, const uint8_t nonce[24], struct span in,
              uint8_t *out);
/* Bytes of the value written to `out` (at least in.bytes - SEAL_REST_BYTES of room),
 * or -1 when it does not verify. */
long seal_rest_open(const struct seal *, struct span name, struct span in, uint8_t *out);

#endif
