/* Kinds of bugs that hurt people elsewhere, each as a story in simulated time:
 * what happened to the others, and that it does not happen here. A story replays
 * from its seed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/check.h"
#include "sim/figures.h"
#include "core/swim_core.h"

static const uint32_t first = 0;

/* `count` nodes over `hosts`, all joined through the first, agreed and settled. */
static void set_up(struct sim *sim, uint64_t seed, uint32_t count, uint32_t hosts)
{
    sim_init(sim, seed, hosts + 1);
    for (uint32_t k = 0; k < count; k++)
        sim_add(sim, k % hosts, k / hosts);
    for (uint32_t k = 0; k < count; k++) {
        sim_start(sim, k, &first, 1);
        sim_run(sim, 50);
    }
    assert_true(sim_run_until_agreed(sim, 20000, NULL));
    sim_run(sim, 5000);
    assert_int_equal(sim->counts.false_deaths, 0);
}

static void must_agree(struct sim *sim, uint64_t most_ms)
{
    char why[200];
    if (sim_run_until_agreed(sim, most_ms, NULL))
        return;
    sim_disagreement(sim, why, sizeof why);
    fail_msg("%s", sim->failure[0] ? sim->failure : why);
}

static uint8_t state_at(const struct sim *sim, uint32_t node, uint32_t about)
{
    const struct member *m = swim_find(sim->nodes[node].swim, &sim->nodes[about].addr);
    return m ? m->state : 255;
}

/* A whole fleet is restarted at once; memberlist #311: a node stays dead for
 * some, because its stale alive meets a tombstone and nobody tells it. */
static void mass_restart(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct sim sim;
        set_up(&sim, seed, 32, 4);
        for (uint32_t k = 0; k < 32; k++)
            sim_crash(&sim, k);
        for (uint32_t k = 0; k < 32; k++) {
            sim_start(&sim, k, &first, 1);
            sim_run(&sim, prng_below(&sim.prng, 100));
        }
        must_agree(&sim, 15000);
        sim_deinit(&sim);
    }
}

/* The same, while some are still being declared dead and others come back late. */
static void rolling_restart(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct sim sim;
        set_up(&sim, seed, 24, 3);
        sim.net.loss = 0.05;
        for (uint32_t k = 0; k < 24; k++) {
            if (k % 2)
                sim_crash(&sim, k);
            else
                sim_leave(&sim, k);
            sim_run(&sim, prng_below(&sim.prng, 6000));
            sim_start(&sim, k, &first, 1);
            sim_run(&sim, prng_below(&sim.prng, 1000));
        }
        must_agree(&sim, 15000);
        assert_int_equal(sim.counts.false_deaths, 0);
        sim_deinit(&sim);
    }
}

/* Two nodes, each of which holds the other dead. memberlist #222: they forget
 * each other for good. foca #25: they tell each other so without end. */
static void mutual_dead(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sim sim;
        uint64_t sent = 0;
        set_up(&sim, seed, 2, 2);
        sim_cut(&sim, 0, 1);
        sim_cut(&sim, 1, 0);
        sim_run(&sim, 20000);
        assert_int_equal(state_at(&sim, 0, 1), SWIM_DEAD);
        assert_int_equal(state_at(&sim, 1, 0), SWIM_DEAD);
        sim_mend(&sim);
        must_agree(&sim, 15000);
        /* Each learned that it had been dead, and drops its store (D3). */
        assert_true(sim.nodes[0].self_dead);
        assert_true(sim.nodes[1].self_dead);
        for (size_t k = 0; k < ARRAY_COUNT(sim.counts.sent); k++)
            sent += sim.counts.sent[k];
        sim_run(&sim, 10000);
        for (size_t k = 0; k < ARRAY_COUNT(sim.counts.sent); k++)
            sent -= sim.counts.sent[k];
        assert_true(-sent <= 2 * 20 * 4);       /* ping and ack a period, no bouncing */
        sim_deinit(&sim);
    }
}

struct ghost {
    uint64_t id;
    uint32_t skip;              /* who may still believe in it */
    uint32_t sightings;
};

static void look_for_ghost(struct sim *sim, uint32_t node, const struct swim_effect *e, void *ctx)
{
    struct ghost *g = ctx;
    (void)sim;
    if (e->node_id == g->id && node != g->skip
        && (e->log == SWIM_LOG_JOINED || e->log == SWIM_LOG_RETURNED))
        g->sightings++;
}

/* A node dies while another is cut off; that one comes back hours later and
 * still believes in the dead. foca #15, #19, #31: whoever forgot the death too
 * early takes the ghost in again, and hands it on for ever. */
static void early_forgotten_dead(void **state)
{
    static const uint64_t away_ms[] = {60 * 1000, 3600 * 1000, 5 * 3600 * 1000};
    (void)state;
    for (size_t c = 0; c < ARRAY_COUNT(away_ms); c++) {
        struct sim sim;
        struct ghost ghost = {.skip = 5};
        set_up(&sim, 7 + c, 6, 3);
        sim.nodes[5].side = 1;
        sim_run(&sim, 100);
        ghost.id = sim.nodes[3].id;
        sim_crash(&sim, 3);
        /* It sleeps, so that it does not find out by itself. */
        sim_stall(&sim, 5, away_ms[c]);
        sim_run(&sim, away_ms[c] - 1000);
        assert_int_equal(state_at(&sim, 0, 3), SWIM_DEAD);
        sim.watch = look_for_ghost;
        sim.watch_ctx = &ghost;
        sim_mend(&sim);
        must_agree(&sim, 60000);
        sim_run(&sim, 60000);
        for (uint32_t k = 0; k < 6; k++) {
            if (k != 3)
                assert_true(state_at(&sim, k, 3) >= SWIM_DEAD);
        }
        assert_int_equal(ghost.sightings, 0);
        sim_deinit(&sim);
    }
}

/* consul #5928: a node that hears nobody but is heard accuses everybody. Also
 * the other half, one that is heard by nobody. The healthy ones stay. */
static void half_cut_nodes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct sim sim;
        set_up(&sim, seed, 24, 6);
        for (int turn = 0; turn < 3; turn++) {
            for (uint32_t k = 3; k < 24; k += 8) {
                sim.nodes[k].deaf = seed % 2;
                sim.nodes[k].mute = !sim.nodes[k].deaf;
                sim.nodes[k].excused = true;
            }
            sim_run(&sim, 20000);
            sim_mend(&sim);
            sim_run(&sim, 10000);
        }
        assert_int_equal(sim.counts.false_deaths_healthy, 0);
        assert_true(sim.counts.false_deaths > 0);       /* the cut ones were noticed */
        must_agree(&sim, 15000);
        sim_deinit(&sim);
    }
}

/* A node behind a one-way firewall would be suspected for ever after: it never
 * gets in, however often it asks. */
static void one_way_joiner(void **state)
{
    struct sim sim;
    (void)state;
    sim_init(&sim, 3, 4);
    for (uint32_t k = 0; k < 4; k++)
        sim_add(&sim, k, 0);
    for (uint32_t k = 0; k < 3; k++)
        sim_start(&sim, k, &first, 1);
    sim_run(&sim, 5000);
    for (int way = 0; way < 2; way++) {
        sim.nodes[3].deaf = way == 0;
        sim.nodes[3].mute = way == 1;
        sim_start(&sim, 3, &first, 1);
        sim_run(&sim, 30000);
        for (uint32_t k = 0; k < 3; k++)
            assert_true(state_at(&sim, k, 3) == 255);
        sim_crash(&sim, 3);
    }
    assert_int_equal(sim.counts.logs[SWIM_LOG_SUSPECTED], 0);
    sim_mend(&sim);
    sim_start(&sim, 3, &first, 1);
    must_agree(&sim, 10000);
    sim_deinit(&sim);
}

/* Hundreds of joins, leaves and changed flags within seconds: more news than
 * gossip carries. Views agree soon after, and the queue is bounded by design. */
static void event_storm(void **state)
{
    struct sim sim;
    (void)state;
    set_up(&sim, 11, 64, 4);
    sim.net.loss = 0.05;
    for (int k = 0; k < 600; k++) {
        uint32_t node = 1 + (uint32_t)prng_below(&sim.prng, 63);
        if (!sim_is_up(&sim, node)) {
            sim_start(&sim, node, &first, 1);
        } else if (k % 3 == 0) {
            sim_leave(&sim, node);
        } else {
            struct swim *s = sim.nodes[node].swim;
            uint8_t flags = swim_self(s)->flags ^ SWIM_COORDINATE;
            swim_set_flags(s, sim_now_ms(&sim), SWIM_COORDINATE, flags, &sim.out);
            swim_out_reset(&sim.out);
        }
        sim_run(&sim, 17);
    }
    assert_int_equal(sim.counts.false_deaths, 0);
    must_agree(&sim, 15000);
    sim_deinit(&sim);
}

/* A worker is recycled: a new process on the same port within a moment. The new
 * start replaces the old at once, and is never taken for the dead one. */
static void restart_on_the_same_port(void **state)
{
    struct sim sim;
    (void)state;
    set_up(&sim, 13, 16, 2);
    sim.net.loss = 0.05;
    for (uint32_t k = 0; k < 20; k++) {
        uint32_t node = 1 + k % 15;
        sim_crash(&sim, node);
        sim_run(&sim, 20 * k);
        sim_start(&sim, node, &first, 1);
        must_agree(&sim, 10000);
    }
    assert_int_equal(sim.counts.false_deaths, 0);
    assert_true(sim.counts.logs[SWIM_LOG_REPLACED] > 0);
    sim_deinit(&sim);
}

/* The clock steps back over a restart: the new start is older by the clock. It
 * is told, raises itself above the old one, and gets in (M6). */
static void restart_with_a_clock_behind(void **state)
{
    struct sim sim;
    (void)state;
    set_up(&sim, 17, 6, 2);
    for (int wait_ms = 0; wait_ms < 10000; wait_ms += 3000) {
        sim_crash(&sim, 4);
        sim_run(&sim, (uint64_t)wait_ms);
        sim.nodes[4].skew_ms -= 13000;
        sim_start(&sim, 4, &first, 1);
        must_agree(&sim, 10000);
    }
    assert_true(sim.counts.logs[SWIM_LOG_STARTED_RAISED] > 0);
    assert_int_equal(sim.counts.conflicts, 0);
    sim_deinit(&sim);
}

/* mimir #6187: an address is reused by another cluster with the same secret, and
 * the two merge. The label keeps them apart: one cluster sees a death, the other
 * a join. */
static void a_reused_port_from_another_label(void **state)
{
    struct sim sim;
    (void)state;
    sim_init(&sim, 19, 3);
    for (uint32_t k = 0; k < 8; k++) {
        sim_add(&sim, k % 2, k / 2);
        sim.nodes[k].label = k / 4 != 0;
    }
    uint32_t theirs = 4;
    for (uint32_t k = 0; k < 8; k++)
        sim_start(&sim, k, k < 4 ? &first : &theirs, 1);
    must_agree(&sim, 10000);
    sim_run(&sim, 3000);
    sim_crash(&sim, 3);
    uint32_t again = sim_add(&sim, 3 % 2, 3 / 2);
    sim.nodes[again].label = 1;
    sim_start(&sim, again, &theirs, 1);
    must_agree(&sim, 15000);
    assert_int_equal(swim_live(sim.nodes[0].swim), 3);
    assert_int_equal(swim_live(sim.nodes[4].swim), 5);
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(state_at(&sim, k, 3), SWIM_DEAD);
    assert_int_equal(sim.counts.false_deaths, 0);
    sim_deinit(&sim);
}

/* Leave, rejoin, leave, while datagrams take up to half a second and overtake
 * each other: at the end it is gone for everyone, and stays so. */
static void leave_rejoin_leave(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sim sim;
        struct ghost ghost = {.skip = SIM_NOBODY};
        set_up(&sim, seed, 8, 4);
        sim.net = (struct sim_net){.latency_us = 60000, .jitter_us = 60000, .reorder = 0.3,
                                   .reorder_us = 400000, .duplicate = 0.2, .loss = 0.05};
        sim_leave(&sim, 5);
        sim_run(&sim, prng_below(&sim.prng, 1000));
        sim_start(&sim, 5, &first, 1);
        sim_run(&sim, 300 + prng_below(&sim.prng, 4000));
        sim_leave(&sim, 5);
        sim_run(&sim, 2000);
        ghost.id = sim.nodes[5].id;
        sim_run(&sim, 20000);
        sim.watch = look_for_ghost;
        sim.watch_ctx = &ghost;
        for (uint32_t k = 0; k < 8; k++) {
            if (k != 5)
                assert_true(state_at(&sim, k, 5) >= SWIM_DEAD);
        }
        sim_run(&sim, 60000);
        assert_int_equal(ghost.sightings, 0);
        must_agree(&sim, 1000);
        sim_deinit(&sim);
    }
}

/* consul #6897, memberlist #350: a starved machine accuses, and is accused. All
 * sixteen workers of one host stall for three seconds, once and again. */
static void a_stalled_host(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct sim sim;
        set_up(&sim, seed, 32, 2);
        sim.net.loss = 0.02;
        for (int turn = 0; turn < 6; turn++) {
            sim_stall_host(&sim, 0, 3000);
            sim_run(&sim, seed % 2 ? 3300 : 9000);
        }
        assert_int_equal(sim.counts.false_deaths, 0);
        must_agree(&sim, 10000);
        sim_deinit(&sim);
    }
}

/* A cut through the middle for a minute: each side goes on alone; healed, there
 * is one view soon, and the tombstones of the one side bury nobody on the other. */
static void both_halves_come_together(void **state)
{
    static const uint32_t sizes[] = {2, 4, 16, 64};
    (void)state;
    for (size_t c = 0; c < ARRAY_COUNT(sizes); c++) {
        struct sim sim;
        uint32_t n = sizes[c];
        set_up(&sim, 23 + c, n, n < 8 ? 2 : 8);
        for (uint32_t k = 0; k < n; k++)
            sim.nodes[k].side = k < n / 2;
        sim_run(&sim, 60000);
        assert_int_equal(sim.counts.false_deaths, n * n / 2);
        sim_mend(&sim);
        must_agree(&sim, 15000);
        assert_int_equal(sim.counts.false_deaths, n * n / 2);
        for (uint32_t k = 0; k < n; k++)
            assert_true(sim.nodes[k].self_dead);
        sim_deinit(&sim);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mass_restart),
        cmocka_unit_test(rolling_restart),
        cmocka_unit_test(mutual_dead),
        cmocka_unit_test(early_forgotten_dead),
        cmocka_unit_test(half_cut_nodes),
        cmocka_unit_test(one_way_joiner),
        cmocka_unit_test(event_storm),
        cmocka_unit_test(restart_on_the_same_port),
        cmocka_unit_test(restart_with_a_clock_behind),
        cmocka_unit_test(a_reused_port_from_another_label),
        cmocka_unit_test(leave_rejoin_leave),
        cmocka_unit_test(a_stalled_host),
        cmocka_unit_test(both_halves_come_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
