/* Chaos, then calm, then it must converge (TigerBeetle's VOPR; al8n/memberlist).
 *
 * For a minute everything happens that a fleet can suffer: loss, duplicates,
 * reordering, one-way cuts, partitions, stalls of a node or a host, crashes,
 * leaves, restarts on the same and on another port, clocks that are off. Then
 * the network is whole, both seeds run (without one, those who never met have no
 * way to), and within the calm every running node must list exactly those that
 * run.
 */
#include "sim/check.h"

#include "core/swim_core.h"

#include <stdlib.h>

#define CHAOS_MS 60000u
#define CALM_MS 90000u          /* a suspicion's max, a rejoin round of all dead, pulls */
#define HOSTS_MAX 4u

static uint32_t any(struct sim *sim, uint32_t count)
{
    return (uint32_t)prng_below(&sim->prng, count);
}

static void start(struct sim *sim, uint32_t node)
{
    static const uint32_t seeds[2] = {0, 1};
    sim->nodes[node].skew_ms = (int64_t)prng_below(&sim->prng, 40000) - 20000;
    sim_start(sim, node, seeds, 2);
}

static void suffer(struct sim *sim)
{
    uint32_t a = any(sim, sim->count), b = any(sim, sim->count);
    switch (any(sim, 14)) {
    case 0:
        sim->net.loss = prng_unit(&sim->prng) * 0.3;
        break;
    case 1:
        sim->net.duplicate = prng_unit(&sim->prng) * 0.2;
        sim->net.reorder = prng_unit(&sim->prng) * 0.2;
        break;
    case 2:
        sim->net.latency_us = 100 + any(sim, 40000);
        sim->net.jitter_us = any(sim, 40000);
        break;
    case 3:
        if (a != b)
            sim_cut(sim, a, b);
        break;
    case 4:
        for (uint32_t k = 0; k < sim->count; k++)
            sim->nodes[k].side = (uint8_t)any(sim, 2);
        break;
    case 5:
        sim_mend(sim);
        break;
    case 6:
        sim->nodes[a].deaf = true;
        break;
    case 7:
        sim->nodes[a].mute = true;
        break;
    case 8:
        sim_stall(sim, a, any(sim, 8000));
        break;
    case 9:
        sim_stall_host(sim, sim->nodes[a].host, any(sim, 6000));
        break;
    case 10:
        sim_crash(sim, a);
        break;
    case 11:
        sim_leave(sim, a);
        break;
    default:
        if (!sim_is_up(sim, a))
            start(sim, a);
        break;
    }
}

static void finish(struct sim *sim, const char *how, uint64_t seed, char *why, size_t bytes)
{
    snprintf(why, bytes, "%s (at %llu ms; replay: peerage-sim %s --seed %llu --seeds 1 --trace)",
             sim->failure, (unsigned long long)sim_now_ms(sim), how, (unsigned long long)seed);
}

bool sim_chaos(uint64_t seed, int mutation, struct sim_counts *counts, char *why, size_t bytes,
               FILE *trace)
{
    struct sim sim;
    sim_init(&sim, seed, HOSTS_MAX);
    sim.mutation = mutation;
    sim.trace = trace;
    uint32_t count = 3 + any(&sim, 10), hosts = 1 + any(&sim, HOSTS_MAX);
    for (uint32_t k = 0; k < count; k++)
        sim_add(&sim, k % hosts, k / hosts);
    sim_check_begin(&sim);
    for (uint32_t k = 0; k < count; k++) {
        start(&sim, k);
        sim_run(&sim, any(&sim, 500));
    }
    uint64_t end_ms = sim_now_ms(&sim) + CHAOS_MS;
    while (sim_now_ms(&sim) < end_ms && sim.failure[0] == '\0') {
        suffer(&sim);
        sim_run(&sim, any(&sim, 2000));
    }
    sim_mend(&sim);
    sim.net = (struct sim_net){.latency_us = 500, .jitter_us = 500};
    for (uint32_t k = 0; k < 2; k++) {
        if (!sim_is_up(&sim, k))
            start(&sim, k);
    }
    bool agreed = sim_run_until_agreed(&sim, CALM_MS, NULL);
    if (!agreed && sim.failure[0] == '\0') {
        char how[160];
        sim_disagreement(&sim, how, sizeof how);
        sim_fail(&sim, "no agreement: %s", how);
    }
    bool held = sim.failure[0] == '\0';
    if (!held)
        finish(&sim, "--chaos", seed, why, bytes);
    if (counts)
        *counts = sim.counts;
    sim_deinit(&sim);
    return held;
}

bool sim_calm(uint64_t seed, int mutation, char *why, size_t bytes)
{
    struct sim sim;
    sim_init(&sim, seed, 4);
    sim.mutation = mutation;
    sim.net.loss = 0.1;
    uint32_t first = 0;
    for (uint32_t k = 0; k < 16; k++)
        sim_add(&sim, k % 4, k / 4);
    sim_check_begin(&sim);
    for (uint32_t k = 0; k < 16; k++)
        sim_start(&sim, k, &first, 1);
    if (!sim_run_until_agreed(&sim, 20000, NULL)) {
        char how[160];
        sim_disagreement(&sim, how, sizeof how);
        sim_fail(&sim, "no agreement: %s", how);
    }
    sim_run(&sim, 60000);
    if (sim.counts.false_deaths_healthy > 0)
        sim_fail(&sim, "a healthy node was called dead %llu times",
                 (unsigned long long)sim.counts.false_deaths_healthy);
    bool held = sim.failure[0] == '\0';
    if (!held)
        finish(&sim, "--calm", seed, why, bytes);
    sim_deinit(&sim);
    return held;
}
