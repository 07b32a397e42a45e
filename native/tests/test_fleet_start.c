/* A fleet that starts all at once. Every node ends its warming at a moment of its own and tells
 * the others at once (M1), so what they take each other for differs for a datagram's way only;
 * but the owner of a channel changes with each of them, faster than anything is handed on. Whoever
 * is ready is asked all the while. One seed is one run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/prng.h"
#include "sim/fleet.h"

#define KEYS 24u
#define READY_WITHIN_MS 300u
#define TOLD_WITHIN_MS 2u
#define STEP_MS 4u
#define ASKS_MAX 200u
#define SEEDS 100u

struct figures {
    unsigned keys, loads, failed, peeks;
};

/* When each node hears that another, or itself, is ready. */
struct hearing {
    uint64_t ms[FLEET_NODES_MAX][FLEET_NODES_MAX];
};

static uint32_t still_warming(const struct hearing *h, unsigned i, unsigned nodes, uint64_t now_ms)
{
    uint32_t warming = 0;

    for (unsigned j = 0; j < nodes; j++)
        warming |= (uint32_t)(h->ms[i][j] > now_ms) << j;
    return warming;
}

static void key_name(unsigned k, char name[8])
{
    snprintf(name, 8, "%u", k);
}

static void start(unsigned nodes, uint64_t seed, struct figures *sum)
{
    const struct fleet_config config = {
        .nodes = nodes, .latency_ms = 1, .load_ms = 50, .timeout_ms = 250,
        .load_timeout_ms = 10000, .heir = true, .seed = seed,
    };
    struct fleet *f = fleet_new(&config);
    const struct fleet_ask *asks[ASKS_MAX];
    uint32_t all = (UINT32_C(1) << nodes) - 1, known[FLEET_NODES_MAX];
    uint64_t begin_ms = fleet_now_ms(f) + 100;
    struct hearing h;
    struct prng prng;
    unsigned count = 0;
    char name[8];

    prng_seed(&prng, seed);
    for (unsigned j = 0; j < nodes; j++) {
        uint64_t ready_ms = begin_ms + prng_below(&prng, READY_WITHIN_MS + 1);
        for (unsigned i = 0; i < nodes; i++)
            h.ms[i][j] = ready_ms + (i == j ? 0 : prng_below(&prng, TOLD_WITHIN_MS + 1));
        fleet_view(f, j, UINT32_C(1) << j, all);        /* first it knows itself */
        fleet_view(f, j, all, known[j] = all);
    }
    while (fleet_now_ms(f) < begin_ms + 2 * READY_WITHIN_MS) {
        for (unsigned i = 0; i < nodes; i++) {
            uint32_t warming = still_warming(&h, i, nodes, fleet_now_ms(f));
            if (warming != known[i])
                fleet_view(f, i, all, known[i] = warming);
        }
        unsigned i = (unsigned)prng_below(&prng, nodes);
        if (!(known[i] >> i & 1) && count < ASKS_MAX) {
            key_name((unsigned)prng_below(&prng, KEYS), name);
            asks[count++] = fleet_ask(f, i, name, FLEET_REGISTERED, 60000, 0);
        }
        fleet_run(f, STEP_MS);
    }
    fleet_run(f, 1000);
    for (unsigned i = 0; i < count; i++)
        sum->failed += !asks[i]->done || asks[i]->outcome != OUTCOME_VALUE;
    for (unsigned k = 0; k < KEYS; k++) {
        key_name(k, name);
        sum->keys += fleet_loads(f, name) > 0;
        sum->loads += fleet_loads(f, name);
    }
    for (unsigned i = 0; i < nodes; i++)
        sum->peeks += (unsigned)fleet_stats(f, i)->peeks_asked;
    fleet_free(f);
}

/* O3, M1. Two that are ready within a datagram's way of each other may both load. */
static void test_a_start_of_all_at_once_fetches_nothing_twice(void **state)
{
    static const unsigned sizes[] = {2, 3, 6, 12};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct figures sum = {0};
        for (uint64_t seed = 1; seed <= SEEDS; seed++)
            start(sizes[i], seed, &sum);
        print_message("%2u nodes: %u keys, %u loads, %u peeks\n", sizes[i], sum.keys, sum.loads,
                      sum.peeks);
        assert_int_equal(sum.failed, 0);
        assert_true(sum.keys > SEEDS * KEYS / 2);
        assert_true(sum.loads - sum.keys <= sum.keys / 500);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_start_of_all_at_once_fetches_nothing_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
