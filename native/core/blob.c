/* Reference-counted values (see blob.h). */
#include "blob.h"

#include "mem.h"

static struct blob *make(size_t own_bytes)
{
    struct blob *b = mem_alloc(sizeof *b + own_bytes);

    if (!b)
        return NULL;
    atomic_init(&b->refs, 1);
    atomic_init(&b->claimed, false);
    atomic_init(&b->digested, false);
    b->bytes = own_bytes;
    b->at = (const uint8_t *)(b + 1);
    b->release = NULL;
    b->owner = NULL;
    return b;
}

struct blob *blob_new(size_t bytes)
{
    return make(bytes);
}

struct blob *blob_copy(struct span s)
{
    struct blob *b = make(s.bytes);

    if (b && s.bytes)
        memcpy(blob_fill(b), s.at, s.bytes);
    return b;
}

struct blob *blob_alias(struct span s, void *owner, void (*release)(void *owner))
{
    struct blob *b = make(0);

    if (!b)
        return NULL;
    b->bytes = s.bytes;
    b->at = s.at;
    b->owner = owner;
    b->release = release;
    return b;
}

void blob_unref(struct blob *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (b->release)
        b->release(b->owner);
    mem_free(b);
}
