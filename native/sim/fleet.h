/* Ownership on virtual time: several whole nodes with hand-fed members, joined by a network
 * that only delays, and askers that drive their queries as the product's do. One seed is
 * one run. What is played: who asks, how long loads take, who falls silent, dies, gets
 * stuck; what is read: how each question ended, how often each key was loaded, and when.
 */
#ifndef PEERAGE_SIM_FLEET_H
#define PEERAGE_SIM_FLEET_H

#include <stdbool.h>
#include <stdint.h>

#include "core/node.h"
#include "core/node_tally.h"

#define FLEET_NODES_MAX 16u
#define FLEET_WALL_MS 1700000000000u        /* the wall's clock is so far ahead of now */

struct fleet_config {
    unsigned nodes;
    uint32_t latency_ms, load_ms;
    uint32_t spread_ms;         /* the way from one node to another may take so much longer */
    uint32_t skew_ms;           /* node i's wall clock is i times so far ahead */
    uint32_t timeout_ms, load_timeout_ms;
    bool heir;
    uint64_t seed;
};

enum fleet_how {
    FLEET_LOADS = 1,            /* a closure stands behind the question */
    FLEET_REGISTERED = 2,       /* its loader is registered on every node */
    FLEET_THREAD = 4,           /* a blocked thread asks, not an event loop */
    FLEET_FRESH = 8,
};

struct fleet_ask {
    bool done;
    enum outcome outcome;
    enum tier tier;
    uint64_t asked_ms, done_ms;
    char value[64];
};

struct fleet;

/* Every node starts with a view of all, ready. Aborts when out of memory. */
struct fleet *fleet_new(const struct fleet_config *);
void fleet_free(struct fleet *);

uint64_t fleet_now_ms(const struct fleet *);
uint64_t fleet_wall_ms(const struct fleet *);
struct node *fleet_node(struct fleet *, unsigned i);
void fleet_run(struct fleet *, uint32_t ms);

/* Hand node i a view: bit j of `members` for node j, bit j of `warming` likewise. */
void fleet_view(struct fleet *, unsigned i, uint32_t members, uint32_t warming);
/* A view of all in which nodes 0 and 1 have each other's scores: where they are first and
 * second in rank, this node takes the one for the owner that the others take for the heir. */
void fleet_disagree(struct fleet *, unsigned i);
/* The same view for every live node. */
void fleet_views(struct fleet *, uint32_t members);
/* From the next view on node i is seen to drain, by itself too, until it starts anew. */
void fleet_drain(struct fleet *, unsigned i);
/* Has a draining node handed on what it had? */
bool fleet_handed_on(struct fleet *, unsigned i);

void fleet_kill(struct fleet *, unsigned i);            /* its connections close, it refuses */
void fleet_start(struct fleet *, unsigned i);           /* anew, another node id, empty */
void fleet_silence(struct fleet *, unsigned i, bool);   /* takes and says nothing (SIGSTOP) */
void fleet_stick(struct fleet *, unsigned i, bool);     /* its Python takes no load */
void fleet_fail_loads(struct fleet *, bool);

/* The channel of a key: "c" of "c/k", and of a key without a slash the key. */
struct span fleet_channel(const char *key);
/* Which node owns a key in a view of all nodes that live; rank 1 is its heir. */
unsigned fleet_rank(struct fleet *, const char *key, unsigned rank);

/* Ask; the result lives as long as the fleet. */
const struct fleet_ask *fleet_ask(struct fleet *, unsigned i, const char *key, unsigned how,
                                  uint32_t ttl_ms, uint32_t stale_ms);
/* The asker gives up (as a cancelled task does). */
void fleet_leave(struct fleet *, const struct fleet_ask *);
/* Delete the key from node i, or set it; when done, how many acknowledged and how many could
 * not be reached. */
struct fleet_change {
    bool done;
    unsigned acknowledged, unreached;
};
const struct fleet_change *fleet_delete(struct fleet *, unsigned i, const char *key);
const struct fleet_change *fleet_delete_channel(struct fleet *, unsigned i, const char *channel);
const struct fleet_change *fleet_set(struct fleet *, unsigned i, const char *key,
                                     const char *value, uint32_t ttl_ms);

/* Loads that began for the key, and those that ended. */
unsigned fleet_loads(const struct fleet *, const char *key);
unsigned fleet_loads_ended(const struct fleet *, const char *key);
/* Does node i's store hold the key now? */
bool fleet_holds(struct fleet *, unsigned i, const char *key);
/* And is it this value? */
bool fleet_holds_value(struct fleet *, unsigned i, const char *key, const char *value);
const struct serve_stats *fleet_stats(struct fleet *, unsigned i);
size_t fleet_flights(struct fleet *, unsigned i);

#endif
