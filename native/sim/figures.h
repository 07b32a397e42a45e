/* What a run shows: scenarios over many seeds, and their figures as JSON. */
#ifndef PEERAGE_SIM_FIGURES_H
#define PEERAGE_SIM_FIGURES_H

#include "sim/sim.h"

struct scenario {
    uint32_t nodes, hosts;
    uint32_t seconds;           /* simulated, after the start */
    uint64_t seed, seeds;       /* the first, and how many */
    double loss;
    uint32_t crash;             /* members, at one moment */
    bool host_down;             /* all of host 0 crash at that moment */
    uint32_t join_s;            /* 0: start converged; else all join one seed within it */
    uint32_t stall_ms, run_ms;  /* host 0 stalls; run_ms > 0: again and again */
    uint32_t deaf;              /* members that lose all ingress... */
    uint32_t deaf_s;            /* ...for so long on, so long off */
    uint32_t partition_s;       /* two halves, for so long */
};

struct distribution {
    double *at;
    size_t count, capacity;
};

struct figures {
    struct distribution detect_first_ms, known_by_all_ms, converge_ms;
    struct distribution sent, received;                     /* messages a period */
    struct distribution sent_bytes, received_bytes;         /* a second */
    uint64_t false_deaths, false_deaths_healthy, unconverged, unknown;
    uint64_t suspected, events;
    uint64_t bytes_per_record, memory_bytes;
    uint64_t pulls;
    double wall_s, rss_mb;
};

/* The smallest value that a share of `q` does not exceed; sorts. 0 if empty. */
double figures_quantile(struct distribution *, double q);

void figures_run(struct figures *, const struct scenario *, FILE *trace);
void figures_json(const struct figures *, const struct scenario *, FILE *);
void figures_text(const struct figures *, const struct scenario *, FILE *);
void figures_deinit(struct figures *);

#endif
