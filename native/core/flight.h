/* Loads in progress and everyone waiting for them.
 *
 * A flight either *owns* (this node acts as the key's owner: it loads, or has granted
 * the leave to load) or *asks* another node. Per key there is at most one attached
 * flight of each role: a request from outside joins only one that owns (rule O4), so two
 * nodes with opposite views never wait on each other. A delete detaches a flight (D1): it
 * goes on for its waiters, but is not found, joined or stored any more.
 *
 * Only data and its doors here; who does what when is decided in serve.c.
 * Under the shell's short lock.
 */
#ifndef PEERAGE_FLIGHT_H
#define PEERAGE_FLIGHT_H

#include "addr.h"
#include "base.h"
#include "blob.h"
#include "message.h"

enum flight_role { FLIGHT_OWNS, FLIGHT_ASKS };

/* OWNS: PEEKING -> TIER -> QUEUED | RUNNING | PERMITTED, QUEUED -> RUNNING, the first two
 * where there is something to ask; ASKS: ASKING -> RUNNING, or by TIER as an owning one.
 * Every state may end. */
enum flight_state {
    FLIGHT_PEEKING,     /* asks those who may have it already (O3) */
    FLIGHT_TIER,        /* asks the second tier: for the value, or for the lease to load it */
    FLIGHT_QUEUED,      /* a registered loader waits to be taken by Python */
    FLIGHT_RUNNING,     /* this process runs the loader: accepted (O5) */
    FLIGHT_PERMITTED,   /* a remote asker runs its own loader (O6) */
    FLIGHT_ASKING,      /* its leader asks another node */
};

/* What a waiter, or the one who asked, is told. */
enum outcome {
    OUTCOME_WAIT,       /* joined: the answer comes later */
    OUTCOME_VALUE,
    OUTCOME_FAILED,     /* the loader raised; the blob is the error */
    OUTCOME_MISS,
    OUTCOME_LOAD,       /* you hold the leave: run the loader, then finish, fail or lose load_id */
    OUTCOME_ASK,        /* you lead: ask the ranks given, then report under load_id */
    OUTCOME_RETRY,      /* the load was lost or the members changed: ask again */
    OUTCOME_BUSY,
    OUTCOME_NOT_ME,
    OUTCOME_RECURSIVE,
    OUTCOME_TIMEOUT,
    OUTCOME_CLOSED,
    OUTCOME_FULL,
    OUTCOME_NOMEM,
};

/* What a flight wants of the second tier before anything is loaded. */
enum tier_want {
    TIER_WANT_NONE,     /* peers coordinate: an owner takes no lease (O7) */
    TIER_WANT_VALUE,    /* this node acts for an owner that is silent: only a look */
    TIER_WANT_LEASE,    /* nobody coordinates but the tier */
};

enum tier { TIER_LOCAL, TIER_OWNER, TIER_HEIR, TIER_REDIS, TIER_LOAD, TIER_COUNT };

/* One entry that a load made: the value asked for, or another of its channel (O14). */
struct loaded {
    struct span key;            /* borrowed */
    struct blob *blob;
    uint8_t value_type;
    uint32_t ttl_ms, stale_ms;  /* ttl_ms 0: hand it to the callers, store nothing;
                                   UINT32_MAX: for ever */
    uint32_t age_ms;            /* how long ago its owner stored it; 0 for a fresh one */
};

/* Several of them, shared by the waiters. Refcounted like a blob; owns its keys and a
 * reference to each value. */
struct bundle;
struct bundle *bundle_new(const struct loaded *items, unsigned count);  /* NULL: out of memory */
struct bundle *bundle_ref(struct bundle *);
void bundle_unref(struct bundle *);
unsigned bundle_count(const struct bundle *);
const struct loaded *bundle_at(const struct bundle *, unsigned i);

struct answer {
    enum outcome outcome;
    enum tier tier;
    struct blob *blob;          /* a reference, or NULL */
    struct bundle *also;        /* a reference, or NULL: further entries of the channel */
    uint8_t value_type;
    bool stale;
    uint64_t stored_ms, expires_ms, stale_until_ms;     /* on this node's clock */
    uint64_t delete_id;         /* this node's id for the key when it answered (D2) */
    uint64_t deleted_ms;        /* OUTCOME_ASK: when the delete of that id was applied, 0: none */
    uint64_t load_id;           /* the flight */
};

void answer_deinit(struct answer *);    /* unrefs */

struct flight;

/* One who waits. The local caller's or the connection's memory; linked into its flight. */
struct waiter {
    struct list link;           /* in the flight, or in effects.completed */
    struct list of_conn;        /* in its connection's list of waiters (remote) */
    struct flight *flight;      /* NULL: in none */
    bool remote;
    bool run_inline;            /* local: a blocked thread, which loads by itself (serve.h) */
    bool loads;                 /* could run a loader of its own */
    bool accepted;              /* has been told ACCEPTED */
    uint64_t until_ms;          /* remote: withdrawn as busy if not accepted by then (O5) */
    uint64_t conn_id, request_id, node_id;      /* remote */
    void *port, *token;         /* local: where to wake, and whom */
    struct answer answer;       /* local: filled when completed */
    struct bundle *gathered;    /* remote holder: what its LOADED frames brought so far */
};

/* Who may have the value already. */
#define FLIGHT_PEERS_MAX 4u
struct flight_peer {
    struct addr addr;
    uint64_t node_id;
};

struct flight {
    uint64_t id;                /* never reused in a process */
    enum flight_role role;
    enum flight_state state;
    bool attached;
    bool async;                 /* QUEUED: for the start loop; RUNNING: may be cancelled */
    bool stay;                  /* RUNNING: goes on although nobody waits (a sync loader) */
    struct list waiters;
    struct list queue;          /* in serve's queue of loads to take */
    enum tier_want wants;
    bool tiered;                /* has been in FLIGHT_TIER, once a flight */
    bool fresh;                 /* a refresh: what others have is not wanted */
    struct waiter *holder;      /* PERMITTED: the remote waiter that loads */
    struct flight_peer peers[FLIGHT_PEERS_MAX];     /* PEEKING: whom, one after the other */
    uint8_t peer_count, peeks;  /* PEEKING: how many they are, and how many of them were asked */
    uint64_t asked_ms;          /* PEEKING: when the last of these was */
    bool waited;                /* PEEKING: for a load that runs there */
    void *port;                 /* RUNNING: the local holder's port, NULL: a thread */
    uint64_t started_ms;
    uint64_t until_ms;          /* of the state: peek's, permit's or load's end */
    uint64_t working_ms;        /* next "still working" */
    uint64_t delete_id;         /* this node's id for the key at the beginning (D1) */
    uint64_t channel_hash;
    uint32_t ttl_ms, stale_ms, load_timeout_ms;
    uint8_t chain_count;
    uint64_t chain[CHAIN_MAX];
    struct span key, channel, loader;           /* own copies; channel never empty */
    struct list by_key, by_id;  /* the table's */
};

struct flights;
struct flights *flights_new(const uint8_t hash_key[16]);    /* NULL: out of memory */
void flights_free(struct flights *);

/* The attached flight, or NULL. */
struct flight *flights_find(struct flights *, struct span key, enum flight_role);
struct flight *flights_by_id(struct flights *, uint64_t id);
/* A new attached flight; copies the spans. NULL: out of memory. */
struct flight *flights_add(struct flights *, enum flight_role, const struct message *ask,
                           uint64_t channel_hash, uint64_t now_ms);
void flight_detach(struct flights *, struct flight *);
/* ASKS becomes OWNS; there must be no attached owning flight of the key. */
void flight_own(struct flights *, struct flight *);
/* Out of every list, freed. It has no waiters any more. */
void flight_end(struct flights *, struct flight *);
/* Each flight in turn (any order, attached or not): NULL starts, NULL ends. The current
 * one may be ended by the caller after the next was fetched. */
struct flight *flights_next(struct flights *, const struct flight *);
size_t flights_count(const struct flights *);

#endif
