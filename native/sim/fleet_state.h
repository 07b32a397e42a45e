/* What fleet.c (the network, the nodes) and fleet_ask.c (who asks) share. Only they include it.
 */
#ifndef PEERAGE_SIM_FLEET_STATE_H
#define PEERAGE_SIM_FLEET_STATE_H

#include "core/prng.h"
#include "fleet.h"

enum event_kind {
    EVENT_REQUEST,      /* a frame reaches the server of a connection */
    EVENT_REPLY,        /* a frame reaches its client */
    EVENT_CLOSED,       /* the client learns that its connection is closed, or was refused */
    EVENT_DEADLINE,     /* of a connection's call, or of an asker's query */
    EVENT_TAKE,         /* Python looks for registered loads */
    EVENT_FINISH,       /* a loader ends */
};

struct asker;

/* One exchange: an asker's question to one rank, or a node's call. */
struct connection {
    unsigned from, to;
    uint64_t from_id, to_id;        /* node ids: a node that started anew is another */
    bool closed;
    uint64_t call_id;               /* a call of the node `from`, */
    bool changes;                   /* which is a set or delete */
    struct asker *asker;            /* or a question of its asker */
};

struct event {
    uint64_t due_ms, order;
    enum event_kind kind;
    unsigned node;
    uint64_t node_id, conn, load_id;
    struct asker *asker;
    struct effect frame;            /* message with its own text and value */
    char key[64];                   /* EVENT_FINISH: what was loaded, and for how long */
    uint32_t ttl_ms, stale_ms;
};

struct asker {
    struct fleet_ask result;
    struct waiter waiter;
    struct question question;
    struct query query;
    unsigned node, how;
    uint64_t node_id, load_id, conn;        /* conn: of the question under way, or its permit */
    bool permitted, left;
    uint64_t permit_delete_id;
    char key[64];
    struct bundle *gathered;
    uint64_t sent_ms;
};

struct changer {
    struct fleet_change result;
    struct waiter waiter;
};

struct tally_of {
    char key[64];
    unsigned begun, ended;
};

struct station {
    struct node *node;
    struct addr addr;
    uint64_t node_id, started_ms;
    bool dead, silent, stuck;
    struct event *held;             /* what came while it was silent */
    size_t held_count;
};

struct fleet {
    struct fleet_config config;
    struct prng prng;
    uint64_t now_ms, order;
    struct station stations[FLEET_NODES_MAX];
    struct event *events;           /* a heap by (due_ms, order) */
    size_t event_count, event_room;
    struct connection *conns;       /* id - 1 */
    size_t conn_count;
    struct asker **askers;
    size_t asker_count;
    struct changer **changers;
    size_t changer_count;
    struct tally_of *loads;
    size_t load_count;
    uint64_t last_node_id;
    bool loads_fail;
    uint32_t draining;              /* bit i: node i */
};

/* fleet.c: the network and the nodes */
void *fleet_grow(void *at, size_t count, size_t size);
void fleet_post(struct fleet *, uint64_t after_ms, const struct event *);
struct serve *fleet_serve(struct fleet *, unsigned i);
uint64_t fleet_connect(struct fleet *, unsigned from, const struct addr *to, uint64_t node_id);
struct connection *fleet_conn(struct fleet *, uint64_t id);
bool fleet_reaches(const struct fleet *, const struct connection *);
void fleet_transmit(struct fleet *, uint64_t conn, const struct message *, struct blob *value);
void fleet_apply(struct fleet *, unsigned i, struct effects *);

/* fleet_ask.c: who asks */
struct tally_of *fleet_loads_of(struct fleet *, const char *key);
void fleet_start_load(struct fleet *, unsigned node, uint64_t load_id, struct asker *,
                      struct span key, uint32_t ttl_ms, uint32_t stale_ms);
void fleet_load_by(struct fleet *, struct asker *, uint64_t load_id);
void fleet_settle(struct fleet *, struct asker *, struct answer *);
void fleet_drive(struct fleet *, struct asker *, enum query_step, struct effects *);
void fleet_reply(struct fleet *, struct asker *, struct event *, struct effects *);

#endif
