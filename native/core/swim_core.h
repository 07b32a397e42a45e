/* What the files of the membership protocol share. Nobody else includes this. */
#ifndef PEERAGE_SWIM_CORE_H
#define PEERAGE_SWIM_CORE_H

#include "limits.h"
#include "prng.h"
#include "swim.h"
#include "swim_gossip.h"
#include "swim_members.h"
#include "swim_suspicion.h"
#include "swim_wire.h"

#define HELPERS_MAX 8u
#define RELAYS_MAX 32u              /* probes done for others at one time */
#define ADMISSIONS_MAX 256u         /* joins being proven */
#define ADMISSION_MS 2000u
#define PULL_MS 5000u               /* a pull that takes longer is given up */
#define PULL_WAIT_MS_MAX 60000u
#define VERSION_JUMP_MAX (1u << 16)                     /* M6 */
#define FUTURE_MS_MAX 60000u                            /* M6 */
#define OBSERVER_TOMBSTONE_MS 60000u
#define TABLE_NEWS_MAX 40u          /* of a table, passed on: a datagram's worth */
#define BACKLOG_MIN 100u            /* news queued, three datagrams' worth: gossip is behind */
#define WITNESSES_WANTED 8u         /* members that look for themselves, of all */
#define EVICT_S_MIN 60u             /* the table full: tombstones this old may go */
#define NEWS_S_MAX 10u              /* a death this old is hearsay */
#define SWEEP_EVERY_MS 10000u
#define TOLD_AT_ONCE_MAX 64u
#define ALONE_WARNING_MS 10000u                         /* M4 */
#define ANSWERS_MAX 32u             /* accusations and refutations answered at once... */
#define ANSWER_EVERY_MS 50u         /* ...and then one each, so that nobody bounces for ever */

struct probe {
    bool active, asked, acked, heard;   /* heard: anything from anyone since it began */
    uint8_t helper_count, nack_count;
    uint32_t target, sequence;
    uint64_t node_id;
    uint64_t began_ms, ask_ms, end_ms;
    uint64_t helpers[HELPERS_MAX];      /* node ids; zeroed once nacked */
};

/* A probe made for someone else. */
struct relay {
    bool used, nacked;
    uint32_t sequence, origin_sequence;
    struct addr origin;
    uint64_t origin_id, target_id;
    uint64_t nack_ms, end_ms;
};

/* A join that waits for proof both ways (M2). */
struct admission {
    struct update joiner;
    struct addr source;
    uint64_t token, end_ms;
    uint64_t digest;
    uint32_t live;
    bool proven_udp, proven_tcp;
};

struct seed {
    struct addr *addrs;
    size_t count;
    uint64_t asked_ms;
    bool asked;
};

struct swim {
    struct swim_config config;
    struct swim_params p;
    struct prng prng;
    struct members members;
    struct gossip gossip;
    struct suspicions suspicions;
    enum swim_phase phase;

    struct probe probe;
    uint64_t probe_ms;                  /* the next probe begins */
    uint32_t sequence;
    uint32_t health;
    uint64_t deaf_since_ms;             /* NEVER_MS: not deaf */
    struct relay relays[RELAYS_MAX];
    uint32_t relay_count;

    uint64_t gossip_ms;                 /* the next round, if anything is queued */
    uint64_t mismatch_ms;               /* digests differ since... */
    uint32_t mismatches;                /* ...so many times, less those that agreed */
    uint64_t pull_wait_ms;              /* how long they may; grows while pulls bring nothing */
    uint64_t pull_end_ms;               /* NEVER_MS: none under way */
    struct addr pull_addr;
    uint64_t pull_id;
    uint64_t mended;                    /* differences ever found, theirs or ours newer */
    uint64_t mended_at_pull;

    struct seed seeds[SEEDS_MAX];
    size_t seed_next;
    uint64_t started_looking_ms, looking_ms, answered_ms, warm_ms;
    uint32_t rounds;
    bool admitted, warned_alone, have_seeds;
    uint64_t rejoin_ms, alone_ms, alone_since_ms;
    uint64_t rejoin_below;              /* dead addresses tried, as a place in their order */
    uint32_t rejoin_newest_s;
    struct addr greet;                  /* somebody new lives there: join it (W6) */
    uint64_t greet_ms;
    struct admission *admissions;
    uint32_t admission_count, admission_capacity;

    uint32_t answers;                   /* tokens */
    uint64_t answers_ms;
    uint64_t sweep_ms;
    uint64_t due_ms;                    /* what swim_due_ms() has promised */
    struct swim_stats stats;
};

/* Who a datagram or page came from, while it is being read. */
struct heard {
    struct addr source;
    uint64_t node_id;
    bool table;                 /* a page or welcome: its dead are hearsay */
    uint32_t passed_on;         /* how much of a table was */
    bool accused;               /* out: something in it accuses us */
    uint32_t accuser;           /* the sender's record, MEMBER_NONE if unknown */
};

/* Tombstones are stamped in seconds; the offset leaves room for those that are
 * older than this machine's boot. */
static inline uint32_t stamp(uint64_t now_ms)
{
    return (uint32_t)(now_ms / 1000) + 200000u;
}

static inline struct member *self_of(const struct swim *s)
{
    return members_at(&s->members, MEMBER_SELF);
}

static inline struct standing standing_of(const struct member *m)
{
    return (struct standing){m->state, m->flags, m->speaks_min, m->speaks_max,
                             m->node_id, m->started_ms, m->version, m->since_s};
}

static inline struct host host_of(const struct addr *a)
{
    struct host h;
    memcpy(h.ip, a->ip, sizeof h.ip);
    return h;
}

/* swim_out.c: effects */
struct sending {
    uint32_t first, second;     /* records that go in before all others, or MEMBER_NONE */
    bool gossip;                /* fill up with news */
    bool table;                 /* fill up with the table; sets message.complete */
    bool padded;                /* to the most a payload may have (W5) */
    size_t bytes_max;           /* 0: the most a payload may have */
};
void swim_send(struct swim *, uint64_t now_ms, const struct addr *, uint64_t node_id,
               struct swim_message *, const struct sending *, struct swim_out *);
void swim_log(struct swim_out *, enum swim_log, const struct addr *, uint64_t node_id,
              uint64_t other_id, uint64_t value);
void swim_effect(struct swim_out *, enum swim_effect_kind, const struct addr *,
                 uint64_t node_id, struct span payload);
/* What this node has to say of itself, to as many as a burst allows; gossip does the rest. */
void swim_tell_at_once(struct swim *, uint64_t now_ms, struct swim_out *);
struct update swim_update_of(const struct swim *, uint32_t i, uint64_t now_ms);
uint32_t swim_log_members(const struct swim *);
bool swim_may_answer(struct swim *, uint64_t now_ms);   /* takes a token */

/* swim.c: work out what is due; the end of every call that changes something */
void swim_reckon(struct swim *, uint64_t now_ms);

/* swim_merge.c: what is said of a member */
void swim_merge(struct swim *, uint64_t now_ms, uint64_t wall_ms, const struct update *,
                struct heard *, struct swim_out *);
void swim_accuse(struct swim *, uint64_t now_ms, uint32_t i, struct swim_out *);
void swim_forget(struct swim *, uint32_t i);     /* a tombstone that has had its time */
void swim_bury(struct swim *, uint64_t now_ms, uint32_t i, struct swim_out *);
void swim_renew(struct swim *, uint8_t flags, struct swim_out *);   /* our flags, new version */
void swim_set_phase(struct swim *, enum swim_phase, struct swim_out *);

/* swim_join.c: admission, seeds */
void swim_join_tick(struct swim *, uint64_t now_ms, struct swim_out *);
uint64_t swim_join_due_ms(const struct swim *);
void swim_join_send(struct swim *, uint64_t now_ms, const struct addr *, struct swim_out *);
void swim_join_heard(struct swim *, uint64_t now_ms, uint64_t wall_ms, const struct swim_message *,
                     struct heard *, size_t bytes, struct swim_out *);
void swim_challenge_heard(struct swim *, uint64_t now_ms, const struct swim_message *,
                          const struct heard *, struct swim_out *);
void swim_proof_heard(struct swim *, uint64_t now_ms, uint64_t wall_ms, const struct swim_message *,
                      const struct heard *, struct swim_out *);
void swim_tcp_proven(struct swim *, uint64_t now_ms, uint64_t wall_ms, const struct addr *,
                     uint64_t node_id, bool proven, struct swim_out *);
void swim_welcome_heard(struct swim *, uint64_t now_ms, const struct swim_message *,
                        const struct heard *, struct swim_out *);
void swim_table_held(struct swim *, uint64_t now_ms, struct swim_out *);

/* swim_pull.c: digests and pages */
void swim_digest_heard(struct swim *, uint64_t now_ms, uint32_t sender, uint64_t digest,
                       struct swim_out *);
void swim_pull_end(struct swim *, uint64_t now_ms, bool complete, struct swim_out *);
void swim_pull_start(struct swim *, uint64_t now_ms, const struct addr *, uint64_t node_id,
                     struct swim_out *);

#endif
