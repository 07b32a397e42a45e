/* Big-endian cursors with sticky failure (see wire.h). */
#include "wire.h"

static inline const uint8_t *take(struct reader *r, size_t bytes)
{
    if (r->failed || reader_left(r) < bytes) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *at = r->at;
    r->at += bytes;
    return at;
}

static inline uint64_t swap_be(uint64_t x)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return x;
#else
    return __builtin_bswap64(x);
#endif
}

/* `bytes` is a constant where these are called, so what is left of each is one load or
 * store and a swap. */
static inline uint64_t take_be(struct reader *r, size_t bytes)
{
    const uint8_t *at = take(r, bytes);
    uint64_t value = 0;

    if (at)
        memcpy((uint8_t *)&value + sizeof value - bytes, at, bytes);
    return swap_be(value);
}

uint8_t take_u8(struct reader *r) { return (uint8_t)take_be(r, 1); }
uint16_t take_u16(struct reader *r) { return (uint16_t)take_be(r, 2); }
uint32_t take_u32(struct reader *r) { return (uint32_t)take_be(r, 4); }
uint64_t take_u64(struct reader *r) { return take_be(r, 8); }

struct span take_span(struct reader *r, size_t bytes)
{
    const uint8_t *at = take(r, bytes);
    return at ? span_of(at, bytes) : SPAN_NONE;
}

void take_copy(struct reader *r, void *to, size_t bytes)
{
    const uint8_t *at = take(r, bytes);

    if (at)
        memcpy(to, at, bytes);
    else
        memset(to, 0, bytes);
}

struct addr take_addr(struct reader *r)
{
    struct addr a;

    take_copy(r, a.ip, sizeof a.ip);
    a.port = take_u16(r);
    return a;
}

bool take_done(const struct reader *r)
{
    return !r->failed && r->at == r->end;
}

static inline uint8_t *put(struct writer *w, size_t bytes)
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
    uint8_t *at = put(w, bytes);

    value = swap_be(value);
    if (at)
        memcpy(at, (uint8_t *)&value + sizeof value - bytes, bytes);
}

void put_u8(struct writer *w, uint8_t v) { put_be(w, v, 1); }
void put_u16(struct writer *w, uint16_t v) { put_be(w, v, 2); }
void put_u32(struct writer *w, uint32_t v) { put_be(w, v, 4); }
void put_u64(struct writer *w, uint64_t v) { put_be(w, v, 8); }

void put_span(struct writer *w, struct span s)
{
    uint8_t *at = put(w, s.bytes);

    if (at && s.bytes)
        memcpy(at, s.at, s.bytes);
}

void put_addr(struct writer *w, const struct addr *a)
{
    put_span(w, span_of(a->ip, sizeof a->ip));
    put_u16(w, a->port);
}
