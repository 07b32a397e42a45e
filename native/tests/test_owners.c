/* The contest as a node sees it (view), and what it remembers of it (owners). Rules O1, M1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/mem.h"
#include "core/owners.h"
#include "core/prng.h"

static struct view_member member(const struct rendezvous *r, unsigned i)
{
    struct view_member m = {.node_id = i + 1};
    char text[32];

    snprintf(text, sizeof text, "10.0.%u.%u:7946", i / 250, i % 250 + 1);
    assert_true(addr_parse(text, &m.addr));
    m.hash = rendezvous_member(r, &m.addr);
    return m;
}

/* O1: whatever the order in which they came. */
static void equal_scores_go_to_the_lower_address(void **state)
{
    struct rendezvous r;
    struct prng prng;

    (void)state;
    rendezvous_init(&r, span_text("default"));
    prng_seed(&prng, 3);
    for (unsigned round = 0; round < 200; round++) {
        struct view *v = view_new(6);
        unsigned out[RANKS_MAX];

        assert_non_null(v);
        for (v->count = 0; v->count < 6; v->count++) {
            v->members[v->count] = member(&r, 40 + v->count * 3);
            v->members[v->count].hash = 99;
        }
        for (unsigned i = 6; i-- > 1;) {
            unsigned j = (unsigned)prng_below(&prng, i + 1);
            struct view_member t = v->members[i];
            v->members[i] = v->members[j];
            v->members[j] = t;
        }
        view_finish(v);
        assert_int_equal(view_rank(v, 12345, RANKS_MAX, out), RANKS_MAX);
        for (unsigned i = 0; i < RANKS_MAX; i++) {
            assert_int_equal(out[i], i);
            assert_int_equal(v->members[i].node_id, 40 + i * 3 + 1);
        }
        mem_free(v);
    }
}

static struct view *random_view(const struct rendezvous *r, struct prng *prng)
{
    unsigned room = 1 + (unsigned)prng_below(prng, 60);
    struct view *v = view_new(room);

    assert_non_null(v);
    for (; v->count < room; v->count++) {
        struct view_member *m = &v->members[v->count];
        *m = member(r, (unsigned)prng_below(prng, 8) + v->count * 8);
        m->warming = prng_below(prng, 4) == 0;
        m->draining = prng_below(prng, 4) == 0;
        m->observer = prng_below(prng, 8) == 0;
    }
    view_finish(v);
    return v;
}

/* By the definition, with nothing clever: the best contender that is not among `before`;
 * `leavers`: who departs counts as one. */
static int best_but(const struct view *v, uint64_t channel_hash, const unsigned *before,
                    unsigned count, bool leavers)
{
    int best = -1;

    for (unsigned i = 0; i < v->count; i++) {
        bool taken = !v->members[i].contends && !(leavers && v->members[i].departs);
        for (unsigned j = 0; j < count; j++)
            taken = taken || before[j] == i;
        if (!taken && (best < 0 || rendezvous_score(channel_hash, v->members[i].hash) >
                                       rendezvous_score(channel_hash, v->members[best].hash)))
            best = (int)i;
    }
    return best;
}

static bool check_departing(const struct view *v, uint64_t channel_hash)
{
    int best = best_but(v, channel_hash, NULL, 0, true);
    bool departs = best >= 0 && v->members[best].departs;
    assert_int_equal(view_departing(v, channel_hash), departs ? best : -1);
    return departs;
}

/* Asked once, again, and after others took the place: always what the members say. More
 * channels than there is room for share a set, and they come back when the members changed. */
static void what_is_remembered_is_what_a_look_at_all_members_gives(void **state)
{
    struct owners *o = calloc(1, sizeof *o);
    struct rendezvous r;
    struct prng prng;
    unsigned remembered = 0;

    (void)state;
    assert_non_null(o);
    rendezvous_init(&r, span_text("default"));
    prng_seed(&prng, 21);
    for (unsigned round = 0; round < 300; round++) {
        struct view *v = random_view(&r, &prng);
        uint64_t channels[40];

        owners_forget(o);
        for (unsigned i = 0; i < ARRAY_COUNT(channels); i++)
            channels[i] = prng_below(&prng, 4) + OWNERS_SETS * prng_below(&prng, 6);
        for (unsigned ask = 0; ask < 200; ask++) {
            uint64_t h = channels[prng_below(&prng, ARRAY_COUNT(channels))];
            unsigned want = (unsigned)prng_below(&prng, RANKS_MAX + 1), out[RANKS_MAX];
            for (unsigned i = 0; i < OWNERS_WAYS; i++) {
                const struct owners_place *p = &o->sets[h % OWNERS_SETS][i];
                remembered += p->found && p->channel_hash == h;
            }
            unsigned found = owners_rank(o, v, h, want, out);
            assert_int_equal(found, want < v->contenders ? want : v->contenders);
            for (unsigned i = 0; i < found; i++)
                assert_int_equal(out[i], best_but(v, h, out, i, false));
            check_departing(v, h);
        }
        mem_free(v);
    }
    assert_true(remembered > 10000);    /* and the memory was of use */
    free(o);
}

/* What is known of 24 addresses by hand: who contends there, and since when; who contended there
 * until it warmed again, or drained. */
#define PLACES 24u
struct known {
    uint64_t node_id, since_ms, departed;
};

/* Some come, some go, some are replaced on their address by another node, warm again, or drain. */
static struct view *next_view(const struct rendezvous *r, struct prng *prng, uint64_t ids[PLACES])
{
    struct view *v = view_new(PLACES);

    assert_non_null(v);
    for (unsigned i = 0; i < PLACES; i++) {
        if (prng_below(prng, 6) == 0)
            ids[i] = prng_below(prng, 3) ? prng_next(prng) | 1 : 0;
        if (ids[i] == 0)
            continue;
        struct view_member *m = &v->members[v->count++];
        *m = member(r, i);
        m->node_id = ids[i];
        m->started_ms = ids[i] % 4;
        m->warming = ids[i] % 5 == 0 && prng_below(prng, 2);
        m->draining = ids[i] % 7 == 0 && prng_below(prng, 4) == 0;
    }
    view_finish(v);
    return v;
}

/* The same members, another view. */
static struct view *same_again(const struct view *before)
{
    struct view *v = view_new(PLACES);

    assert_non_null(v);
    v->count = before->count;
    memcpy(v->members, before->members, v->count * sizeof v->members[0]);
    view_finish(v);
    return v;
}

/* Fills in who contends now. True: the same as before. */
static bool follow_by_hand(const struct view *v, struct known known[PLACES],
                           const struct rendezvous *r, uint64_t now_ms)
{
    bool same = true;

    for (unsigned i = 0; i < PLACES; i++) {
        struct view_member at = member(r, i);
        int found = view_find(v, &at.addr);
        const struct view_member *m = found >= 0 ? &v->members[found] : NULL;
        uint64_t id = m && m->contends ? m->node_id : 0, was = known[i].node_id;
        if (m && !id) {
            bool departs = m->node_id == was || m->node_id == known[i].departed || m->draining;
            assert_int_equal(m->departs, departs);
        }
        if (m && !id && m->node_id == was)
            known[i].departed = was;
        else if (!m || id || m->node_id != known[i].departed)
            known[i].departed = m && !id && m->draining ? m->node_id : 0;
        if (id != was) {
            known[i].node_id = id;
            known[i].since_ms = now_ms;
            same = false;
        }
        if (id)
            assert_int_equal(m->contends_ms, known[i].since_ms);
    }
    return same;
}

static int former_by_hand(const struct view *v, uint64_t channel_hash,
                          const struct view_member *than)
{
    unsigned later[PLACES], count = 0;

    for (unsigned i = 0; i < v->count; i++) {
        const struct view_member *m = &v->members[i];
        bool before = m->contends_ms < than->contends_ms ||
                      (m->contends_ms == than->contends_ms && m->started_ms < than->started_ms);
        if (m->contends && !before)
            later[count++] = i;
    }
    return best_but(v, channel_hash, later, count, false);
}

static void a_view_knows_who_contended_and_since_when(void **state)
{
    struct rendezvous r;
    struct prng prng;
    unsigned unchanged = 0, formers = 0, departing = 0;

    (void)state;
    rendezvous_init(&r, span_text("default"));
    prng_seed(&prng, 5);
    for (unsigned run = 0; run < 20; run++) {
        struct known known[PLACES] = {{0}};
        uint64_t ids[PLACES] = {0}, now_ms = 1000, changed_ms = 0;
        struct view *before = NULL;
        for (unsigned step = 0; step < 60; step++) {
            struct view *v = step % 5 == 4 ? same_again(before) : next_view(&r, &prng, ids);
            now_ms += 1 + prng_below(&prng, 3);
            bool same = view_follow(v, before, now_ms);
            assert_int_equal(same, follow_by_hand(v, known, &r, now_ms) && before);
            changed_ms = same ? changed_ms : now_ms;
            assert_int_equal(v->changed_ms, changed_ms);
            for (unsigned ask = 0; ask < 20 && v->contenders; ask++) {
                uint64_t channel_hash = prng_next(&prng);
                unsigned any = v->places[prng_below(&prng, v->contenders)];
                int former = view_former(v, channel_hash, &v->members[any]);
                assert_int_equal(former, former_by_hand(v, channel_hash, &v->members[any]));
                formers += former >= 0;
                departing += check_departing(v, channel_hash);
            }
            unchanged += same;
            mem_free(before);
            before = v;
        }
        mem_free(before);
    }
    assert_true(unchanged > 100 && formers > 5000 && departing > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_scores_go_to_the_lower_address),
        cmocka_unit_test(a_view_knows_who_contended_and_since_when),
        cmocka_unit_test(what_is_remembered_is_what_a_look_at_all_members_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
