/* The second tier's states and bytes (see tier.h). */
#include "tier.h"

#include "wire.h"

#define TIER_VERSION 1u

enum tier_step tier_begin(struct tier_ask *a, bool wants_lease, uint64_t until_ms)
{
    *a = (struct tier_ask){.wants_lease = wants_lease, .until_ms = until_ms, .due_ms = NEVER_MS,
                           .pause_ms = TIER_PAUSE_MS_MIN};
    return TIER_SEND;
}

enum tier_step tier_replied(struct tier_ask *a, enum tier_reply reply, uint64_t now_ms)
{
    switch (reply) {
    case TIER_VALUE:
        return TIER_LAND;
    case TIER_LEASED:
        a->leased = true;
        return TIER_GO;
    case TIER_HELD:
        if (now_ms >= a->until_ms)
            return TIER_GO;
        a->due_ms = min_u64(now_ms + a->pause_ms, a->until_ms);
        a->pause_ms = (uint32_t)min_u64(a->pause_ms + a->pause_ms / 2, TIER_PAUSE_MS_MAX);
        return TIER_WAIT;
    case TIER_NOTHING:
    case TIER_AWAY:
        break;
    }
    return TIER_GO;
}

enum tier_step tier_due(struct tier_ask *a, uint64_t now_ms)
{
    a->due_ms = NEVER_MS;
    return now_ms >= a->until_ms ? TIER_GO : TIER_SEND;
}

void tier_write(const struct loaded *item, uint8_t out[TIER_HEAD_BYTES])
{
    struct writer w = writer_of(out, TIER_HEAD_BYTES);

    put_u8(&w, TIER_VERSION);
    put_u8(&w, item->value_type);
    put_u16(&w, 0);
    put_u32(&w, item->ttl_ms);
    put_u32(&w, item->stale_ms);
    put_u32(&w, item->age_ms);
    assert(!w.failed && writer_room(&w) == 0);
}

bool tier_read(struct span in, uint64_t left_ms, struct loaded *out)
{
    struct reader r = reader_of(in);
    uint8_t version = take_u8(&r), value_type = take_u8(&r);
    uint16_t zero = take_u16(&r);
    uint32_t ttl_ms = take_u32(&r), stale_ms = take_u32(&r), age_ms = take_u32(&r);

    if (r.failed || version != TIER_VERSION || zero != 0 || value_type >= VALUE_TYPE_COUNT ||
        ttl_ms == 0 || left_ms == 0)
        return false;
    uint32_t kept_ms = tier_kept_ms(ttl_ms);
    uint32_t lain_ms = kept_ms - (uint32_t)min_u64(left_ms, kept_ms);
    memset(out, 0, sizeof *out);
    out->value_type = value_type;
    out->ttl_ms = ttl_ms == UINT32_MAX ? UINT32_MAX : ttl_ms - lain_ms;
    out->stale_ms = stale_ms;
    out->age_ms = (uint32_t)min_u64((uint64_t)age_ms + lain_ms, UINT32_MAX);
    return true;
}
