/* Who owns a channel, among 2, 24 and 1000 members: the name's hash, then one pass over the
 * members for owner and heir, as a question for a channel never heard of takes it. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/view.h"

#define CHANNELS 200000u

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static struct view *members(const struct rendezvous *r, unsigned count)
{
    struct view *v = calloc(1, sizeof *v + count * sizeof v->members[0]);

    assert(v);
    v->phase = PHASE_READY;
    v->count = count;
    v->self = -1;
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

int main(void)
{
    static const unsigned counts[] = {2, 24, 1000};
    struct rendezvous r;
    unsigned sum = 0;

    rendezvous_init(&r, span_text("bench"));
    for (unsigned n = 0; n < ARRAY_COUNT(counts); n++) {
        struct view *v = members(&r, counts[n]);
        unsigned rounds = counts[n] > 100 ? CHANNELS / 10 : CHANNELS;
        double best = 1e18;
        for (unsigned again = 0; again < 5; again++) {
            double began = now_ns();
            for (unsigned i = 0; i < rounds; i++) {
                char channel[24];
                unsigned at[RANKS_MAX];
                int bytes = snprintf(channel, sizeof channel, "channel-%u", i);
                sum += view_rank(v, rendezvous_channel(&r, span_of(channel, (size_t)bytes)), 2, at);
                sum += at[0];
            }
            double each = (now_ns() - began) / rounds;
            best = each < best ? each : best;
        }
        printf("owner and heir among %4u members      %8.0f ns\n", counts[n], best);
        free(v);
    }
    return sum == 0;    /* so that it is computed */
}
