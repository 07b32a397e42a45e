/* peerage-sim: membership in simulated time.
 *
 * With figures' options it runs a scenario and prints what it shows; without
 * any, a bounded run of everything: chaos over some seeds, calm, the mutations.
 */
#include "sim/check.h"
#include "sim/figures.h"

#include <getopt.h>
#include <stdlib.h>

static const char usage[] =
    "peerage-sim [--seed S] [--seeds M]                 chaos, calm and mutations, M seeds each\n"
    "peerage-sim --chaos|--calm|--mutations [--seed S] [--seeds M] [--trace]\n"
    "peerage-sim --nodes N [--hosts H] [--crash K] [--loss P] [--seconds S] [--seeds M] [--json]\n"
    "            [--host-down]       all nodes of one host crash together\n"
    "            [--join S]          all others join one seed within S seconds\n"
    "            [--stall MS [--run MS]]  the workers of one host stall, once or in turns\n"
    "            [--deaf K,S]        K members lose all ingress, S seconds on, S off\n"
    "            [--partition S]     two halves, for S seconds\n";

static bool chaos(uint64_t seed, uint64_t seeds, FILE *trace)
{
    struct sim_counts sum = {0};
    char why[512];
    uint64_t failed = 0;
    for (uint64_t k = 0; k < seeds; k++) {
        struct sim_counts c;
        if (!sim_chaos(seed + k, 0, &c, why, sizeof why, trace)) {
            printf("FAILED seed %llu: %s\n", (unsigned long long)(seed + k), why);
            failed++;
        }
        for (size_t j = 0; j < ARRAY_COUNT(sum.logs); j++)
            sum.logs[j] += c.logs[j];
        sum.self_deads += c.self_deads;
        sum.lost += c.lost;
    }
    printf("chaos: %llu of %llu seeds from %llu failed\n", (unsigned long long)failed,
           (unsigned long long)seeds, (unsigned long long)seed);
    /* What did not happen was not tested. */
    static const struct {
        enum swim_log log;
        const char *name;
    } covered[] = {
        {SWIM_LOG_JOINED, "joined"}, {SWIM_LOG_SUSPECTED, "suspected"},
        {SWIM_LOG_REFUTED, "refuted"}, {SWIM_LOG_DEAD, "dead"},
        {SWIM_LOG_RETURNED, "returned"}, {SWIM_LOG_LEFT, "left"},
        {SWIM_LOG_REPLACED, "replaced"}, {SWIM_LOG_SELF_DEAD, "told that it was dead"},
        {SWIM_LOG_REFUSED_UNPROVEN, "refused unproven"},
    };
    for (size_t k = 0; k < ARRAY_COUNT(covered); k++) {
        unsigned long long n = sum.logs[covered[k].log];
        printf("  %-22s %llu\n", covered[k].name, n);
        if (n == 0 && seeds >= 16) {
            printf("  never happened: the run proves nothing about it\n");
            failed++;
        }
    }
    return failed == 0;
}

static bool calm(uint64_t seed, uint64_t seeds)
{
    uint64_t failed = 0;
    char why[512];
    for (uint64_t k = 0; k < seeds; k++) {
        if (!sim_calm(seed + k, 0, why, sizeof why)) {
            printf("FAILED seed %llu: %s\n", (unsigned long long)(seed + k), why);
            failed++;
        }
    }
    printf("calm: %llu of %llu seeds failed\n", (unsigned long long)failed,
           (unsigned long long)seeds);
    return failed == 0;
}

/* Every fault must be caught by its own check, within some seeds. */
static bool mutations(uint64_t seed)
{
    bool all = true;
    for (int m = 1; m < SIM_MUTATIONS; m++) {
        char why[512] = "";
        bool caught = false;
        for (uint64_t k = 0; k < 32 && !caught; k++) {
            bool held = m == MUTATE_HASTY ? sim_calm(seed + k, m, why, sizeof why)
                                          : sim_chaos(seed + k, m, NULL, why, sizeof why, NULL);
            caught = !held && strncmp(why, sim_mutations[m].failure,
                                      strlen(sim_mutations[m].failure)) == 0;
        }
        printf("mutation %-16s %s\n", sim_mutations[m].name, caught ? "caught" : "NOT CAUGHT");
        all = all && caught;
    }
    return all;
}

int main(int argc, char **argv)
{
    enum { NODES = 256, HOSTS, CRASH, LOSS, SECONDS, SEED, SEEDS, JSON, JOIN, STALL, RUN, DEAF,
           PARTITION, CHAOS, CALM, MUTATIONS, TRACE, HOST_DOWN };
    static const struct option options[] = {
        {"nodes", 1, NULL, NODES}, {"hosts", 1, NULL, HOSTS}, {"crash", 1, NULL, CRASH},
        {"loss", 1, NULL, LOSS}, {"seconds", 1, NULL, SECONDS}, {"seed", 1, NULL, SEED},
        {"seeds", 1, NULL, SEEDS}, {"json", 0, NULL, JSON}, {"join", 1, NULL, JOIN},
        {"stall", 1, NULL, STALL}, {"run", 1, NULL, RUN}, {"deaf", 1, NULL, DEAF},
        {"partition", 1, NULL, PARTITION}, {"chaos", 0, NULL, CHAOS}, {"calm", 0, NULL, CALM},
        {"mutations", 0, NULL, MUTATIONS}, {"trace", 0, NULL, TRACE},
        {"host-down", 0, NULL, HOST_DOWN}, {NULL, 0, NULL, 0},
    };
    struct scenario c = {.hosts = 1, .seconds = 60, .seed = 1};
    int what = 0, option;
    bool json = false;
    FILE *trace = NULL;
    char *rest;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        unsigned long long number = optarg ? strtoull(optarg, &rest, 10) : 0;
        switch (option) {
        case NODES: c.nodes = (uint32_t)number; break;
        case HOSTS: c.hosts = (uint32_t)number; break;
        case CRASH: c.crash = (uint32_t)number; break;
        case LOSS: c.loss = strtod(optarg, NULL); break;
        case SECONDS: c.seconds = (uint32_t)number; break;
        case SEED: c.seed = number; break;
        case SEEDS: c.seeds = number; break;
        case JSON: json = true; break;
        case JOIN: c.join_s = (uint32_t)number; break;
        case STALL: c.stall_ms = (uint32_t)number; break;
        case RUN: c.run_ms = (uint32_t)number; break;
        case DEAF:
            c.deaf = (uint32_t)number;
            c.deaf_s = *rest == ',' ? (uint32_t)strtoul(rest + 1, NULL, 10) : 20;
            break;
        case PARTITION: c.partition_s = (uint32_t)number; break;
        case HOST_DOWN: c.host_down = true; break;
        case TRACE: trace = stdout; break;
        case CHAOS: case CALM: case MUTATIONS: what = option; break;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (c.nodes > 0) {
        struct figures f;
        if (c.hosts == 0 || c.nodes > c.hosts * SIM_PORTS || c.crash >= c.nodes) {
            fprintf(stderr, "at most %u nodes a host, and fewer crashes than nodes\n", SIM_PORTS);
            return 2;
        }
        c.seeds = c.seeds ? c.seeds : 1;
        figures_run(&f, &c, trace);
        (json ? figures_json : figures_text)(&f, &c, stdout);
        figures_deinit(&f);
        return 0;
    }
    c.seeds = c.seeds ? c.seeds : 64;
    bool good = true;
    if (what == CHAOS || what == 0)
        good = chaos(c.seed, c.seeds, trace) && good;
    if (what == CALM || what == 0)
        good = calm(c.seed, c.seeds < 8 ? c.seeds : 8) && good;
    if (what == MUTATIONS || what == 0)
        good = mutations(c.seed) && good;
    return good ? 0 : 1;
}
