/* The simulator itself: chaos converges over many seeds, every check catches its
 * mutation, a seed replays, and the figures that bound the product hold on a
 * few seeds each. (The whole table with all its seeds: scripts/swim_report.py.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/swim_core.h"
#include "sim/check.h"
#include "sim/figures.h"

/* Chaos, then calm, then all agree; and what is claimed to be survived happened. */
static void chaos_then_calm(void **state)
{
    static const enum swim_log must_occur[] = {
        SWIM_LOG_SUSPECTED, SWIM_LOG_REFUTED, SWIM_LOG_DEAD, SWIM_LOG_RETURNED, SWIM_LOG_LEFT,
        SWIM_LOG_REPLACED, SWIM_LOG_SELF_DEAD,
    };
    uint64_t logs[32] = {0};
    char why[512];
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct sim_counts c;
        if (!sim_chaos(seed, MUTATE_NOTHING, &c, why, sizeof why, NULL))
            fail_msg("%s", why);
        for (size_t k = 0; k < ARRAY_COUNT(logs); k++)
            logs[k] += c.logs[k];
    }
    for (size_t k = 0; k < ARRAY_COUNT(must_occur); k++)
        assert_true(logs[must_occur[k]] > 0);
}

static void calm_buries_nobody(void **state)
{
    char why[512];
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        if (!sim_calm(seed, MUTATE_NOTHING, why, sizeof why))
            fail_msg("%s", why);
    }
}

static void every_check_catches_its_mutation(void **state)
{
    (void)state;
    for (int m = 1; m < SIM_MUTATIONS; m++) {
        char why[512] = "";
        bool caught = false;
        for (uint64_t seed = 1; seed <= 32 && !caught; seed++) {
            bool held = m == MUTATE_HASTY ? sim_calm(seed, m, why, sizeof why)
                                          : sim_chaos(seed, m, NULL, why, sizeof why, NULL);
            caught = !held && strncmp(why, sim_mutations[m].failure,
                                      strlen(sim_mutations[m].failure)) == 0;
        }
        if (!caught)
            fail_msg("%s was not caught: %s", sim_mutations[m].name, why);
    }
}

/* The same seed gives the same run to the last line; another seed another one. */
static void a_seed_is_a_run(void **state)
{
    char *traces[3];
    size_t bytes[3];
    (void)state;
    for (int k = 0; k < 3; k++) {
        char why[512];
        FILE *trace = open_memstream(&traces[k], &bytes[k]);
        assert_true(sim_chaos(k == 2 ? 6 : 5, MUTATE_NOTHING, NULL, why, sizeof why, trace));
        fclose(trace);
    }
    assert_string_equal(traces[0], traces[1]);
    assert_string_not_equal(traces[0], traces[2]);
    for (int k = 0; k < 3; k++)
        free(traces[k]);
}

/* A crash as a story: two nodes notice within a period, and the third period's
 * six make it certain. */
static void a_crash_as_a_story(void **state)
{
    struct sim sim;
    char *trace;
    size_t bytes;
    (void)state;
    sim_init(&sim, 1, 3);
    for (uint32_t k = 0; k < 3; k++)
        sim_add(&sim, k, 0);
    for (uint32_t k = 0; k < 3; k++)
        sim_start(&sim, k, NULL, 0);
    sim_converge(&sim);
    sim_run(&sim, 1000);
    sim.trace = open_memstream(&trace, &bytes);
    sim_crash(&sim, 2);
    sim_run(&sim, 10000);
    fclose(sim.trace);
    sim.trace = NULL;
    /* Times vary with latency's jitter, the order of events does not. */
    char *line = trace;
    static const char *const story[] = {"suspected", "suspected", "dead", "dead"};
    for (size_t k = 0; k < ARRAY_COUNT(story); k++) {
        assert_non_null(strstr(line, "10.0.0.2:7946"));
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = '\0';
        assert_non_null(strstr(line, story[k]));
        line = end + 1;
    }
    assert_int_equal(*line, '\0');
    free(trace);
    sim_deinit(&sim);
}

static void crashes_are_known_in_time(void **state)
{
    static const struct {
        uint32_t nodes, hosts;
        double loss, p50_ms_max, max_ms_max;
    } table[] = {
        {2, 1, 0, 4000, 5000}, {2, 2, 0.05, 4000, 6000}, {6, 1, 0.05, 5000, 8000},
        {8, 2, 0.05, 5000, 9000}, {16, 1, 0.05, 5000, 8000}, {64, 8, 0.05, 5000, 10000},
    };
    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(table); k++) {
        struct scenario c = {.nodes = table[k].nodes, .hosts = table[k].hosts, .crash = 1,
                             .loss = table[k].loss, .seconds = 25, .seed = 1, .seeds = 20};
        struct figures f;
        figures_run(&f, &c, NULL);
        assert_int_equal(f.unknown, 0);
        assert_int_equal(f.false_deaths, 0);
        assert_true(figures_quantile(&f.known_by_all_ms, 0.5) <= table[k].p50_ms_max);
        assert_true(figures_quantile(&f.known_by_all_ms, 1) <= table[k].max_ms_max);
        figures_deinit(&f);
    }
}

/* Two messages a period without loss, whatever N; below four at 5% loss. */
static void load_is_flat(void **state)
{
    static const uint32_t sizes[][2] = {{2, 1}, {8, 2}, {64, 8}, {256, 32}};
    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(sizes); k++) {
        for (int lossy = 0; lossy < 2; lossy++) {
            struct scenario c = {.nodes = sizes[k][0], .hosts = sizes[k][1],
                                 .loss = lossy ? 0.05 : 0, .seconds = 60, .seed = 1, .seeds = 1};
            struct figures f;
            double sum = 0;
            figures_run(&f, &c, NULL);
            for (size_t j = 0; j < f.sent.count; j++)
                sum += f.sent.at[j];
            double mean = sum / (double)f.sent.count;
            assert_true(mean <= (lossy ? 4.0 : 2.5));
            assert_true(mean >= 1.5);
            figures_deinit(&f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chaos_then_calm),
        cmocka_unit_test(calm_buries_nobody),
        cmocka_unit_test(every_check_catches_its_mutation),
        cmocka_unit_test(a_seed_is_a_run),
        cmocka_unit_test(a_crash_as_a_story),
        cmocka_unit_test(crashes_are_known_in_time),
        cmocka_unit_test(load_is_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
