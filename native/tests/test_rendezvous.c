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
    uint64_t members[ARRAY_COUNT(vector_labels)][VECTOR_MEMBERS];
    struct rendezvous keys[ARRAY_COUNT(vector_labels)];

    (void)state;
    for (size_t l = 0; l < ARRAY_COUNT(vector_labels); l++) {
        rendezvous_init(&keys[l], span_text(vector_labels[l].label));
        assert_memory_equal(keys[l].key, vector_labels[l].key, 16);
        for (size_t m = 0; m < VECTOR_MEMBERS; m++) {
            struct addr a;
            assert_true(addr_parse(vector_members[m], &a));
            members[l][m] = rendezvous_member(&keys[l], &a);
            assert_int_equal(members[l][m], vector_labels[l].member_hash[m]);
        }
    }
    for (size_t i = 0; i < ARRAY_COUNT(vector_channels); i++) {
        const unsigned l = vector_channels[i].label, *rank = vector_channels[i].rank;
        unsigned out[VECTOR_MEMBERS];
        uint64_t h = rendezvous_channel(&keys[l], span_text(vector_channels[i].channel));

        assert_int_equal(h, vector_channels[i].channel_hash);
        assert_int_equal(rendezvous_score(h, members[l][rank[0]]),
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

static uint64_t member(const struct rendezvous *r, unsigned i)
{
    struct addr a;
    char text[32];

    snprintf(text, sizeof text, "10.0.%u.%u:%u", i >> 4, i & 15, 7946 + i % 16);
    assert_true(addr_parse(text, &a));
    return rendezvous_member(r, &a);
}

#define CHANNELS 20000u
#define NODES 20u

/* Who leaves gives up its own channels, to each one's heir; who comes takes about one in N,
 * and from each one the former owner becomes the heir. Nothing else moves. */
static void a_change_of_members_moves_only_what_it_must(void **state)
{
    struct rendezvous r;
    uint64_t all[NODES + 1], without[NODES];
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
        uint64_t owner = without[after[0]], heir = without[after[1]];
        if (before[0] == gone) {
            assert_int_equal(owner, all[before[1]]);
        } else {
            assert_int_equal(owner, all[before[0]]);
            if (before[1] != gone)
                assert_int_equal(heir, all[before[1]]);
        }
    }
    /* About one in N each: 952 on average, the standard deviation is 30. */
    for (unsigned i = 0; i <= NODES; i++) {
        assert_true(owned[i] > CHANNELS / (NODES + 1) - 160);
        assert_true(owned[i] < CHANNELS / (NODES + 1) + 160);
    }
}

static void ranks_are_those_of_a_full_sort(void **state)
{
    struct prng prng;

    (void)state;
    prng_seed(&prng, 8);
    for (unsigned round = 0; round < 3000; round++) {
        uint64_t hashes[100];
        unsigned count = (unsigned)prng_below(&prng, 101), out[8];
        unsigned want = (unsigned)prng_below(&prng, 9), different = round % 2 ? 30 : 1000000;
        bool taken[100] = {false};
        uint64_t h = prng_next(&prng);

        for (unsigned i = 0; i < count; i++)
            hashes[i] = prng_below(&prng, different);       /* of few ones, ties are frequent */
        unsigned have = rendezvous_rank(hashes, count, h, want, out);
        assert_int_equal(have, want < count ? want : count);
        for (unsigned r = 0; r < have; r++) {
            unsigned best = UINT32_MAX;
            for (unsigned i = 0; i < count; i++)
                if (!taken[i] && (best == UINT32_MAX ||
                                  rendezvous_score(h, hashes[i]) > rendezvous_score(h, hashes[best])))
                    best = i;   /* the first of equals */
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
        cmocka_unit_test(ranks_are_those_of_a_full_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
