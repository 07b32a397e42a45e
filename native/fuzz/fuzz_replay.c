/* Replay windows under a sequence of frames and clock steps, four bytes each, against the
 * one promise that matters: whatever happens to the clock and the sessions, a frame that was
 * accepted once is not accepted again.
 *   byte 0   0..0x0f forward in steps of 7 s, 0x10..0x17 back in steps of 35 s; odd: a
 *            bystander is heard long enough for the table to be looked through once
 *   byte 1   sender            bytes 2, 3   counter
 */
#include <stdlib.h>

#include "core/replay.h"

#define START UINT64_C(1700000000000)
#define SENDERS 8u
#define COUNTERS 4096u
#define STEP_MS 7000u
#define CHECKS_PER_ROUND 2048u
#define ROUNDS_MAX 4u

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

/* When each frame was sent, once accepted: its time is part of it. */
static uint64_t accepted[SENDERS][COUNTERS];

static uint64_t *accepted_ms(const uint8_t *event)
{
    return &accepted[event[1] % SENDERS][(unsigned)(event[2] << 8 | event[3]) % COUNTERS];
}

static uint64_t step_clock(uint8_t event, uint64_t wall_ms)
{
    if (event < 0x10)
        return wall_ms + (uint64_t)event * STEP_MS;
    if (event < 0x18)
        return wall_ms - min_u64(wall_ms - START, (uint64_t)(event - 0x10) * 5 * STEP_MS);
    return wall_ms;
}

static void hear_bystander(struct replay *r, uint64_t wall_ms)
{
    static uint64_t counter;
    struct frame f = {.sender_id = 1000, .sent_ms = wall_ms};

    for (unsigned i = 0; i < CHECKS_PER_ROUND; i++) {
        f.counter = ++counter;
        replay_check(r, &f, wall_ms);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    static const uint8_t hash_key[16] = {1};
    struct replay *r = replay_new(hash_key);
    uint64_t wall_ms = START;
    unsigned rounds = 0;

    if (!r)
        abort();
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        const uint8_t *event = in + i;
        uint64_t *before_ms = accepted_ms(event);

        wall_ms = step_clock(event[0], wall_ms);
        if (event[0] < 0x18 && event[0] & 1 && rounds++ < ROUNDS_MAX)
            hear_bystander(r, wall_ms);
        /* A replay comes with the time it was sent at; a fresh frame is sent now. A sender
         * never uses a counter for two frames. */
        struct frame f = {
            .sender_id = 1 + event[1] % SENDERS,
            .counter = (unsigned)(event[2] << 8 | event[3]) % COUNTERS,
            .sent_ms = *before_ms ? *before_ms : wall_ms,
        };
        if (!frame_is_timely(&f, wall_ms))
            continue;
        enum verdict v = replay_check(r, &f, wall_ms);
        if (v != VERDICT_OK && v != VERDICT_REPLAY && v != VERDICT_FULL)
            abort();
        if (v == VERDICT_OK && *before_ms)
            abort();
        if (v == VERDICT_OK)
            *before_ms = f.sent_ms;
        if (replay_count(r) > SENDERS + 1)
            abort();
    }
    for (size_t i = 0; i + 4 <= bytes; i += 4)
        *accepted_ms(in + i) = 0;
    replay_free(r);
    return 0;
}
