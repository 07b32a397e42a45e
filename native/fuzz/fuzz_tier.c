/* A value as it lies in Redis, where anybody with its password may have put it. The first
 * four bytes are what the server says is left of its time. */
#include <stdlib.h>

#include "core/tier.h"
#include "core/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    struct reader r = reader_of(span_of(in, bytes));
    uint64_t left_ms = take_u32(&r);
    struct span value = take_span(&r, reader_left(&r));
    uint8_t again[TIER_HEAD_BYTES];
    struct loaded out, same;

    if (!tier_read(value, left_ms, &out))
        return 0;
    /* Never for longer than the server has it, unless it is for ever. */
    if (value.bytes < TIER_HEAD_BYTES || left_ms == 0 || out.value_type >= VALUE_TYPE_COUNT ||
        (out.ttl_ms != UINT32_MAX && out.ttl_ms > left_ms && out.ttl_ms > TIER_EVER_MS))
        abort();
    if (out.ttl_ms == 0 || out.blob || out.key.bytes)
        abort();
    tier_write(&out, again);
    if (!tier_read(span_of(again, sizeof again), UINT64_MAX, &same) || same.ttl_ms != out.ttl_ms ||
        same.age_ms != out.age_ms || same.stale_ms != out.stale_ms)
        abort();
    return 0;
}
