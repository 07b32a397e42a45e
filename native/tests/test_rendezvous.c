/* Ownership: the fixed formula of rule O1, and what rendezvous hashing promises. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/prng.h"
#include "core/rendezvous.h"
#include "tests/rendezvous_vectors.h"

static void the_score_is_pinned_by_vectors(void **state)
{
    struct rendezvous_candidate members[ARRAY_COUNT(vector_labels)][VECTOR_MEMBERS];
    struct rendezvous keys[ARRAY_COUNT(vector_labels)];

    (void)state;
    for (size_t l = 0; l < ARRAY_COUNT(vector_labels); l++) {
        rendezvous_init(&keys[l], span_text(vector_labels[l].label));
        assert_memory_equal(keys[l].key, vector_labels[l].key, 16);
        for (size_t m = 0; m < VECTOR_MEMBERS; m++) {
            struct rendezvous_candidate *c = &members[l][m];
            assert_true(addr_parse(vector_members[m], &c->addr));
            c->member_hash = rendezvous_member(&keys[l], &c->addr);
            assert_int_equal(c->member_hash, vector_labels[l].member_hash[m]);
        }
    }
    for (size_t i = 0; i < ARRAY_COUNT(vector_channels); i++) {
        const unsigned l = vector_channels[i].label, *rank = vector_channels[i].rank;
        unsigned out[VECTOR_MEMBERS];
        uint64_t h = rendezvous_channel(&keys[l], span_text(vector_channels[i].channel));

        assert_int_equal(h, vector_channels[i].channel_hash);
        assert_int_equal(rendezvous_score(h, members[l][rank[0]].member_hash),
                         vector_channels[i].owner_score);
        for (unsigned want = 0; want <= VECTOR_MEMBERS; want++) {
            memset(out, 0xff, sizeof out);
            assert_int_equal(rendezvous_rank(members[l], VECTOR_MEMBERS, h, want, out), want);
            for (unsigned r = 0; r < VECTOR_MEMBERS; r++)   /* and nothing beyond is written */
                assert_int_equal(out[r], r < want ? rank[r] : UINT32_MAX);
        }
    }
}

static void a_mapped_address_is_its_ipv4_address(void **state)
{
    struct rendezvous r;
    struct addr plain, mapped;

    (void)state;
    rendezvous_init(&r, span_text("default"));
    assert_true(addr_parse("10.0.0.9:7946", &plain));
    assert_true(addr_parse("::ffff:10.0.0.9", &mapped));
    mapped.port = 7946;
    assert_int_equal(rendezvous_member(&r, &plain), rendezvous_member(&r, &mapped));
}

static struct rendezvous_candidate member(const struct rendezvous *r, unsigned i)
{
    struct rendezvous_candidate c = {0};

    c.addr.ip[10] = c.addr.ip[11] = 0xff;
    c.addr.ip[12] = 10;
    c.addr.ip[14] = (uint8_t)(i >> 4);
    c.addr.ip[15] = (uint8_t)(i & 15);
    c.addr.port = (uint16_t)(7946 + i % 16);
    c.member_hash = rendezvous_member(r, &c.addr);
    return c;
}

#define CHANNELS 20000u
#define NODES 20u

/* Who leaves gives up its own channels, to each one's heir; who comes takes about one in N,
 * and from each one the former owner becomes the heir. Nothing else moves. */
static void a_change_of_members_moves_only_what_it_must(void **state)
{
    struct rendezvous r;
    struct rendezvous_candidate all[NODES + 1], without[NODES];
    unsigned owned[NODES + 1] = {0};

    (void)state;
    rendezvous_init(&r, span_text("default"));
    for (unsigned i = 0; i <= NODES; i++)
        all[i] = member(&r, i);
    const unsigned gone = 7;
    memcpy(without, all, gone * sizeof *all);
    memcpy(without + gone, all + gone + 1, (NODES - gone) * sizeof *all);

    for (unsigned c = 0; c < CHANNELS; c++) {
        char name[32];
        unsigned before[2], after[2];

        snprintf(name, sizeof name, "channel-%u", c);
        uint64_t h = rendezvous_channel(&r, span_text(name));
        assert_int_equal(rendezvous_rank(all, NODES + 1, h, 2, before), 2);
        assert_int_equal(rendezvous_rank(without, NODES, h, 2, after), 2);
        owned[before[0]]++;
        const struct addr *owner = &without[after[0]].addr, *heir = &without[after[1]].addr;
        if (before[0] == gone) {
            assert_true(addr_equal(owner, &all[before[1]].addr));
        } else {
            assert_true(addr_equal(owner, &all[before[0]].addr));
            if (before[1] != gone)
                assert_true(addr_equal(heir, &all[before[1]].addr));
        }
    }
    /* About one in N each: 952 on average, the standard deviation is 30. */
    for (unsigned i = 0; i <= NODES; i++) {
        assert_true(owned[i] > CHANNELS / (NODES + 1) - 160);
        assert_true(owned[i] < CHANNELS / (NODES + 1) + 160);
    }
}

static int by_address(const void *a, const void *b)
{
    const struct rendezvous_candidate *x = a, *y = b;
    return addr_compare(&x->addr, &y->addr);
}

static void equal_scores_go_to_the_lower_address(void **state)
{
    struct rendezvous r;
    struct rendezvous_candidate c[6], sorted[6];
    struct prng prng;

    (void)state;
    rendezvous_init(&r, span_text("default"));
    prng_seed(&prng, 3);
    for (unsigned i = 0; i < 6; i++) {
        c[i] = member(&r, 40 + i * 3);
        c[i].member_hash = 99;
    }
    memcpy(sorted, c, sizeof c);
    qsort(sorted, 6, sizeof *sorted, by_address);
    for (unsigned round = 0; round < 200; round++) {
        unsigned out[6];
        for (unsigned i = 6; i-- > 1;) {
            unsigned j = (unsigned)prng_below(&prng, i + 1);
            struct rendezvous_candidate t = c[i];
            c[i] = c[j];
            c[j] = t;
        }
        unsigned want = 1 + (unsigned)prng_below(&prng, 6);
        assert_int_equal(rendezvous_rank(c, 6, 12345, want, out), want);
        for (unsigned i = 0; i < want; i++)
            assert_true(addr_equal(&c[out[i]].addr, &sorted[i].addr));
    }
}

static void ranks_are_those_of_a_full_sort(void **state)
{
    struct prng prng;

    (void)state;
    prng_seed(&prng, 8);
    for (unsigned round = 0; round < 3000; round++) {
        struct rendezvous_candidate c[40] = {0};
        unsigned count = (unsigned)prng_below(&prng, 41), out[8], want = (unsigned)prng_below(&prng, 9);
        bool taken[40] = {false};
        uint64_t h = prng_next(&prng);

        for (unsigned i = 0; i < count; i++) {
            c[i].addr.port = (uint16_t)(i + 1);
            c[i].member_hash = prng_below(&prng, 30);   /* ties are frequent */
        }
        unsigned have = rendezvous_rank(c, count, h, want, out);
        assert_int_equal(have, want < count ? want : count);
        for (unsigned r = 0; r < have; r++) {
            unsigned best = UINT32_MAX;
            for (unsigned i = 0; i < count; i++)
                if (!taken[i] && (best == UINT32_MAX ||
                                  rendezvous_score(h, c[i].member_hash) >
                                      rendezvous_score(h, c[best].member_hash)))
                    best = i;   /* ports rise: the first of equals is the lowest */
            taken[best] = true;
            assert_int_equal(out[r], best);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_score_is_pinned_by_vectors),
        cmocka_unit_test(a_mapped_address_is_its_ipv4_address),
        cmocka_unit_test(a_change_of_members_moves_only_what_it_must),
        cmocka_unit_test(equal_scores_go_to_the_lower_address),
        cmocka_unit_test(ranks_are_those_of_a_full_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
