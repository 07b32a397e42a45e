/* The simulator: thousands of membership cores in one process on virtual time.
 * One seed is one run; there are no globals. It links the very objects the
 * product runs (TigerBeetle's VOPR and FoundationDB are the models).
 *
 * The network between nodes has latency, jitter, loss, duplication, reordering,
 * cuts in one direction and partitions; hosts may stall; nodes crash, leave and
 * come back. What a stalled node is sent waits in its socket, within the bound a
 * kernel has, and is read before its timers fire, as the shell does it.
 *
 * Time is in microseconds inside, so that a millisecond's order is decided by
 * latency and not by chance; the core sees milliseconds.
 */
#ifndef PEERAGE_SIM_H
#define PEERAGE_SIM_H

#include "core/prng.h"
#include "core/swim.h"

#include <stdio.h>

#define SIM_WALL_MS 1700000000000ull    /* wall time when virtual time is 0 */
#define SIM_PORT 7946u
#define SIM_PORTS 16u                   /* of a host's range */
#define SIM_FRAME_BYTES 114u            /* around a payload: head, length, HMAC tag */
#define SIM_INBOX_MAX 256u              /* datagrams a stalled node's socket holds */
#define SIM_NOBODY UINT32_MAX

struct sim_net {
    double loss, duplicate, reorder;    /* per datagram */
    uint32_t latency_us, jitter_us;     /* between hosts; a tenth of it within one */
    uint32_t reorder_us;                /* how much later a reordered one comes */
};

struct sim_packet {
    struct sim_packet *next;
    struct addr source, to;
    uint32_t from_node, to_node;        /* to_node: who has the address when it arrives */
    uint64_t from_id, to_id;            /* to_id 0: open */
    uint32_t bytes;
    uint8_t label;
    uint8_t payload[];
};

struct sim_node {
    struct swim *swim;                  /* NULL: not running */
    struct addr addr;
    uint64_t id;
    uint32_t host;
    uint32_t life;                      /* counts starts; events of an earlier life are void */
    int64_t skew_ms;                    /* of its wall clock */
    uint64_t started_us;
    uint64_t tick_us;                   /* its pending tick event, 0: none */
    uint64_t stalled_until_us;
    struct sim_packet *inbox, **inbox_end;
    uint32_t inbox_count;
    bool deaf, mute;                    /* loses all that comes, all that goes */
    uint8_t side;                       /* of a partition; unlike sides are cut */
    uint8_t label;                      /* of its cluster */
    bool excused;                       /* stalled or cut: its death is no false one */
    bool left;
    bool self_dead, conflict;           /* news it had, until a test clears it */
    struct swim_stats last;             /* at the end of its last life */
};

struct sim_pair {                       /* a one-way cut */
    uint32_t from, to;
};

enum sim_event_kind { SIM_TICK, SIM_DELIVER, SIM_PROVEN, SIM_PULL_ASKED, SIM_PULL_ANSWERED,
                      SIM_WAKE };

struct sim_event {
    uint64_t at_us, order;
    uint32_t node, life;
    uint8_t kind;
    void *what;
};

struct sim_counts {
    uint64_t events, delivered, lost, duplicated, inbox_dropped;
    uint64_t logs[32];                  /* by enum swim_log */
    uint64_t false_deaths;              /* one node called another dead that ran */
    uint64_t false_deaths_healthy;      /* and that neither stalled nor was cut */
    uint64_t self_deads, conflicts;
    uint64_t sent[16];                  /* by message kind */
};

struct sim;

/* Told of every log effect; for scenarios that measure. */
typedef void sim_watch(struct sim *, uint32_t node, const struct swim_effect *, void *ctx);

struct sim {
    uint64_t seed;
    uint64_t now_us;
    struct prng prng;
    struct sim_net net;
    struct swim_params params;
    size_t payload_bytes_max;

    struct sim_node *nodes;
    uint32_t count, capacity;
    struct sim_event *heap;
    size_t heap_count, heap_capacity;
    uint64_t order;
    uint32_t *at_address;               /* [host * SIM_PORTS + port] -> node */
    uint32_t hosts;
    struct sim_pair *cuts;
    size_t cut_count, cut_capacity;

    struct swim_out out;
    struct sim_counts counts;
    sim_watch *watch;
    void *watch_ctx;
    FILE *trace;                        /* NULL: silent */
    bool check;                         /* safety checks after every step */
    char failure[256];                  /* the first check that failed, or "" */
    struct sim_check *checks;
    int mutation;                       /* see sim_mutations; 0: none */
};

/* `hosts` bounds the addresses that can exist. */
void sim_init(struct sim *, uint64_t seed, uint32_t hosts);
void sim_deinit(struct sim *);

/* A node's place; it does not run yet. Its address is the host's `port`-th. */
uint32_t sim_add(struct sim *, uint32_t host, uint32_t port);

/* Start it, with the host's own range and `seeds` (places) as seeds. It gets a
 * new node id; started_ms is its wall clock. */
void sim_start(struct sim *, uint32_t node, const uint32_t *seeds, size_t seed_count);
void sim_crash(struct sim *, uint32_t node);
void sim_leave(struct sim *, uint32_t node);
void sim_stall(struct sim *, uint32_t node, uint64_t for_ms);
void sim_stall_host(struct sim *, uint32_t host, uint64_t for_ms);
void sim_cut(struct sim *, uint32_t from, uint32_t to);        /* one way */
void sim_mend(struct sim *);                                    /* all cuts, sides, deaf, mute */

/* Make everybody know everybody at once, without a word. After sim_start() of all. */
void sim_converge(struct sim *);

void sim_run(struct sim *, uint64_t for_ms);        /* stops early at a failed check */
bool sim_step(struct sim *);                        /* one event; false: none left, or failed */

bool sim_is_up(const struct sim *, uint32_t node);
uint64_t sim_now_ms(const struct sim *);

/* Everyone that runs lists exactly those of its label that run, with the same
 * ids, and is past warming. */
bool sim_agrees(const struct sim *);
bool sim_run_until_agreed(struct sim *, uint64_t most_ms, uint64_t *took_ms);
/* Why not, in one line. */
void sim_disagreement(const struct sim *, char *out, size_t bytes);

/* What a node counts; of one that is down, what it had counted at its end. */
void sim_node_stats(const struct sim *, uint32_t node, struct swim_stats *);

void sim_fail(struct sim *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* check.c */
void sim_check_begin(struct sim *);
void sim_check_end(struct sim *);
void sim_check_step(struct sim *, uint32_t node, const struct swim_from *from, size_t received);
void sim_check_started(struct sim *, uint32_t node);

#endif
