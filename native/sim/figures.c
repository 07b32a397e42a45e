/* Scenarios and their figures.
 *
 * Bytes are of UDP datagrams: the core's payload and the frame around it. Load
 * is counted per member over the whole run, then its mean, p99 and max over all
 * members of all seeds. A death is false if whoever is called dead runs; of a
 * healthy one, if it is neither stalled nor cut off.
 */
#include "sim/figures.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define SETTLE_MS 3000u

struct victim {
    uint32_t node;
    uint64_t id, crashed_ms, first_ms, last_ms;
    uint32_t known_by;
};

struct run {
    struct figures *f;
    const struct scenario *c;
    struct victim *victims;
    uint32_t victim_count;
    struct swim_stats *began;
};

static void add(struct distribution *d, double value)
{
    if (d->count == d->capacity) {
        d->capacity = d->capacity ? d->capacity * 2 : 64;
        d->at = realloc(d->at, d->capacity * sizeof *d->at);
        if (d->at == NULL)
            abort();
    }
    d->at[d->count++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Nearest rank. */
double figures_quantile(struct distribution *d, double q)
{
    if (d->count == 0)
        return 0;
    qsort(d->at, d->count, sizeof *d->at, compare);
    size_t rank = (size_t)(q * (double)d->count + 0.999999);
    return d->at[rank == 0 ? 0 : rank - 1 < d->count ? rank - 1 : d->count - 1];
}

static double mean(const struct distribution *d)
{
    double sum = 0;
    for (size_t k = 0; k < d->count; k++)
        sum += d->at[k];
    return d->count ? sum / (double)d->count : 0;
}

static void watch(struct sim *sim, uint32_t node, const struct swim_effect *e, void *ctx)
{
    struct run *run = ctx;
    (void)node;
    if (e->log != SWIM_LOG_DEAD)
        return;
    for (uint32_t k = 0; k < run->victim_count; k++) {
        struct victim *v = &run->victims[k];
        if (v->id != e->node_id)
            continue;
        if (v->known_by++ == 0)
            v->first_ms = sim_now_ms(sim);
        v->last_ms = sim_now_ms(sim);
    }
}

static uint32_t up(const struct sim *sim)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < sim->count; k++)
        count += sim_is_up(sim, k);
    return count;
}

static void crash_one(struct sim *sim, struct run *run, uint32_t node)
{
    struct victim *v = &run->victims[run->victim_count++];
    *v = (struct victim){.node = node, .id = sim->nodes[node].id, .crashed_ms = sim_now_ms(sim)};
    sim_crash(sim, node);
}

static void crash_some(struct sim *sim, struct run *run)
{
    run->victims = calloc(sim->count, sizeof *run->victims);
    if (run->victims == NULL)
        abort();
    for (uint32_t node = 0; run->c->host_down && node < sim->count; node++) {
        if (sim->nodes[node].host == 0)
            crash_one(sim, run, node);
    }
    while (!run->c->host_down && run->victim_count < run->c->crash) {
        uint32_t node = (uint32_t)prng_below(&sim->prng, sim->count);
        if (sim_is_up(sim, node))
            crash_one(sim, run, node);
    }
}

static void reap(struct sim *sim, struct run *run)
{
    uint32_t survivors = up(sim);
    for (uint32_t k = 0; k < run->victim_count; k++) {
        const struct victim *v = &run->victims[k];
        if (v->known_by < survivors) {
            run->f->unknown++;
            continue;
        }
        add(&run->f->detect_first_ms, (double)(v->first_ms - v->crashed_ms));
        add(&run->f->known_by_all_ms, (double)(v->last_ms - v->crashed_ms));
    }
}

static void converge(struct sim *sim, struct figures *f, uint64_t begin_ms, uint64_t most_ms)
{
    if (sim_run_until_agreed(sim, most_ms, NULL))
        add(&f->converge_ms, (double)(sim_now_ms(sim) - begin_ms));
    else
        f->unconverged++;
}

static void count_load(struct sim *sim, struct run *run, uint64_t for_ms)
{
    double periods = (double)for_ms / sim->params.period_ms, seconds = (double)for_ms / 1000;
    for (uint32_t k = 0; k < sim->count; k++) {
        struct swim_stats s;
        const struct swim_stats *b = &run->began[k];
        if (!sim_is_up(sim, k))
            continue;
        sim_node_stats(sim, k, &s);
        double sent = (double)(s.sent - b->sent), received = (double)(s.received - b->received);
        add(&run->f->sent, sent / periods);
        add(&run->f->received, received / periods);
        add(&run->f->sent_bytes,
            ((double)(s.sent_bytes - b->sent_bytes) + sent * SIM_FRAME_BYTES) / seconds);
        add(&run->f->received_bytes,
            ((double)(s.received_bytes - b->received_bytes) + received * SIM_FRAME_BYTES) / seconds);
        run->f->pulls += s.pulls - b->pulls;
    }
}

static void join_all(struct sim *sim, struct run *run)
{
    static const uint32_t first = 0;
    uint64_t begin_ms = sim_now_ms(sim);
    uint64_t span_us = (uint64_t)run->c->join_s * 1000000 / run->c->nodes;
    sim_start(sim, 0, NULL, 0);
    sim_run(sim, 2500);
    begin_ms = sim_now_ms(sim);
    for (uint32_t k = 1; k < sim->count; k++) {
        sim_start(sim, k, &first, 1);
        uint64_t until_us = begin_ms * 1000 + span_us * k;
        if (until_us > sim->now_us + 1000)
            sim_run(sim, (until_us - sim->now_us) / 1000);
    }
    converge(sim, run->f, begin_ms, 120000);
}

static void stall(struct sim *sim, const struct scenario *c, uint64_t end_ms)
{
    for (uint32_t k = 0; k < sim->count; k++)
        sim->nodes[k].excused = sim->nodes[k].host == 0;
    do {
        sim_stall_host(sim, 0, c->stall_ms);
        sim_run(sim, c->stall_ms + (c->run_ms ? c->run_ms : 1));
    } while (c->run_ms > 0 && sim_now_ms(sim) < end_ms);
}

static void deafen(struct sim *sim, struct run *run, uint64_t end_ms)
{
    const struct scenario *c = run->c;
    while (sim_now_ms(sim) < end_ms) {
        for (uint32_t k = 0; k < c->deaf && k < sim->count; k++)
            sim->nodes[k].deaf = sim->nodes[k].excused = true;
        sim_run(sim, c->deaf_s * 1000);
        for (uint32_t k = 0; k < c->deaf && k < sim->count; k++)
            sim->nodes[k].deaf = false;
        uint64_t calm_ms = sim_now_ms(sim), next_ms = calm_ms + c->deaf_s * 1000;
        converge(sim, run->f, calm_ms, c->deaf_s * 1000);
        sim_run(sim, next_ms - sim_now_ms(sim));
    }
}

static void part(struct sim *sim, struct run *run)
{
    for (uint32_t k = 0; k < sim->count; k++) {
        sim->nodes[k].side = k < sim->count / 2;
        sim->nodes[k].excused = true;
    }
    sim_run(sim, run->c->partition_s * 1000);
    sim_mend(sim);
    converge(sim, run->f, sim_now_ms(sim), 120000);
}

static void measure(struct figures *f, const struct scenario *c, uint64_t seed, FILE *trace)
{
    struct sim sim;
    struct run run = {.f = f, .c = c};
    sim_init(&sim, seed, c->hosts);
    sim.net.loss = c->loss;
    sim.trace = trace;
    sim.watch = watch;
    sim.watch_ctx = &run;
    for (uint32_t k = 0; k < c->nodes; k++)
        sim_add(&sim, k % c->hosts, k / c->hosts);
    run.began = calloc(c->nodes, sizeof *run.began);
    if (run.began == NULL)
        abort();
    if (c->join_s > 0) {
        join_all(&sim, &run);
    } else {
        for (uint32_t k = 0; k < c->nodes; k++)
            sim_start(&sim, k, NULL, 0);
        sim_converge(&sim);
        sim_run(&sim, SETTLE_MS + prng_below(&sim.prng, sim.params.period_ms));
    }
    for (uint32_t k = 0; k < c->nodes; k++)
        sim_node_stats(&sim, k, &run.began[k]);
    uint64_t begin_ms = sim_now_ms(&sim), end_ms = begin_ms + (uint64_t)c->seconds * 1000;
    if (c->crash > 0 || c->host_down)
        crash_some(&sim, &run);
    if (c->stall_ms > 0) {
        stall(&sim, c, end_ms);
        converge(&sim, f, sim_now_ms(&sim), 120000);
    }
    if (c->deaf > 0)
        deafen(&sim, &run, end_ms);
    if (c->partition_s > 0)
        part(&sim, &run);
    if (sim_now_ms(&sim) < end_ms)
        sim_run(&sim, end_ms - sim_now_ms(&sim));
    count_load(&sim, &run, sim_now_ms(&sim) - begin_ms);
    reap(&sim, &run);
    f->false_deaths += sim.counts.false_deaths;
    f->false_deaths_healthy += sim.counts.false_deaths_healthy;
    f->suspected += sim.counts.logs[SWIM_LOG_SUSPECTED];
    f->events += sim.counts.events;
    uint64_t memory = 0;
    for (uint32_t k = 0; k < sim.count; k++)
        memory += sim_is_up(&sim, k) ? swim_memory(sim.nodes[k].swim) : 0;
    f->memory_bytes = max_u64(f->memory_bytes, memory);
    f->bytes_per_record = memory / ((uint64_t)c->nodes * c->nodes);
    free(run.victims);
    free(run.began);
    sim_deinit(&sim);
}

void figures_run(struct figures *f, const struct scenario *c, FILE *trace)
{
    struct timespec a, b;
    struct rusage usage;
    memset(f, 0, sizeof *f);
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (uint64_t k = 0; k < c->seeds; k++)
        measure(f, c, c->seed + k, trace);
    clock_gettime(CLOCK_MONOTONIC, &b);
    getrusage(RUSAGE_SELF, &usage);
    f->wall_s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    f->rss_mb = (double)usage.ru_maxrss / 1024;
}

static void put_times(FILE *out, const char *name, struct distribution *d)
{
    if (d->count == 0)
        fprintf(out, "\"%s\": null, ", name);
    else
        fprintf(out, "\"%s\": {\"p50\": %.0f, \"p99\": %.0f, \"max\": %.0f}, ", name,
                figures_quantile(d, 0.5), figures_quantile(d, 0.99), figures_quantile(d, 1));
}

static void put_load(FILE *out, const char *name, struct distribution *sent,
                     struct distribution *received)
{
    fprintf(out, "\"%s\": {\"sent\": {\"mean\": %.3f, \"p99\": %.3f, \"max\": %.3f}, "
            "\"received\": {\"mean\": %.3f, \"p99\": %.3f, \"max\": %.3f}}, ", name,
            mean(sent), figures_quantile(sent, 0.99), figures_quantile(sent, 1),
            mean(received), figures_quantile(received, 0.99), figures_quantile(received, 1));
}

void figures_json(const struct figures *given, const struct scenario *c, FILE *out)
{
    struct figures f = *given;
    fprintf(out, "{\"nodes\": %u, \"hosts\": %u, \"crash\": %u, \"loss\": %.3f, \"seconds\": %u, "
            "\"seed\": %llu, \"seeds\": %llu, ", c->nodes, c->hosts, c->crash, c->loss, c->seconds,
            (unsigned long long)c->seed, (unsigned long long)c->seeds);
    put_times(out, "detect_first_ms", &f.detect_first_ms);
    put_times(out, "known_by_all_ms", &f.known_by_all_ms);
    put_times(out, "converge_ms", &f.converge_ms);
    fprintf(out, "\"false_deaths\": %llu, \"false_deaths_healthy\": %llu, \"unconverged\": %llu, "
            "\"unknown\": %llu, \"suspicions\": %llu, ", (unsigned long long)f.false_deaths,
            (unsigned long long)f.false_deaths_healthy, (unsigned long long)f.unconverged,
            (unsigned long long)f.unknown, (unsigned long long)f.suspected);
    put_load(out, "messages_per_member_per_period", &f.sent, &f.received);
    put_load(out, "bytes_per_member_per_s", &f.sent_bytes, &f.received_bytes);
    fprintf(out, "\"pulls\": %llu, \"events\": %llu, \"bytes_per_record\": %llu, "
            "\"wall_s\": %.2f, \"rss_mb\": %.1f}\n", (unsigned long long)f.pulls,
            (unsigned long long)f.events, (unsigned long long)f.bytes_per_record, f.wall_s,
            f.rss_mb);
}

static void say_times(FILE *out, const char *name, struct distribution *d)
{
    if (d->count > 0)
        fprintf(out, "%-16s p50 %6.0f  p99 %6.0f  max %6.0f ms  (%zu)\n", name,
                figures_quantile(d, 0.5), figures_quantile(d, 0.99), figures_quantile(d, 1),
                d->count);
}

void figures_text(const struct figures *given, const struct scenario *c, FILE *out)
{
    struct figures f = *given;
    fprintf(out, "%u nodes on %u hosts, loss %.0f%%, %u s, %llu seeds from %llu\n", c->nodes,
            c->hosts, c->loss * 100, c->seconds, (unsigned long long)c->seeds,
            (unsigned long long)c->seed);
    say_times(out, "detected first", &f.detect_first_ms);
    say_times(out, "known by all", &f.known_by_all_ms);
    say_times(out, "converged", &f.converge_ms);
    fprintf(out, "false deaths     %llu (%llu of healthy members)\n",
            (unsigned long long)f.false_deaths, (unsigned long long)f.false_deaths_healthy);
    if (f.unknown + f.unconverged > 0)
        fprintf(out, "NOT known by all %llu, NOT converged %llu\n", (unsigned long long)f.unknown,
                (unsigned long long)f.unconverged);
    fprintf(out, "messages sent    mean %.2f  p99 %.2f  max %.2f a member and period\n",
            mean(&f.sent), figures_quantile(&f.sent, 0.99), figures_quantile(&f.sent, 1));
    fprintf(out, "bytes sent       mean %.0f  p99 %.0f  max %.0f a member and second\n",
            mean(&f.sent_bytes), figures_quantile(&f.sent_bytes, 0.99),
            figures_quantile(&f.sent_bytes, 1));
    fprintf(out, "suspicions %llu, pulls %llu, %llu events, %llu bytes a record, %.1f s, %.0f MB\n",
            (unsigned long long)f.suspected, (unsigned long long)f.pulls,
            (unsigned long long)f.events, (unsigned long long)f.bytes_per_record, f.wall_s,
            f.rss_mb);
}

void figures_deinit(struct figures *f)
{
    free(f->detect_first_ms.at);
    free(f->known_by_all_ms.at);
    free(f->converge_ms.at);
    free(f->sent.at);
    free(f->received.at);
    free(f->sent_bytes.at);
    free(f->received_bytes.at);
}
