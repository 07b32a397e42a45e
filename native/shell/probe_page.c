/* A page of a member's table (see probe_page.h; the layout stands in core/swim_pull.c). */
#include "shell/probe_page.h"

#include "core/swim.h"
#include "core/swim_wire.h"

/* Digests of no member at all differ from every bucket that has one. */
void probe_request(uint8_t out[PROBE_REQUEST_BYTES])
{
    memset(out, 0, PROBE_REQUEST_BYTES);
    out[0] = SWIM_WIRE_VERSION;
}

static void fill(struct peerage_seen *out, const struct update *u)
{
    *out = (struct peerage_seen){
        .node_id = u->s.node_id,
        .started_ms = u->s.started_ms,
        .state = u->s.state,
        .coordinates = (u->s.flags & SWIM_COORDINATE) != 0,
        .warming = (u->s.flags & SWIM_WARMING) != 0,
        .draining = (u->s.flags & SWIM_DRAINING) != 0,
        .observer = (u->s.flags & SWIM_OBSERVER) != 0,
        .speaks_min = u->s.speaks_min,
        .speaks_max = u->s.speaks_max,
    };
    addr_format(&u->addr, out->address);
}

bool probe_page(struct span page, struct peerage_seen *out, int room, int *count)
{
    struct reader r = reader_of(page);
    struct update u;

    take_u8(&r);        /* the version: a higher one adds behind what is known */
    take_u64(&r);       /* which buckets are whole */
    while (!r.failed && update_take(&r, &u)) {
        if (*count < room)
            fill(&out[*count], &u);
        ++*count;
    }
    return !r.failed;
}
