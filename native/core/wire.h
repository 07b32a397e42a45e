/* Cursors over bytes: all integers big-endian. A cursor's failure sticks: reads
 * after it yield zero, writes after it write nothing, and it is checked once.
 *
 * All of it is here to be inlined: a head is some thirty fields, read or written one after
 * the other, and a call for each took longer than the field.
 */
#ifndef PEERAGE_WIRE_H
#define PEERAGE_WIRE_H

#include "addr.h"
#include "base.h"

struct reader {
    const uint8_t *at, *end;
    bool failed;
};

struct writer {
    uint8_t *begin, *at, *end;
    bool failed;
};

static inline struct reader reader_of(struct span s)
{
    /* Nothing may be NULL, and C allows not even NULL + 0. */
    return (struct reader){s.at, s.bytes ? s.at + s.bytes : s.at, false};
}

static inline struct writer writer_of(void *at, size_t bytes)
{
    return (struct writer){at, at, (uint8_t *)at + bytes, false};
}

static inline size_t reader_left(const struct reader *r) { return (size_t)(r->end - r->at); }
static inline size_t writer_bytes(const struct writer *w) { return (size_t)(w->at - w->begin); }
static inline size_t writer_room(const struct writer *w) { return (size_t)(w->end - w->at); }

static inline uint64_t wire_swap(uint64_t x)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return x;
#else
    return __builtin_bswap64(x);
#endif
}

/* Reading. */

/* The next `bytes`; NULL: so many are not left. */
static inline const uint8_t *wire_take(struct reader *r, size_t bytes)
{
    if (r->failed || reader_left(r) < bytes) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *at = r->at;
    r->at += bytes;
    return at;
}

/* `bytes` is a constant where this is called, so what is left of it is one load and a swap. */
static inline uint64_t take_be(struct reader *r, size_t bytes)
{
    const uint8_t *at = wire_take(r, bytes);
    uint64_t value = 0;

    if (at)
        memcpy((uint8_t *)&value + sizeof value - bytes, at, bytes);
    return wire_swap(value);
}

static inline uint8_t take_u8(struct reader *r) { return (uint8_t)take_be(r, 1); }
static inline uint16_t take_u16(struct reader *r) { return (uint16_t)take_be(r, 2); }
static inline uint32_t take_u32(struct reader *r) { return (uint32_t)take_be(r, 4); }
static inline uint64_t take_u64(struct reader *r) { return take_be(r, 8); }

/* Borrows from what is read. */
static inline struct span take_span(struct reader *r, size_t bytes)
{
    const uint8_t *at = wire_take(r, bytes);
    return at ? span_of(at, bytes) : SPAN_NONE;
}

static inline void take_copy(struct reader *r, void *to, size_t bytes)
{
    const uint8_t *at = wire_take(r, bytes);

    if (at)
        memcpy(to, at, bytes);
    else
        memset(to, 0, bytes);
}

/* 18 bytes: ip[16], port. */
static inline struct addr take_addr(struct reader *r)
{
    struct addr a;

    take_copy(r, a.ip, sizeof a.ip);
    a.port = take_u16(r);
    return a;
}

/* Nothing failed, nothing is left. */
static inline bool take_done(const struct reader *r) { return !r->failed && r->at == r->end; }

/* Writing. */

static inline uint8_t *wire_put(struct writer *w, size_t bytes)
{
    if (w->failed || writer_room(w) < bytes) {
        w->failed = true;
        return NULL;
    }
    uint8_t *at = w->at;
    w->at += bytes;
    return at;
}

static inline void put_be(struct writer *w, uint64_t value, size_t bytes)
{
    uint8_t *at = wire_put(w, bytes);

    value = wire_swap(value);
    if (at)
        memcpy(at, (uint8_t *)&value + sizeof value - bytes, bytes);
}

static inline void put_u8(struct writer *w, uint8_t v) { put_be(w, v, 1); }
static inline void put_u16(struct writer *w, uint16_t v) { put_be(w, v, 2); }
static inline void put_u32(struct writer *w, uint32_t v) { put_be(w, v, 4); }
static inline void put_u64(struct writer *w, uint64_t v) { put_be(w, v, 8); }

static inline void put_span(struct writer *w, struct span s)
{
    uint8_t *at = wire_put(w, s.bytes);

    if (at && s.bytes)
        memcpy(at, s.at, s.bytes);
}

static inline void put_addr(struct writer *w, const struct addr *a)
{
    put_span(w, span_of(a->ip, sizeof a->ip));
    put_u16(w, a->port);
}

#endif
