/* Gossip payloads and table pages: what is read, written again, reads the same. */
#include <stdlib.h>

#include "core/swim_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes);

static void check_updates(struct span updates)
{
    struct reader r = reader_of(updates);
    struct update u, again;

    while (update_take(&r, &u)) {
        uint8_t out[UPDATE_BYTES_MAX + 1];
        struct writer w = writer_of(out, sizeof out);
        if (u.accuser_count > ACCUSERS_MAX || !update_put(&w, &u))
            abort();
        struct reader back = reader_of(span_of(out, writer_bytes(&w)));
        if (!update_take(&back, &again) || reader_left(&back) != 0)
            abort();
        if (!addr_equal(&u.addr, &again.addr) || u.s.node_id != again.s.node_id ||
            u.s.started_ms != again.s.started_ms || u.s.version != again.s.version ||
            u.s.state != again.s.state || u.age_s != again.age_s ||
            u.contested != again.contested)
            abort();
        if (u.s.state == SWIM_SUSPECT &&
            (u.accuser_count != again.accuser_count ||
             memcmp(u.accusers, again.accusers, u.accuser_count * sizeof u.accusers[0]) != 0))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t bytes)
{
    struct swim_message m, again;
    struct span payload = span_of(in, bytes);
    enum swim_verdict v = swim_message_take(payload, &m);

    if (v == SWIM_OK) {
        uint8_t out[256];
        struct writer w = writer_of(out, sizeof out);
        swim_message_put(&w, &m);
        if (w.failed || swim_message_take(span_of(out, writer_bytes(&w)), &again) != SWIM_OK ||
            again.kind != m.kind || again.sequence != m.sequence || again.digest != m.digest ||
            again.token != m.token || !addr_equal(&again.sender, &m.sender))
            abort();
    }
    if (v != SWIM_MALFORMED)
        check_updates(m.updates);
    check_updates(payload);     /* a page's updates, without its head */
    return 0;
}
