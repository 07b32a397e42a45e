/* One framed connection over a non-blocking socket: bytes <-> link.
 *
 * Whoever uses it drives it: the loop thread (server, dials, calls), an event loop, or a
 * blocked thread; one at a time, so taking the counter, sealing and writing need no
 * lock (rule W2). Reading takes a head through a small buffer, then the value straight
 * into a blob of its size. Writing queues sealed chunks and hands as many as there are to
 * one sendmsg; the head of a large value that has to be encrypted goes ahead of it.
 */
#ifndef PEERAGE_SHELL_STREAM_H
#define PEERAGE_SHELL_STREAM_H

#include "core/addr.h"
#include "core/link.h"
#include "shell/spin.h"

enum stream_reading { STREAM_CHALLENGE, STREAM_HEAD, STREAM_VALUE };

struct stream {
    int fd;
    struct link link;
    struct addr peer;               /* of the packet (server), or dialled */
    struct list of;                 /* in whatever its driver keeps: pool, peers */
    enum stream_reading reading;
    bool drained;                   /* the last read took less than it had room for */
    bool ended;                     /* the peer has closed its side */
    bool reused;                    /* has served a question before (O2) */
    enum verdict verdict;           /* why it broke; VERDICT_OK: the system or the peer */
    uint64_t next_request_id;
    struct spin spin;               /* of a thread that waits for answers */
    uint64_t used_ms;               /* when it last moved bytes */
    /* reading: in[in_at..in_end) has not been consumed */
    uint8_t *in;
    size_t in_at, in_end;
    struct message message;         /* STREAM_VALUE, of that value: its spans lie in `in`, before
                                       in_at */
    struct blob *value;             /* STREAM_VALUE: being filled */
    size_t value_at, value_wire_bytes;
    size_t verify_above;            /* larger values are left to stream_verify; SIZE_MAX: none */
    bool verified;                  /* `value` has been, with this verdict */
    enum verdict value_verdict;
    /* writing */
    struct list chunks;
    size_t queued_bytes;
    uint64_t frames_in, frames_out, bytes_in, bytes_out;
};

/* Takes fd, also when it fails (NULL: out of memory or randomness). A server's challenge is
 * queued at once. */
struct stream *stream_new(int fd, const struct addr *peer, const struct seal *, uint64_t self_id,
                          bool server);
void stream_free(struct stream *);        /* closes; NULL is fine */

/* Has the peer closed or reset the connection, whatever it sent before that? One system call. */
bool stream_is_forsaken(const struct stream *);

/* Read once from the socket. 1: something came; 0: nothing there now; -1: the connection
 * has ended or broken (frames that came before are still given by stream_next). */
int stream_fill(struct stream *);

enum stream_next {
    STREAM_MORE,        /* nothing complete yet: stream_fill, or wait; see stream_is_unverified */
    STREAM_CHALLENGED,  /* client: link.peer_id is known now */
    STREAM_FRAME,       /* *m and *value; see stream_next */
    STREAM_BAD,         /* does not verify, malformed or out of memory: close it (W6) */
};

/* The next complete frame. m's spans are valid until the next stream_fill; *value is a
 * reference, the caller's (NULL: the kind carries none). Not after STREAM_BAD. */
enum stream_next stream_next(struct stream *, uint64_t wall_ms, struct message *m,
                             struct blob **value);

/* A large value is complete (see verify_above): stream_verify, on any thread, then stream_next. */
static inline bool stream_is_unverified(const struct stream *c)
{
    return c->reading == STREAM_VALUE && c->value_at == c->value_wire_bytes && !c->verified;
}
/* Check it. Nobody may read from the connection meanwhile; writing
 * is fine. */
void stream_verify(struct stream *);

/* The request id whose value is coming in right now; 0: none. */
static inline uint64_t stream_arriving(const struct stream *c)
{
    return c->reading == STREAM_VALUE ? c->message.request_id : 0;
}

/* A frame has begun and is not complete. */
static inline bool stream_is_within(const struct stream *c)
{
    return c->reading == STREAM_VALUE || c->in_at < c->in_end;
}

/* Seal and queue. Returns 0, ERR_FULL (QUEUED_BYTES_MAX would be exceeded: a slow reader),
 * ERR_TOO_BIG, ERR_NOMEM; nothing is then queued. Borrows everything. */
int stream_queue(struct stream *, struct message *, struct blob *value, uint64_t wall_ms);

/* Write what is queued. 1: all gone; 0: the socket is full, wait until it is writable;
 * -1: broken. */
int stream_flush(struct stream *);
static inline bool stream_wants_write(const struct stream *c) { return !list_empty(&c->chunks); }

#endif
