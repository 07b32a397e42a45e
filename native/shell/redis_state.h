/* What redis.c, redis_tier.c, redis_tally.c and redis_marks.c share. Only they include it. */
#ifndef PEERAGE_SHELL_REDIS_STATE_H
#define PEERAGE_SHELL_REDIS_STATE_H

#include "shell/redis.h"
#include "shell/redis_link.h"
#include "shell/redis_name.h"
#include "shell/redis_url.h"

#define ASK_BUCKETS 64u
#define NAME_BYTES_MAX 2048u        /* of a Redis key */

enum redis_phase {
    PHASE_REST,         /* until retry_ms */
    PHASE_NAMING, PHASE_DIALLING, PHASE_GREETING,   /* until phase_ms */
    PHASE_UP
};

struct redis {
    struct loop *loop;
    struct peerage *peerage;
    const struct redis_url *url;
    const char *prefix;
    uint64_t id, count;             /* in lease tokens: random, and one more each */
    enum redis_phase phase;
    struct redis_link *link;
    struct redis_lookup *lookup;
    uint64_t phase_ms, retry_ms, backoff_ms;
    bool ever, said_away;           /* was up; the log knows that it is away */
    bool leaving, left, closing;
    uint64_t leave_ms;
    struct list commands;           /* struct command, the oldest first */
    uint64_t trip_ms;               /* the last round trip */
    /* redis_tier.c */
    struct list asks[ASK_BUCKETS];  /* struct ask by of */
    struct list deletes;            /* struct removal, not acknowledged yet */
    unsigned delete_count;
    size_t put_bytes;               /* on their way */
    uint64_t tier_ms;               /* when something of it is due */
    unsigned tallies_behind;        /* redis_tally.c: adds under way that nobody waits for */
    /* redis_marks.c */
    uint64_t marks_ms;              /* the next refresh; NEVER_MS: not */
    struct addr *found;             /* by the scan under way */
    unsigned found_count;
    uint64_t error_ms;              /* when an error was last logged */
};

/* An answer, or NULL: none. On the loop thread, never within redis_send. */
typedef void redis_done(struct redis *, void *token, const struct redis_answer *);

/* redis.c. False: not connected, or no memory; `done` is never called. */
bool redis_send(struct redis *, unsigned count, const struct span *words, redis_done *, void *token);
static inline bool redis_is_up(const struct redis *r) { return r->phase == PHASE_UP && !r->closing; }
/* An error answer: counted, and logged now and then. */
void redis_error(struct redis *, const struct redis_answer *);
struct span redis_digits(uint64_t, char out[24]);

/* redis_tier.c */
void redis_tier_init(struct redis *);
void redis_tier_deinit(struct redis *);
void redis_tier_up(struct redis *);     /* what waited for the connection */
void redis_tier_away(struct redis *);   /* whoever waits for it goes on without */
void redis_tier_tick(struct redis *, uint64_t now_ms);
void redis_tier_leave(struct redis *);  /* whose leases we hold need not run out first */

/* redis_tally.c */
void redis_tally(struct redis *, const struct effect *);    /* EFFECT_TIER_TALLY */

/* redis_marks.c */
void redis_marks_tick(struct redis *, uint64_t now_ms);
void redis_marks_remove(struct redis *);
void redis_marks_deinit(struct redis *);

#endif
