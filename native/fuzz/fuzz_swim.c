/* A member under payloads, table pages and events that a holder of the secret may send or
 * cause: nothing is asserted, time goes on, and what it knows stays within bounds. */
#include <stdlib.h>

#include "core/limits.h"
#include "core/swim.h"

#define WALL_MS UINT64_C(1700000000000)

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

static struct addr addr_of(unsigned i)
{
    struct addr a;
    addr_parse("10.0.0.1:7946", &a);
    a.ip[15] = (uint8_t)(1 + i % 4);
    return a;
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    struct swim_config config = {
        .self = addr_of(0), .node_id = 1, .started_ms = WALL_MS, .flags = SWIM_COORDINATE,
        .speaks_min = 1, .speaks_max = 1, .payload_bytes_max = 1286, .seed = 7,
    };
    struct reader r = reader_of(span_of(in, bytes));
    struct swim_out out;
    struct swim *s;
    uint64_t now_ms = 1000000;

    swim_params_default(&config.params);
    if (swim_new(&s, &config, now_ms) != 0)
        abort();
    swim_out_init(&out);
    while (!r.failed && reader_left(&r)) {
        uint8_t what = take_u8(&r), who = take_u8(&r);
        struct addr addr = addr_of(who);
        uint64_t id = who / 4 % 8;
        struct span payload = SPAN_NONE;
        struct swim_from from = {.source = addr, .node_id = id, .open_receiver = who & 0x80};

        if (what % 8 < 4)
            payload = take_span(&r, min_size(take_u16(&r) % 1400, reader_left(&r)));
        switch (what % 8) {
        case 0: case 1: case 2:
            swim_receive(s, now_ms, WALL_MS + now_ms, &from, payload, &out);
            break;
        case 3:
            swim_page_merge(s, now_ms, WALL_MS + now_ms, id, payload, &out);
            break;
        case 4:
            now_ms += (uint64_t)who * 20;
            swim_tick(s, now_ms, WALL_MS + now_ms, &out);
            break;
        case 5:
            swim_proven(s, now_ms, WALL_MS + now_ms, &addr, id, what & 0x80, &out);
            break;
        case 6:
            if (what == 0xfe)
                swim_leave(s, now_ms, &out);
            else
                swim_pulled(s, now_ms, what & 0x80, &out);
            break;
        default:
            swim_hint_silent(s, now_ms, &addr);
            swim_set_flags(s, now_ms, SWIM_DRAINING, who & SWIM_DRAINING, &out);
        }
        if (swim_phase(s) != SWIM_PHASE_GONE && swim_due_ms(s) == NEVER_MS)
            abort();
        /* What it would send is within its bounds. */
        for (size_t i = 0; i < out.count; i++) {
            if (out.effects[i].kind == SWIM_SEND &&
                swim_payload(&out, &out.effects[i]).bytes > config.payload_bytes_max)
                abort();
        }
        swim_out_reset(&out);
    }
    if (swim_live(s) > MEMBERS_MAX)
        abort();
    swim_out_deinit(&out);
    swim_free(s);
    return 0;
}
