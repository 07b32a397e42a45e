/* The head's fixed part (see frame.h for its drawing). */
#include "frame.h"

#include "wire.h"

static const uint8_t magic[2] = {'P', 'G'};

const char *verdict_text(enum verdict v)
{
    switch (v) {
#define X(name, text)                                                            \
    case VERDICT_##name:                                                         \
        return text;
        FRAME_VERDICTS(X)
#undef X
    case VERDICT_COUNT:
        break;
    }
    return "unknown verdict";
}

void frame_encode(const struct frame *f, uint8_t out[FRAME_FIXED_BYTES])
{
    struct writer w = writer_of(out, FRAME_FIXED_BYTES);

    put_span(&w, span_of(magic, sizeof magic));
    put_u8(&w, f->version);
    put_u8(&w, f->mode);
    put_u8(&w, f->kind);
    put_u8(&w, f->key_id);
    put_u16(&w, f->head_bytes);
    put_u32(&w, f->value_bytes);
    put_u32(&w, 0);
    put_span(&w, span_of(f->label, sizeof f->label));
    put_u64(&w, f->sender_id);
    put_u64(&w, f->receiver_id);
    put_span(&w, span_of(f->random, sizeof f->random));
    put_u64(&w, f->counter);
    put_u64(&w, f->sent_ms);
    put_u64(&w, f->request_id);
    assert(!w.failed && w.at == w.end);
}

enum verdict frame_decode(struct span in, struct frame *out)
{
    struct reader r = reader_of(in);
    uint8_t start[sizeof magic];

    if (in.bytes < FRAME_FIXED_BYTES)
        return VERDICT_MORE;
    take_copy(&r, start, sizeof start);
    out->version = take_u8(&r);
    out->mode = take_u8(&r);
    out->kind = take_u8(&r);
    out->key_id = take_u8(&r);
    out->head_bytes = take_u16(&r);
    out->value_bytes = take_u32(&r);
    uint32_t reserved = take_u32(&r);
    take_copy(&r, out->label, sizeof out->label);
    out->sender_id = take_u64(&r);
    out->receiver_id = take_u64(&r);
    take_copy(&r, out->random, sizeof out->random);
    out->counter = take_u64(&r);
    out->sent_ms = take_u64(&r);
    out->request_id = take_u64(&r);

    if (memcmp(start, magic, sizeof magic) != 0)
        return VERDICT_GARBAGE;
    if (out->version < FRAME_VERSION_MIN)
        return VERDICT_VERSION;
    if (out->mode > FRAME_AEAD || (reserved != 0 && out->version <= FRAME_VERSION))
        return VERDICT_GARBAGE;
    if (out->head_bytes < FRAME_FIXED_BYTES + FRAME_TAG_BYTES_MIN ||
        out->head_bytes > HEAD_BYTES_MAX ||
        out->value_bytes > FRAME_BYTES_MAX - out->head_bytes)
        return VERDICT_BOUND;
    return VERDICT_OK;
}

enum verdict frame_check_cluster(const struct frame *f, enum frame_mode mode,
                                 const uint8_t label[FRAME_LABEL_BYTES])
{
    /* The label first: of two clusters that differ in both, it says more. */
    if (memcmp(f->label, label, FRAME_LABEL_BYTES) != 0)
        return VERDICT_LABEL;
    return f->mode == mode ? VERDICT_OK : VERDICT_MODE;
}

bool frame_is_timely(const struct frame *f, uint64_t wall_ms)
{
    uint64_t off = f->sent_ms > wall_ms ? f->sent_ms - wall_ms : wall_ms - f->sent_ms;
    return off <= CLOCK_SKEW_MS_MAX;
}
