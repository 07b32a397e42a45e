/* Cursors over bytes: all integers big-endian. A cursor's failure sticks: reads
 * after it yield zero, writes after it write nothing, and it is checked once.
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

uint8_t take_u8(struct reader *);
uint16_t take_u16(struct reader *);
uint32_t take_u32(struct reader *);
uint64_t take_u64(struct reader *);
struct span take_span(struct reader *, size_t bytes);   /* borrows from what is read */
void take_copy(struct reader *, void *to, size_t bytes);
struct addr take_addr(struct reader *);                 /* 18 bytes: ip[16], port */
bool take_done(const struct reader *);                  /* nothing failed, nothing left */

void put_u8(struct writer *, uint8_t);
void put_u16(struct writer *, uint16_t);
void put_u32(struct writer *, uint32_t);
void put_u64(struct writer *, uint64_t);
void put_span(struct writer *, struct span);
void put_addr(struct writer *, const struct addr *);

#endif
