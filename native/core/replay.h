/* UDP replay windows (rule W4; the sliding bitmap is RFC 6479's).
 *
 * A sender session is a node id with the 16 random bytes it drew at its start. Its
 * window is made only after a tag verified, and is kept until its highest sender time
 * + 30 s has passed: by then the clock check alone refuses its old frames. A full table
 * refuses new sessions and never evicts one that is unexpired.
 *
 * The clock may still step back, and bring the frames of a forgotten session within the
 * 30 s again. So what never goes back here is not a clock but the highest sender time
 * that was ever forgotten: a session takes no frame from at or before what had been
 * forgotten when it began, so none that an earlier window of the same sender has seen.
 * That is as safe as a clock that never goes back, and does not leave a node deaf for an
 * hour whose clock had been an hour ahead.
 */
#ifndef PEERAGE_REPLAY_H
#define PEERAGE_REPLAY_H

#include "frame.h"

#define REPLAY_WINDOW 1024u     /* how far a counter may lag behind the highest */

struct replay;

struct replay *replay_new(const uint8_t hash_key[16]);     /* NULL: out of memory */
void replay_free(struct replay *);

/* A frame that has verified and is timely at `wall_ms`: VERDICT_OK the first time,
 * VERDICT_REPLAY after (or when that can no longer be told), VERDICT_FULL (no memory for
 * another session counts as that). */
enum verdict replay_check(struct replay *, const struct frame *, uint64_t wall_ms);

size_t replay_count(const struct replay *);

#endif
