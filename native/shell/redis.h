/* Redis, the optional fallback: a second tier of values and the lease to load, what is
 * deleted removed there too, and markers by which nodes find each other. All on the loop
 * thread, nothing blocks; with REDIS_URL unset none of it exists (`loop->redis` is NULL).
 *
 *   redis.c        the connection's life: name, connect, greet, deadlines, backoff
 *   redis_tier.c   what core wants of the second tier (EFFECT_TIER_...)
 *   redis_tally.c  sums of tallies
 *   redis_marks.c  heartbeat markers
 *   redis_link.c   hiredis; redis_name.c: the host's name; redis_url.c: the setting
 */
#ifndef PEERAGE_SHELL_REDIS_H
#define PEERAGE_SHELL_REDIS_H

#include <stdatomic.h>

#include "core/effects.h"
#include "peerage.h"

struct loop;
struct redis;

enum redis_phase_seen { REDIS_OFF, REDIS_TRYING, REDIS_UP, REDIS_AWAY };

struct redis_counters {
    atomic_int seen;            /* enum redis_phase_seen */
    atomic_uint_fast64_t misses, leases, waits, writes, writes_refused, writes_lost;
    atomic_uint_fast64_t deletes, connects, timeouts, errors;
    atomic_uint_fast64_t tallies, tallies_lost;
};

/* Under life, before the loop thread runs. NULL: not set, this build can't (a line says so), or
 * no memory. */
struct redis *redis_start(struct loop *);
/* On the loop thread, first thing: begin to connect. NULL is fine, here and below. */
void redis_run(struct redis *);
/* On the loop thread: take the marker away, let what was written go out; then, at the latest
 * in a moment, it has left. */
void redis_leave(struct redis *);
bool redis_has_left(const struct redis *);
/* After the loop thread has ended: everything is freed. */
void redis_stop(struct loop *);

void redis_carry(struct redis *, struct effect *);      /* EFFECT_TIER_...; takes what it holds */
uint64_t redis_due_ms(const struct redis *);            /* NEVER_MS for NULL */
void redis_tick(struct redis *, uint64_t now_ms);

/* A start waits until it is known whether Redis is there; false: it is not, and `line` says
 * so (R1). Any thread. */
bool redis_wait(struct peerage *, char line[PEERAGE_LINE_MAX]);

#endif
