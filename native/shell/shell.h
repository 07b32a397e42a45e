/* One node with its threads: what hides behind `peerage` in the public header.
 *
 * Who may touch what (rule O12):
 *   lock        `node`'s store, flights and view, the ports' lists, permits; short: nothing
 *               is hashed, sent, waited for or given back to the application under it.
 *               Taken through turn.h, which delivers what comes of it.
 *   loop thread `node`'s membership and everything of struct loop.
 *   life        start, close and what changes only there.
 * Order: life before lock; mailbox, notices and pool have locks of their own, taken last.
 */
#ifndef PEERAGE_SHELL_SHELL_H
#define PEERAGE_SHELL_SHELL_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/node.h"
#include "peerage.h"
#include "shell/mailbox.h"
#include "shell/notice.h"
#include "shell/pool.h"
#include "shell/redis.h"
#include "shell/settings.h"

#define PERMIT_BUCKETS 64u
#define OWN_HOSTS_MAX 64u

/* Counters that are not the core's. Relaxed: each is right, together they may be torn. */
struct counters {
    atomic_uint_fast64_t asks_by_threads, asks_by_ports, calls_by_loop, requests;
    atomic_uint_fast64_t verified;  /* large values, by the loop thread for event loops */
    atomic_uint_fast64_t dials, dials_unix, dials_failed, strangers, redials;
    atomic_uint_fast64_t spins, spins_in_vain;
    atomic_uint_fast64_t frames_in, frames_out, datagrams_in, datagrams_out, datagrams_refused;
    atomic_uint_fast64_t accepted, refused_cidr, refused_full, cut, broken, inbound, changes_late;
    atomic_uint_fast64_t gossip_refused, updates_refused, joins_challenged;
    atomic_uint_fast64_t verdicts[VERDICT_COUNT];
};

static inline void count_more(atomic_uint_fast64_t *c, uint64_t more)
{
    atomic_fetch_add_explicit(c, more, memory_order_relaxed);
}

static inline void count(atomic_uint_fast64_t *c) { count_more(c, 1); }

struct peerage {
    unsigned fork_count;            /* peerage_fork_count when it was made */
    struct settings settings;
    pthread_mutex_t lock;
    struct node *node;
    struct list ports, idle_ports;  /* struct port by of_node */
    unsigned idle_count;
    struct port *start_port;        /* runs the registered async loaders, or NULL */
    struct list permits[PERMIT_BUCKETS];
    pthread_cond_t take;            /* loader threads parked in peerage_take */
    unsigned takers_parked, takes_owed;
    pthread_cond_t changed;         /* a phase, a flight's end: who starts or closes waits */
    atomic_uint parcels_under_way;  /* see turn.c: answers that the loop thread has yet to send */
    bool closed;                    /* no question is begun any more */
    uint64_t loop_wakes_ms;         /* what the loop thread's timer for flights is set to;
                                       NEVER_MS also where there is no loop thread */
    atomic_uint_fast64_t hits_again;    /* of peerage_hit_again, which has no lock */
    atomic_uint absences;           /* how often this process stood still for so long (turn.c) */
    atomic_uint_fast64_t away_ms;   /* from then on: was this process stopped, and declared
                                       dead? See turn.c. NEVER_MS: no matter. Written under
                                       the lock */
    struct counters counters;
    struct redis_counters redis;
    struct notices notices;
    struct mailbox mailbox;
    struct pool pool;
    /* Set by start before the loop thread runs, then constant until that is joined (an
     * observer's later port excepted, which changes `self` under the lock). */
    pthread_mutex_t life;
    struct loop *loop;              /* NULL: not running */
    pthread_t thread;
    bool thread_runs;
    uint64_t node_id;
    struct addr self;
    struct addr own_hosts[OWN_HOSTS_MAX];
    size_t own_hosts_count;
    atomic_int state;               /* enum peerage_state */
};

/* An inherited node in a fork's child. */
static inline bool shell_is_foreign(const struct peerage *p)
{
    return p->fork_count != peerage_fork_count;
}

#endif
