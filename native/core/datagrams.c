/* One UDP socket's frames (see datagrams.h). */
#include "datagrams.h"

#include "err.h"
#include "mem.h"
#include "message.h"
#include "wire.h"

#define LENGTH_BYTES 2u

int datagrams_init(struct datagrams *d, const struct seal *seal, uint64_t self_id,
                   const uint8_t random[FRAME_RANDOM_BYTES], const uint8_t hash_key[16])
{
    assert(self_id != 0);
    memset(d, 0, sizeof *d);
    d->seal = seal;
    d->self_id = self_id;
    memcpy(d->random_self, random, sizeof d->random_self);
    d->session_out = seal_session_new(seal);
    d->session_in = seal_session_new(seal);
    d->replay = replay_new(hash_key);
    if (d->session_out && d->session_in && d->replay)
        return 0;
    datagrams_deinit(d);
    return ERR_NOMEM;
}

void datagrams_deinit(struct datagrams *d)
{
    seal_session_free(d->session_out);
    seal_session_free(d->session_in);
    replay_free(d->replay);
    memset(d, 0, sizeof *d);
}

size_t datagrams_payload_max(const struct datagrams *d)
{
    return PACKET_BYTES_MAX - FRAME_FIXED_BYTES - LENGTH_BYTES - seal_tag_bytes(d->seal->mode);
}

int datagrams_seal(struct datagrams *d, uint64_t receiver_id, struct span payload, size_t pad_to,
                   uint64_t wall_ms, uint8_t out[PACKET_BYTES_MAX])
{
    size_t tag = seal_tag_bytes(d->seal->mode);

    if (payload.bytes > datagrams_payload_max(d) || pad_to > PACKET_BYTES_MAX)
        return ERR_TOO_BIG;
    if (d->counter_out == UINT64_MAX)
        return ERR_FULL;
    size_t used = FRAME_FIXED_BYTES + LENGTH_BYTES + payload.bytes;
    size_t bytes = pad_to > used + tag ? pad_to : used + tag;

    struct frame f = {
        .version = FRAME_VERSION,
        .mode = (uint8_t)d->seal->mode,
        .kind = MESSAGE_GOSSIP,
        .key_id = d->seal->keys[0].id,
        .head_bytes = (uint16_t)bytes,
        .sender_id = d->self_id,
        .receiver_id = receiver_id,
        .counter = ++d->counter_out,
        .sent_ms = wall_ms,
    };
    memcpy(f.label, d->seal->label, sizeof f.label);
    memcpy(f.random, d->random_self, sizeof f.random);
    frame_encode(&f, out);

    struct writer w = writer_of(out + FRAME_FIXED_BYTES, bytes - FRAME_FIXED_BYTES - tag);
    put_u16(&w, (uint16_t)payload.bytes);
    put_span(&w, payload);
    memset(w.at, 0, writer_room(&w));

    int rc = seal_head(d->session_out, &f, out, SPAN_NONE);
    return rc < 0 ? rc : (int)bytes;
}

static bool all_zero(const struct reader *r)
{
    for (const uint8_t *at = r->at; at < r->end; at++) {
        if (*at)
            return false;
    }
    return true;
}

enum verdict datagrams_open(struct datagrams *d, uint8_t *in, size_t bytes, uint64_t wall_ms,
                            struct frame *f, struct span *payload)
{
    size_t tag = seal_tag_bytes(d->seal->mode);

    enum verdict v = frame_decode(span_of(in, bytes), f);
    if (v == VERDICT_OK)
        v = frame_check_cluster(f, d->seal->mode, d->seal->label);
    if (v == VERDICT_MORE)
        v = VERDICT_GARBAGE;    /* no more of it will come */
    if (v != VERDICT_OK)
        return v;
    if (f->head_bytes != bytes || f->value_bytes != 0 || bytes > PACKET_BYTES_MAX ||
        bytes < FRAME_FIXED_BYTES + tag)
        return VERDICT_BOUND;
    v = seal_open_head(d->session_in, f, in, SPAN_NONE);
    if (v != VERDICT_OK)
        return v;
    if (f->sender_id == 0 || f->sender_id == d->self_id)
        return VERDICT_SENDER;
    if (f->receiver_id != 0 && f->receiver_id != d->self_id)
        return VERDICT_RECEIVER;
    if (!frame_is_timely(f, wall_ms))
        return VERDICT_CLOCK;
    v = replay_check(d->replay, f, wall_ms);
    if (v != VERDICT_OK)
        return v;

    struct reader r = reader_of(span_of(in + FRAME_FIXED_BYTES, bytes - FRAME_FIXED_BYTES - tag));
    *payload = take_span(&r, take_u16(&r));
    if (r.failed || f->kind != MESSAGE_GOSSIP ||
        (f->version <= FRAME_VERSION && !all_zero(&r)))
        return VERDICT_FIELDS;
    return VERDICT_OK;
}
