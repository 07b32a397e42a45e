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
    if (value.bytes < TIER_HEAD_BYTES || left_ms == 0 || out.value_type >= VALUE_TYPE_COUNT)
        abort();
    /* Never for longer than it was written with; nor than the server has it, unless it lives
     * longer than the server keeps anything. */
    struct reader head = reader_of(span_of(value.at + 4, 4));
    uint32_t ttl_ms = take_u32(&head);
    if (out.ttl_ms > ttl_ms || (ttl_ms <= TIER_EVER_MS && out.ttl_ms > left_ms))
        abort();
    if (out.ttl_ms == 0 || out.blob || out.key.bytes)
        abort();
    tier_write(&out, again);
    if (!tier_read(span_of(again, sizeof again), UINT64_MAX, &same) || same.ttl_ms != out.ttl_ms ||
        same.age_ms != out.age_ms || same.stale_ms != out.stale_ms)
        abort();
    return 0;
}
