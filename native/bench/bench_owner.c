/* Who owns a channel, among 2, 24 and 1000 members: the hash of the name, then for a channel
 * never heard of one pass over the members for owner, heir and next, for one asked for before
 * a look at what is remembered. The names are made before the clock runs. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "core/mem.h"
#include "core/owners.h"

#define CHANNELS 64u        /* few enough that what is remembered of them all has room */
#define RUNS 1000u

struct names {
    uint8_t bytes[CHANNELS];
    char text[CHANNELS][24];
};

static struct view *members(const struct rendezvous *r, unsigned count)
{
    struct view *v = view_new(count);

    assert(v);
    v->phase = PHASE_READY;
    v->count = count;
    for (unsigned i = 0; i < count; i++) {
        char text[32];
        snprintf(text, sizeof text, "10.0.%u.%u:7946", i / 250, i % 250 + 1);
        bool parsed = addr_parse(text, &v->members[i].addr);
        assert(parsed);
        v->members[i].node_id = i + 1;
        v->members[i].hash = rendezvous_member(r, &v->members[i].addr);
    }
    view_finish(v);
    return v;
}

/* All the names once, in nanoseconds. */
static uint64_t look_up(const struct rendezvous *r, struct owners *o, const struct view *v,
                      const struct names *names, unsigned *sum)
{
    uint64_t began = now_ns();

    for (unsigned i = 0; i < CHANNELS; i++) {
        unsigned at[RANKS_MAX];
        struct span channel = span_of(names->text[i], names->bytes[i]);
        *sum += owners_rank(o, v, rendezvous_channel(r, channel), 2, at);
        *sum += at[0];
    }
    return now_ns() - began;
}

int main(void)
{
    static const unsigned counts[] = {2, 24, 1000};
    static struct owners owners;
    static struct names names;
    struct rendezvous r;
    unsigned sum = 0;

    rendezvous_init(&r, span_text("bench"));
    for (unsigned n = 0; n < ARRAY_COUNT(counts); n++) {
        struct view *v = members(&r, counts[n]);
        uint64_t fresh[RUNS], again[RUNS];
        for (unsigned run = 0; run < RUNS; run++) {
            for (unsigned i = 0; i < CHANNELS; i++)
                names.bytes[i] = (uint8_t)snprintf(names.text[i], sizeof names.text[i],
                                                   "channel-%u", run * CHANNELS + i);
            owners_forget(&owners);
            fresh[run] = look_up(&r, &owners, v, &names, &sum);
            again[run] = look_up(&r, &owners, v, &names, &sum);
        }
        qsort(fresh, RUNS, sizeof *fresh, ascending);
        qsort(again, RUNS, sizeof *again, ascending);
        printf("owner among %4u members  new %8.0f ns  remembered %6.0f ns  (medians)\n", counts[n],
               (double)fresh[RUNS / 2] / CHANNELS, (double)again[RUNS / 2] / CHANNELS);
        mem_free(v);
    }
    return sum == 0;    /* so that it is computed */
}
