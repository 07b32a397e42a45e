/* The head's fixed layout, clear on the wire. Everything that a receiver needs to
 * check a frame stands here; nothing behind it is parsed before the tag verifies.
 *
 *   0  magic "PG"            2   24  sender node id          8
 *   2  version               1   32  receiver node id        8   (0: open, joins only)
 *   3  mode                  1   40  nonce: random          16
 *   4  kind                  1   56  nonce: counter          8
 *   5  key id                1   64  sender's wall time, ms  8
 *   6  head bytes, all       2   72  request id              8
 *   8  value bytes           4   80  fields (see message.h), then the tag
 *  12  reserved, 0           4
 *  16  label hash            8
 *
 * The tag ends the head: 32 bytes of HMAC-SHA256, or 16 of Poly1305 (the fields
 * before it are then encrypted). It covers the whole head. The value follows the
 * head; encrypted it is 16 bytes longer (its own tag).
 */
#ifndef PEERAGE_FRAME_H
#define PEERAGE_FRAME_H

#include "base.h"
#include "limits.h"

#define FRAME_VERSION 1
#define FRAME_VERSION_MIN 1
#define FRAME_FIXED_BYTES 80u
#define FRAME_RANDOM_BYTES 16u
#define FRAME_LABEL_BYTES 8u
#define FRAME_TAG_BYTES_MIN 16u

enum frame_mode { FRAME_HMAC = 0, FRAME_AEAD = 1 };

/* What came of bytes from outside: hostile until proven, so counted, never asserted.
 * X(name, text) */
#define FRAME_VERDICTS(X)                                   \
    X(OK, "verified")                                       \
    X(MORE, "incomplete")                                   \
    X(GARBAGE, "not a frame")                               \
    X(VERSION, "a version not spoken here")                 \
    X(MODE, "the other mode (encryption differs)")          \
    X(LABEL, "another cluster's label")                     \
    X(TAG, "does not verify (another secret, or forged)")   \
    X(RECEIVER, "meant for another node")                   \
    X(SENDER, "reflected to its sender, or another than it was") \
    X(CLOCK, "sender's clock is off by more than 30 s")     \
    X(REPLAY, "seen before")                                \
    X(BOUND, "a length is out of bounds")                   \
    X(FULL, "no room for another sender")                   \
    X(FIELDS, "verified, but its fields do not parse")      \
    X(VALUE, "the value does not match its digest")

enum verdict {
#define X(name, text) VERDICT_##name,
    FRAME_VERDICTS(X)
#undef X
    VERDICT_COUNT
};

const char *verdict_text(enum verdict);

struct frame {
    uint8_t version, mode, kind, key_id;
    uint16_t head_bytes;        /* fixed part, fields and tag */
    uint32_t value_bytes;       /* as they stand on the wire */
    uint8_t label[FRAME_LABEL_BYTES];
    uint64_t sender_id, receiver_id;
    uint8_t random[FRAME_RANDOM_BYTES];
    uint64_t counter;
    uint64_t sent_ms;           /* wall time */
    uint64_t request_id;
};

void frame_encode(const struct frame *, uint8_t out[FRAME_FIXED_BYTES]);

/* Read a fixed part: VERDICT_MORE while fewer than FRAME_FIXED_BYTES are there,
 * VERDICT_GARBAGE, VERDICT_VERSION or VERDICT_BOUND when it can't be one (head bytes
 * outside [FRAME_FIXED_BYTES + 16, HEAD_BYTES_MAX], head + value above
 * FRAME_BYTES_MAX), else VERDICT_OK. A version above ours is read as ours: newer
 * releases only add behind what we know, and may use what is reserved here. */
enum verdict frame_decode(struct span in, struct frame *out);

/* What can be told before the tag: VERDICT_LABEL, VERDICT_MODE or VERDICT_OK. They stand
 * in the clear so that a wrong setting is not mistaken for a wrong secret; that they are
 * true is known only when the tag verifies. */
enum verdict frame_check_cluster(const struct frame *, enum frame_mode,
                                 const uint8_t label[FRAME_LABEL_BYTES]);

/* Sent within CLOCK_SKEW_MS_MAX of `wall_ms`, either way. */
bool frame_is_timely(const struct frame *, uint64_t wall_ms);

#endif
