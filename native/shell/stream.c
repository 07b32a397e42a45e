/* Framing over a socket (see stream.h). */
#include "shell/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/err.h"
#include "core/mem.h"
#include "shell/fork.h"
#include "shell/sockets.h"

#define IN_BYTES 8192u          /* four of the largest heads, or many small requests */
#define IOVS_MAX 64
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

#define COPIED_BYTES_MAX 4096u  /* a copy costs less than the system's look at one piece more */
#define SHARED_CHUNK_BYTES 16384u
#define AHEAD_BYTES_MIN 32768u  /* its encryption takes about as long as waking a thread */

/* Something to be written: bytes of its own, then a shared value. Where several frames wait
 * and are small, they share one: the system takes one piece in less time than many. */
struct chunk {
    struct list of;
    size_t at, bytes;           /* of own and value together */
    size_t own_bytes, own_room;
    struct blob *value;         /* a reference, or NULL */
    uint8_t own[];
};

/* The last chunk if so much can be added to it, else a new one; NULL: out of memory. The
 * first has no more room than it needs: most answers leave before the next is there. */
static struct chunk *chunk_with_room(struct stream *c, size_t bytes)
{
    bool first = list_empty(&c->chunks);
    struct chunk *last = first ? NULL : CONTAINER_OF(c->chunks.prev, struct chunk, of);

    if (last && !last->value && last->own_room - last->own_bytes >= bytes)
        return last;
    size_t room = first || bytes > SHARED_CHUNK_BYTES ? bytes : SHARED_CHUNK_BYTES;
    struct chunk *k = mem_alloc(sizeof *k + room);
    if (!k)
        return NULL;
    k->at = k->bytes = k->own_bytes = 0;
    k->own_room = room;
    k->value = NULL;
    list_add_tail(&c->chunks, &k->of);
    return k;
}

/* Takes the reference to value when it returns true. */
static bool queue_chunk(struct stream *c, struct span own, struct blob *value)
{
    size_t value_bytes = value ? value->bytes : 0;
    bool copy = value_bytes && value_bytes <= COPIED_BYTES_MAX;
    struct chunk *k = chunk_with_room(c, own.bytes + (copy ? value_bytes : 0));

    if (!k)
        return false;
    memcpy(k->own + k->own_bytes, own.at, own.bytes);
    k->own_bytes += own.bytes;
    if (copy) {
        memcpy(k->own + k->own_bytes, value->at, value_bytes);
        k->own_bytes += value_bytes;
        blob_unref(value);
    } else {
        k->value = value;
    }
    k->bytes += own.bytes + value_bytes;
    c->queued_bytes += own.bytes + value_bytes;
    return true;
}

static void free_chunk(struct stream *c, struct chunk *k)
{
    c->queued_bytes -= k->bytes;
    list_remove(&k->of);
    blob_unref(k->value);
    mem_free(k);
}

struct stream *stream_new(int fd, const struct addr *peer, const struct seal *seal,
                          uint64_t self_id, bool server)
{
    struct stream *c = mem_zalloc(sizeof *c);
    uint8_t *in = mem_alloc(IN_BYTES);
    uint8_t random[FRAME_RANDOM_BYTES], challenge[LINK_CHALLENGE_BYTES];

    if (!c || !in || getentropy(random, sizeof random) < 0 ||
        link_init(&c->link, seal, self_id, server, random) < 0) {
        mem_free(in);
        mem_free(c);
        fork_close(fd);
        return NULL;
    }
    c->fd = fd;
    c->in = in;
    c->peer = *peer;
    c->reading = server ? STREAM_HEAD : STREAM_CHALLENGE;
    c->next_request_id = 1;
    c->verify_above = SIZE_MAX;
    list_init(&c->of);
    list_init(&c->chunks);
    if (server) {
        link_challenge(&c->link, challenge);
        if (!queue_chunk(c, span_of(challenge, sizeof challenge), NULL)) {
            stream_free(c);
            return NULL;
        }
    }
    return c;
}

void stream_free(struct stream *c)
{
    if (!c)
        return;
    LIST_FOREACH_SAFE(&c->chunks, l)
        free_chunk(c, CONTAINER_OF(l, struct chunk, of));
    list_remove(&c->of);
    blob_unref(c->value);
    link_deinit(&c->link);
    fork_close(c->fd);
    mem_free(c->in);
    mem_free(c);
}

/* Reading. */

bool stream_is_forsaken(const struct stream *c)
{
#ifdef POLLRDHUP
    struct pollfd fd = {.fd = c->fd, .events = POLLRDHUP};
#else   /* only a reset is seen, which is what a peer that gives up sends */
    struct pollfd fd = {.fd = c->fd};
#endif
    return poll(&fd, 1, 0) > 0;
}

int stream_fill(struct stream *c)
{
    struct iovec to[2];
    int count = 0;
    size_t value_left = 0, room;

    if (c->reading == STREAM_VALUE) {
        /* The head must stay where it is, in front of in_at. */
        value_left = c->value_wire_bytes - c->value_at;
        if (value_left)
            to[count++] = (struct iovec){blob_fill(c->value) + c->value_at, value_left};
    } else if (c->in_at == c->in_end) {
        c->in_at = c->in_end = 0;
    } else if (c->in_at && IN_BYTES - c->in_end < HEAD_BYTES_MAX) {
        memmove(c->in, c->in + c->in_at, c->in_end - c->in_at);
        c->in_end -= c->in_at;
        c->in_at = 0;
    }
    room = IN_BYTES - c->in_end;
    if (room)
        to[count++] = (struct iovec){c->in + c->in_end, room};
    if (!count)
        return 0;

    ssize_t n;
    do {
        n = count == 1 ? recv(c->fd, to[0].iov_base, to[0].iov_len, 0) : readv(c->fd, to, count);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        c->drained = true;
        return 0;
    }
    if (n <= 0) {
        c->ended = true;
        c->drained = true;
        return -1;
    }
    size_t got = (size_t)n;
    c->bytes_in += got;
    /* A value's last bytes with no room behind them end a turn too: what may follow is told
     * again, and asking for it costs a call for each large value. */
    c->drained = got < value_left + room || (room == 0 && got == value_left);
    c->value_at += min_size(got, value_left);
    if (got > value_left)
        c->in_end += got - value_left;
    return 1;
}

static enum stream_next bad(struct stream *c, enum verdict v)
{
    c->verdict = v;
    return STREAM_BAD;
}

static enum stream_next take_challenge(struct stream *c)
{
    if (c->in_end - c->in_at < LINK_CHALLENGE_BYTES)
        return STREAM_MORE;
    enum verdict v = link_challenged(&c->link, c->in + c->in_at);
    if (v != VERDICT_OK)
        return bad(c, v);
    c->in_at += LINK_CHALLENGE_BYTES;
    c->reading = STREAM_HEAD;
    return STREAM_CHALLENGED;
}

/* STREAM_FRAME when the frame carries no value and is complete by that. */
static enum stream_next take_head(struct stream *c, uint64_t wall_ms, struct message *m)
{
    size_t head_bytes, wire_bytes, have = c->in_end - c->in_at;
    enum verdict v = link_open(&c->link, c->in + c->in_at, have, wall_ms, m, &head_bytes,
                               &wire_bytes);

    if (v == VERDICT_MORE)
        return STREAM_MORE;
    if (v != VERDICT_OK)
        return bad(c, v);
    c->in_at += head_bytes;
    if (!wire_bytes)
        return STREAM_FRAME;
    c->value = blob_new(wire_bytes);
    if (!c->value)
        return bad(c, VERDICT_OK);
    c->message = *m;
    c->value_wire_bytes = wire_bytes;
    c->value_at = min_size(have - head_bytes, wire_bytes);
    memcpy(blob_fill(c->value), c->in + c->in_at, c->value_at);
    c->in_at += c->value_at;
    c->reading = STREAM_VALUE;
    return STREAM_MORE;
}

void stream_verify(struct stream *c)
{
    c->value_verdict = link_open_value(&c->link, &c->message, blob_fill(c->value),
                                       c->value_wire_bytes);
    c->verified = true;
}

static enum stream_next take_value(struct stream *c)
{
    if (c->value_at < c->value_wire_bytes)
        return STREAM_MORE;
    if (!c->verified && c->value_wire_bytes > c->verify_above)
        return STREAM_MORE;
    if (!c->verified)
        stream_verify(c);
    c->verified = false;
    c->reading = STREAM_HEAD;
    enum verdict v = c->value_verdict;
    if (v != VERDICT_OK) {
        blob_unref(c->value);
        c->value = NULL;
        return bad(c, v);
    }
    c->value->bytes = c->message.value_bytes;
    if (c->link.seal->mode == FRAME_HMAC)
        blob_remember(c->value, c->message.digest);
    return STREAM_FRAME;
}

/* These carry a value, and one of no bytes leaves no trace on the wire. */
static bool carries_value(const struct message *m)
{
    switch (m->kind) {
    case MESSAGE_VALUE:
    case MESSAGE_FAILED:
    case MESSAGE_LOADED:
    case MESSAGE_RAISED:
    case MESSAGE_PUSH:
        return true;
    default:
        return m->flags & MESSAGE_SET;
    }
}

enum stream_next stream_next(struct stream *c, uint64_t wall_ms, struct message *m,
                             struct blob **value)
{
    enum stream_next next = STREAM_MORE;

    *value = NULL;
    if (c->reading == STREAM_CHALLENGE)
        return take_challenge(c);
    if (c->reading == STREAM_HEAD)
        next = take_head(c, wall_ms, m);
    if (c->reading == STREAM_VALUE) {
        next = take_value(c);
        *m = c->message;
    }
    if (next != STREAM_FRAME)
        return next;
    if (!c->value && carries_value(m) && !(c->value = blob_new(0)))
        return bad(c, VERDICT_OK);
    c->frames_in++;
    *value = c->value;
    c->value = NULL;
    return STREAM_FRAME;
}

/* Writing. */

/* The head of a large value that is yet to be encrypted leaves at once: whoever waits for it
 * wakes up meanwhile. */
static bool send_ahead(struct stream *c, struct span head, const struct blob *wire_value)
{
    if (c->link.seal->mode != FRAME_AEAD || !wire_value || wire_value->bytes < AHEAD_BYTES_MIN ||
        !queue_chunk(c, head, NULL))
        return false;
    (void)stream_flush(c);      /* what is broken is told by the next one */
    return true;
}

int stream_queue(struct stream *c, struct message *m, struct blob *value, uint64_t wall_ms)
{
    uint8_t head[HEAD_BYTES_MAX];
    struct blob *wire_value;

    if (c->queued_bytes + HEAD_BYTES_MAX + (value ? value->bytes : 0) > QUEUED_BYTES_MAX)
        return ERR_FULL;
    int bytes = link_seal_head(&c->link, m, value, wall_ms, head, &wire_value);
    if (bytes < 0)
        return bytes;
    struct span own = span_of(head, (size_t)bytes);
    bool ahead = send_ahead(c, own, wire_value);
    if (ahead)
        own.bytes = 0;
    if (link_seal_value(&c->link, value, wire_value) < 0 || !queue_chunk(c, own, wire_value)) {
        /* The counter is spent; the next frame's is higher still, which is all they check. Only
         * a head that has left alone can be followed by nothing. */
        blob_unref(wire_value);
        if (ahead)
            shutdown(c->fd, SHUT_RDWR);
        return ERR_NOMEM;
    }
    c->frames_out++;
    return 0;
}

static int gather(struct stream *c, struct iovec *out)
{
    int count = 0;

    LIST_FOREACH(&c->chunks, l) {
        struct chunk *k = CONTAINER_OF(l, struct chunk, of);
        size_t at = k->at;
        if (count + 2 > IOVS_MAX)
            break;
        if (at < k->own_bytes)
            out[count++] = (struct iovec){k->own + at, k->own_bytes - at};
        if (k->value && k->value->bytes) {
            size_t skip = at > k->own_bytes ? at - k->own_bytes : 0;
            /* iovec has no const; sendmsg only reads */
            out[count++] = (struct iovec){(void *)(uintptr_t)(k->value->at + skip),
                                          k->value->bytes - skip};
        }
    }
    return count;
}

int stream_flush(struct stream *c)
{
    while (stream_wants_write(c)) {
        struct iovec from[IOVS_MAX];
        struct msghdr h = {.msg_iov = from};
        h.msg_iovlen = (size_t)gather(c, from);
        ssize_t n = h.msg_iovlen == 1
                        ? send(c->fd, from[0].iov_base, from[0].iov_len, MSG_NOSIGNAL)
                        : sendmsg(c->fd, &h, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        size_t sent = (size_t)n;
        c->bytes_out += sent;
        while (sent) {
            struct chunk *k = CONTAINER_OF(c->chunks.next, struct chunk, of);
            size_t step = min_size(sent, k->bytes - k->at);
            k->at += step;
            sent -= step;
            if (k->at == k->bytes)
                free_chunk(c, k);
        }
    }
    return 1;
}
