/* A value's bytes with an owner, shared by reference.
 *
 * A blob never changes after it is made (but for its remembered digest), so it is
 * read without a lock by whoever holds a reference. Its bytes are either its own
 * (they follow the struct) or somebody else's, kept alive by `owner` until
 * `release` is called: so a Python bytes object is served to the network from
 * where it lies. `release` may run on any thread and must not block.
 */
#ifndef PEERAGE_BLOB_H
#define PEERAGE_BLOB_H

#include <stdatomic.h>

#include "base.h"

#define DIGEST_BYTES 32

struct blob {
    atomic_uint refs;
    atomic_bool claimed;            /* somebody has begun to write `digest` */
    atomic_bool digested;           /* `digest` is written before this is set */
    uint8_t digest[DIGEST_BYTES];   /* SHA-256 of the bytes */
    size_t bytes;
    const uint8_t *at;
    void (*release)(void *owner);   /* NULL: the bytes are the blob's own */
    void *owner;
};

/* A blob of its own `bytes` bytes, unset, to be filled through `blob_fill` by its
 * maker before it is shared. One reference, the caller's. NULL: out of memory. */
struct blob *blob_new(size_t bytes);
struct blob *blob_copy(struct span);
static inline uint8_t *blob_fill(struct blob *b) { return (uint8_t *)b->at; }

/* A blob over foreign bytes; takes `owner`: calls release(owner) with the last
 * reference. On NULL (out of memory) nothing was taken. */
struct blob *blob_alias(struct span, void *owner, void (*release)(void *owner));

static inline struct blob *blob_ref(struct blob *b)
{
    if (b)
        atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void blob_unref(struct blob *);     /* NULL is fine */

/* Remember a digest that is known to be the bytes' own. Any thread; the first wins. */
static inline void blob_remember(struct blob *b, const uint8_t digest[DIGEST_BYTES])
{
    if (atomic_exchange_explicit(&b->claimed, true, memory_order_relaxed))
        return;
    memcpy(b->digest, digest, DIGEST_BYTES);
    atomic_store_explicit(&b->digested, true, memory_order_release);
}

static inline struct span blob_span(const struct blob *b)
{
    return b ? span_of(b->at, b->bytes) : SPAN_NONE;
}

#endif
