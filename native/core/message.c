/* The fields of a head (see message.h for their layout). */
#include "message.h"

#include "err.h"

#define FIXED_BYTES 36u         /* up to the delete id */

const char *message_kind_text(uint8_t kind)
{
    switch (kind) {
#define X(name, number)                                                          \
    case number:                                                                 \
        return #name;
        MESSAGE_KINDS(X)
#undef X
    }
    return "unknown";
}

int message_encode(const struct message *m, bool with_digest, struct writer *w)
{
    if (m->key.bytes > KEY_BYTES_MAX || m->channel.bytes > CHANNEL_BYTES_MAX ||
        m->loader.bytes > LOADER_BYTES_MAX || m->chain_count > CHAIN_MAX)
        return ERR_TOO_BIG;

    /* A writer of a known length asks for room once, when it is compiled. */
    uint8_t *fixed = wire_put(w, FIXED_BYTES);
    if (!fixed)
        return ERR_TOO_BIG;
    struct writer f = writer_of(fixed, FIXED_BYTES);
    put_u8(&f, m->flags);
    put_u8(&f, m->value_type);
    put_u8(&f, m->chain_count);
    put_u8(&f, (uint8_t)m->channel.bytes);
    put_u8(&f, (uint8_t)m->loader.bytes);
    put_u8(&f, 0);
    put_u16(&f, (uint16_t)m->key.bytes);
    put_u32(&f, m->budget_ms);
    put_u32(&f, m->load_timeout_ms);
    put_u32(&f, m->ttl_ms);
    put_u32(&f, m->stale_ms);
    put_u32(&f, m->age_ms);
    put_u64(&f, m->delete_id);
    assert(!f.failed && f.at == f.end);
    for (unsigned i = 0; i < m->chain_count; i++)
        put_u64(w, m->chain[i]);
    put_span(w, m->key);
    put_span(w, m->channel);
    put_span(w, m->loader);
    if (with_digest)
        put_span(w, span_of(m->digest, sizeof m->digest));
    return w->failed ? ERR_TOO_BIG : 0;
}

bool message_decode(struct span fields, bool newer, bool with_digest, struct message *out)
{
    struct reader r = reader_of(fields);
    const uint8_t *fixed = wire_take(&r, FIXED_BYTES);

    if (!fixed)
        return false;
    struct reader f = reader_of(span_of(fixed, FIXED_BYTES));
    out->flags = take_u8(&f);
    out->value_type = take_u8(&f);
    out->chain_count = take_u8(&f);
    size_t channel_bytes = take_u8(&f);
    size_t loader_bytes = take_u8(&f);
    uint8_t reserved = take_u8(&f);
    size_t key_bytes = take_u16(&f);
    out->budget_ms = take_u32(&f);
    out->load_timeout_ms = take_u32(&f);
    out->ttl_ms = take_u32(&f);
    out->stale_ms = take_u32(&f);
    out->age_ms = take_u32(&f);
    out->delete_id = take_u64(&f);
    if (out->chain_count > CHAIN_MAX || key_bytes > KEY_BYTES_MAX ||
        out->value_type >= VALUE_TYPE_COUNT)
        return false;
    for (unsigned i = 0; i < out->chain_count; i++)
        out->chain[i] = take_u64(&r);
    out->key = take_span(&r, key_bytes);
    out->channel = take_span(&r, channel_bytes);
    out->loader = take_span(&r, loader_bytes);
    if (with_digest)
        take_copy(&r, out->digest, sizeof out->digest);

    if (newer) {
        out->flags &= MESSAGE_FLAGS_KNOWN;
        return !r.failed;
    }
    return reserved == 0 && (out->flags & ~MESSAGE_FLAGS_KNOWN) == 0 && take_done(&r);
}
