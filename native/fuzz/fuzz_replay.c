/* Replay windows under a sequence of frames and clock steps, four bytes each, against the
 * one promise that matters: whatever happens to the clock and the sessions, a frame that was
 * accepted once is not accepted again. */
#include <stdlib.h>

#include "core/replay.h"

#define START UINT64_C(1700000000000)
#define SENDERS 32u
#define COUNTERS 4096u
#define STEP_MS 7000u

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    static const uint8_t hash_key[16] = {1};
    /* When each (sender, counter) was sent, once accepted: a frame's time is part of it. */
    static uint64_t accepted[SENDERS][COUNTERS];
    struct replay *r = replay_new(hash_key);
    uint64_t wall_ms = START;
    size_t most = 0;

    if (!r)
        abort();
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        /* The clock: forward in steps, and sometimes back. */
        uint8_t clock = in[i];
        if (clock < 0x10)
            wall_ms += (uint64_t)clock * STEP_MS;
        else if (clock < 0x18 && wall_ms > START)
            wall_ms -= min_u64(wall_ms - START, (uint64_t)(clock - 0x10) * 5 * STEP_MS);
        uint32_t sender = in[i + 1] % SENDERS;
        uint32_t counter = (uint32_t)(in[i + 2] << 8 | in[i + 3]) % COUNTERS;
        struct frame f = {.sender_id = 1 + sender, .counter = counter};

        /* A replay comes with the time it was sent at; a fresh frame is sent now. A sender
         * never uses a counter for two frames. */
        f.sent_ms = accepted[sender][counter] ? accepted[sender][counter] : wall_ms;
        if (!frame_is_timely(&f, wall_ms))
            continue;
        enum verdict v = replay_check(r, &f, wall_ms);
        if (v != VERDICT_OK && v != VERDICT_REPLAY && v != VERDICT_FULL)
            abort();
        if (v == VERDICT_OK) {
            if (accepted[sender][counter])
                abort();
            accepted[sender][counter] = f.sent_ms;
        }
        most = replay_count(r) > most ? replay_count(r) : most;
    }
    if (most > SESSIONS_MAX || most > SENDERS)
        abort();
    for (size_t i = 0; i + 4 <= bytes; i += 4)      /* cheaper than all of it */
        accepted[in[i + 1] % SENDERS][(uint32_t)(in[i + 2] << 8 | in[i + 3]) % COUNTERS] = 0;
    replay_free(r);
    return 0;
}
