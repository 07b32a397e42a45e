/* What serve.c (questions), serve_members.c (whom to ask), serve_load.c (loads) and
 * serve_change.c (deletes, pushes), serve_hand.c (entries for others) share.
 * Only they include it.
 */
#ifndef PEERAGE_SERVE_STATE_H
#define PEERAGE_SERVE_STATE_H

#include "limits.h"
#include "owners.h"
#include "serve.h"

#define AVOIDED_MAX 64u
#define REMOTE_BUCKETS 64u
#define OFFERED_MAX 256u
#define CALL_PUSH (UINT64_C(1) << 62)   /* a call id of a push; a peek's is its flight's id */
#define CALL_HAND (UINT64_C(3) << 61)   /* of an offer, and what follows it */

/* A peer that gave no answer, or no loader (rules O2, O5). */
struct avoided {
    struct addr addr;
    uint64_t silent_until_ms;   /* 0: not silent */
    uint64_t probe_until_ms;    /* somebody tries it; the others keep away until then */
    uint64_t busy_until_ms;
    uint64_t slow_until_ms;     /* nothing is asked of it that only may save something */
};

struct loader {
    struct list link;
    bool async;
    uint32_t early_ms;          /* 0: no early refresh */
    size_t bytes;
    uint8_t name[];
};

struct serve {
    struct serve_config config;
    struct rendezvous rendezvous;
    struct store *store;
    struct flights *flights;
    struct deletes *deletes;
    uint64_t channels_until_ms;     /* no delete of a whole channel is remembered longer */
    struct view *view;              /* NULL: the layer is off */
    struct owners owners;           /* by that view */
    struct offered {                /* by the key's hash: when it was answered MISS, from which
                                       the time of what follows counts (O14) */
        uint64_t hash, at_ms;
    } offered[OFFERED_MAX];
    struct list early;              /* serve_early.c */
    size_t early_count;
    struct kin_table *kin;          /* NULL: none yet (serve_kin.c) */
    struct hand *hand;              /* NULL: nothing was handed on yet (serve_hand.c) */
    bool tier;                      /* there is a second tier to ask and to write to */
    struct list queue_sync, queue_async;        /* flights QUEUED, oldest first */
    struct list remote[REMOTE_BUCKETS];         /* remote waiters by connection */
    size_t remote_count;
    struct list looking;            /* local waiters until the looking has ended (M1) */
    struct list loaders;
    bool start_loop;
    struct avoided avoided[AVOIDED_MAX];
    unsigned avoided_count;
    uint64_t due_ms;
    struct serve_stats stats;
    struct store_dropped dropped;
};

/* Whether a frame can hold the value, whatever else its head holds. NULL: memory ran out
 * where it came from. */
static inline bool travels(const struct blob *b)
{
    return !b || b->bytes <= FRAME_BYTES_MAX - HEAD_BYTES_MAX;
}

/* serve_members.c */
/* Is it of no use to peek there, or to send something? */
bool is_silent(struct serve *, const struct addr *, uint64_t now_ms);
/* It let a peek's short time pass: no reason yet for askers to avoid it. */
void note_slow(struct serve *, const struct addr *, uint64_t now_ms);

/* serve.c */
#define CHANNEL_NAME_BYTES 9u
/* Under which name the deletes of a whole channel are remembered. */
struct span channel_name(uint64_t channel_hash, uint8_t name[CHANNEL_NAME_BYTES]);
/* For so long a delete is remembered: every load that began before it has ended then (D1). */
static inline uint64_t deletes_remembered_ms(const struct serve *s)
{
    return (uint64_t)s->config.load_timeout_ms + 2 * s->config.timeout_ms;
}
uint64_t delete_id_of(struct serve *, struct span key, struct span channel, uint64_t now_ms);
/* The same taken apart: the key's and the channel's. */
void delete_ids_of(struct serve *, struct span key, struct span channel, uint64_t now_ms,
                   uint64_t out[2]);
/* By the channel's hash, where its text is not known. */
uint64_t delete_id_by(struct serve *, struct span key, uint64_t channel_hash, uint64_t now_ms);
uint32_t left_ms(uint64_t until_ms, uint64_t now_ms);
bool may_store(struct serve *, uint64_t now_ms);
void fill_hit(struct serve *, const struct store_hit *, struct span key, struct span channel,
              uint64_t now_ms, struct answer *);
void join(struct serve *, struct flight *, struct waiter *, uint64_t now_ms, struct effects *);
void complete(struct serve *, struct waiter *, const struct answer *, uint64_t now_ms,
              struct effects *);
void complete_all(struct serve *, struct flight *, const struct answer *, uint64_t now_ms,
                  struct effects *);
void due_by(struct serve *, uint64_t at_ms);
struct waiter *remote_waiter(struct serve *, uint64_t conn_id, uint64_t request_id);
void forget_remote(struct serve *, struct waiter *);

/* serve_load.c */
void begin_owned(struct serve *, struct flight *, bool owner_silent, uint64_t now_ms,
                 struct effects *);
void run_here(struct serve *, struct flight *, void *port, bool run_inline, uint64_t now_ms);
void land(struct serve *, struct flight *, const struct loaded *items, unsigned count,
          uint64_t delete_id, enum tier, uint64_t since_ms, uint64_t now_ms, struct effects *);
/* The entry that `item` makes when its ttl counts from since_ms on (O14). */
struct store_item store_item_of(const struct loaded *item, struct span key, uint64_t channel_hash,
                                uint64_t since_ms);
void lose_flight(struct serve *, struct flight *, uint64_t now_ms, struct effects *);
void refresh_behind(struct serve *, const struct message *ask, uint64_t now_ms, struct effects *);
const struct loader *loader_find(const struct serve *, struct span name);
void permit_frame(struct serve *, struct waiter *, const struct message *, struct blob *,
                  uint64_t now_ms, struct effects *);
bool peeked(struct serve *, uint64_t flight_id, const struct message *, struct blob *,
            uint64_t now_ms, struct effects *);

void choose_loader(struct serve *, struct flight *, uint64_t now_ms, struct effects *);

/* serve_tier.c */
bool is_alone(const struct serve *);    /* nobody else takes part in the contest */
/* True: the flight asks the second tier now, and goes on to choose_loader by itself. */
bool tier_first(struct serve *, struct flight *, enum tier_want, uint64_t now_ms,
                struct effects *);
void put_behind(struct serve *, const struct flight *, const struct loaded *, struct span key,
                uint64_t now_ms, struct effects *);
/* flight_end, and the tier hears of it. */
void end_flight(struct serve *, struct flight *, struct effects *);

/* serve_change.c */
int put_entry(struct serve *, const struct store_item *, uint64_t now_ms);
/* parent: the hash of the key that it is stored with, 0: none */
void push(struct serve *, const struct loaded *, uint64_t parent, struct span channel, const struct addr *,
          uint64_t node_id, uint64_t now_ms, struct effects *);
void push_taken(struct serve *, uint64_t conn_id, const struct message *, struct blob *,
                uint64_t now_ms, struct effects *);

/* serve_early.c */
void early_note(struct serve *, const struct flight *, uint32_t early_ms, uint64_t expires_ms,
                uint64_t now_ms);
void early_tick(struct serve *, uint64_t now_ms, struct effects *);
void early_free(struct serve *);

/* serve_kin.c: `key` is stored with the key of this hash. False: out of memory, keep it not */
bool kin_add(struct serve *, uint64_t parent, struct span key);
uint64_t kin_parent(const struct serve *, struct span key);     /* 0: none */
void kin_free(struct serve *);

/* serve_hand.c */
void hand_begin(struct serve *, struct view *before, uint64_t now_ms);     /* takes it */
void hand_end(struct serve *);
void hand_on(struct serve *, uint64_t now_ms, struct effects *);
void hand_reply(struct serve *, uint64_t call_id, const struct message *, uint64_t now_ms,
                 struct effects *);

#endif
