/* Membership: who is there, told by gossip.
 *
 * SWIM (Das, Gupta, Motivala, DSN 2002): each node probes one random member a
 * period, asks others to try when it gets no answer, and spreads what it learns
 * on the back of probes. With Lifeguard (Dadgar, Phillips, Currey, 2018): a node
 * that may be the slow one itself gives others more time, and a suspicion grows
 * short only as independent witnesses join it. Where we differ from both, and
 * why, stands at the top of the file that does it:
 *
 *     swim.c            the protocol: probes, acks, phases, what a datagram does
 *     swim_join.c       joins, two-way admission, seeds, rejoin
 *     swim_merge.c      what hearsay does to a record; refutation
 *     swim_pull.c       table digests and paged pulls
 *     swim_members.c    the table, and the one door between states
 *     swim_gossip.c     the dissemination queue
 *     swim_suspicion.c  who is accused, by which hosts, until when
 *     swim_wire.c       the layout of payloads
 *
 * Sans-I/O: every call takes `now_ms` (CLOCK_BOOTTIME) and gives effects. What
 * arrives here has been authenticated; what leaves here is sealed by the caller.
 * Not thread-safe: one thread owns a `struct swim`.
 */
#ifndef PEERAGE_SWIM_H
#define PEERAGE_SWIM_H

#include "addr.h"
#include "base.h"
#include "wire.h"

struct swim;

/* What others may know of a node besides its address. A node sets its own. */
enum swim_flags {
    SWIM_COORDINATE = 1,        /* may coordinate */
    SWIM_WARMING = 2,           /* owns nothing yet (M1) */
    SWIM_DRAINING = 4,          /* owns nothing any more (O8) */
    SWIM_OBSERVER = 8,          /* never owns; counts in no N, K, helper (M7) */
};

enum swim_state { SWIM_ALIVE, SWIM_SUSPECT, SWIM_DEAD, SWIM_LEFT };

/* What this node itself is doing. LOOKING: owns nothing, does not coordinate,
 * gets wait. WARMING: has looked; sees itself as no owner yet, unless no live
 * member is past warming. */
enum swim_phase {
    SWIM_PHASE_LOOKING,
    SWIM_PHASE_WARMING,
    SWIM_PHASE_READY,
    SWIM_PHASE_DRAINING,
    SWIM_PHASE_GONE,            /* left, or stopped by a conflict */
};

/* One member's record: 64 bytes, kept small because a simulation holds a
 * hundred million. {started_ms, version} is its incarnation. Fields under the
 * line belong to the table and its queues. */
struct member {
    struct addr addr;
    uint8_t state;              /* enum swim_state */
    uint8_t flags;              /* enum swim_flags */
    uint8_t speaks_min, speaks_max;     /* protocol versions (W8) */
    uint8_t sent;               /* ---- times gossiped since it was last news */
    uint8_t marks;
    uint64_t node_id;
    uint64_t started_ms;
    uint64_t version;
    uint32_t since_s;           /* dead, left: since when; suspect: its suspicion */
    uint32_t queue_prev, queue_next;
    uint32_t order_at;          /* place in the probe order */
};

/* Live for ownership: suspect counts as alive and is never shown (M8). */
static inline bool member_is_live(const struct member *m)
{
    return m->state <= SWIM_SUSPECT;
}

/* Times in ms. swim_params_default() fills in the values of docs/MEMBERSHIP.md. */
struct swim_params {
    uint32_t period_ms;                 /* one probe each, x (health + 1) */
    uint32_t ack_timeout_ms;            /* then helpers are asked, x (health + 1) */
    uint32_t helpers;
    uint32_t health_max;
    uint32_t suspicion_periods;         /* min = this x period x max(1, log10(N) / 2) */
    uint32_t suspicion_max_factor;      /* max = this x min */
    uint32_t confirmations_max;         /* M3's 3 */
    uint32_t retransmit_factor;         /* x ceil(ln(N + 1)) */
    uint32_t round_factor;              /* news sent less than x ceil(ln(N + 1)) gets rounds */
    uint32_t gossip_every_ms;
    uint32_t gossip_fanout;
    uint32_t pull_after_ms;             /* a digest may differ for so long */
    uint32_t rejoin_every_ms;           /* one dead address, one seed */
    uint32_t range_every_ms;            /* a seed's port range, with members known */
    uint32_t alone_every_ms;            /* all seeds, with none known */
    uint32_t rejoin_for_ms;             /* dead addresses are tried for so long */
    uint32_t tombstone_ms;
    uint32_t looking_ms, warming_ms;    /* M1 */
    uint32_t lateness_ms;               /* more than this shifts deadlines (M5) */
    uint32_t deaf_ms;                   /* hearing nobody at all, accuse nobody for so long */
};

struct swim_config {
    struct addr self;                   /* advertised */
    uint64_t node_id;                   /* random, not 0 */
    uint64_t started_ms;                /* wall clock at start */
    uint8_t flags;                      /* SWIM_COORDINATE, SWIM_OBSERVER; WARMING is ours */
    uint8_t speaks_min, speaks_max;
    size_t payload_bytes_max;           /* of one datagram, without frame; at least 512 */
    uint64_t seed;                      /* of the PRNG */
    const struct cidr *allowed;         /* borrowed for the swim's life; none: all pass */
    size_t allowed_count;
    const struct addr *own_hosts;       /* borrowed; always pass as senders (M10) */
    size_t own_hosts_count;
    struct swim_params params;
};

void swim_params_default(struct swim_params *);

/* Effects. */

enum swim_effect_kind {
    /* Send payload to `addr` in a gossip frame whose receiver is `node_id`,
     * 0 = open (joins only; padded already, W5). */
    SWIM_SEND,
    /* Dial `addr` over TCP and see that `node_id` lives there; tell swim_proven(). */
    SWIM_PROVE,
    /* Ask `addr`/`node_id` over TCP for table pages: send the payload (the pull
     * request), merge every page with swim_page_merge(), end with swim_pulled(). */
    SWIM_PULL,
    /* Something worth a line; see enum swim_log. */
    SWIM_LOG,
};

/* The shell writes the words, at a bounded rate. `addr`, `node_id`: about whom;
 * `other_id`, `value`: see each. */
enum swim_log {
    SWIM_LOG_JOINED,            /* a member became live; value = started_ms */
    SWIM_LOG_REPLACED,          /* a newer start on its address; other_id = the older */
    SWIM_LOG_SUSPECTED,         /* for debugging: never shown to the application */
    SWIM_LOG_REFUTED,           /* a suspect is alive */
    SWIM_LOG_DEAD,
    SWIM_LOG_RETURNED,          /* was dead, is live */
    SWIM_LOG_LEFT,
    SWIM_LOG_SELF_DEAD,         /* others declared this node dead; value = its new version */
    SWIM_LOG_CONFLICT,          /* M6: other_id started later on our address; value = its start */
    SWIM_LOG_ALONE,             /* once: 10 s alone with seeds given */
    SWIM_LOG_REFUSED_CIDR,      /* an address outside the allowed blocks */
    SWIM_LOG_REFUSED_LOOPBACK,  /* a loopback address from elsewhere (M2) */
    SWIM_LOG_REFUSED_FUTURE,    /* started_ms over 60 s ahead; value = by how many ms */
    SWIM_LOG_REFUSED_UNPROVEN,  /* a join whose address did not answer both ways */
    SWIM_LOG_STARTED_RAISED,    /* M6: we start as value, an older start being known */
    SWIM_LOG_TABLE_FULL,
    SWIM_LOG_PULL_FAILED,
};

struct swim_effect {
    uint8_t kind;               /* enum swim_effect_kind */
    uint8_t log;                /* enum swim_log */
    struct addr addr;
    uint64_t node_id, other_id, value;
    size_t payload_at, payload_bytes;   /* see swim_payload() */
};

enum swim_news {
    /* The live set, or a live member's flags, versions or node id changed. */
    SWIM_NEWS_MEMBERS = 1,
    /* swim_phase() changed. */
    SWIM_NEWS_PHASE = 2,
    /* Others declared us dead and we are back: drop everything before serving (D3). */
    SWIM_NEWS_SELF_DEAD = 4,
    /* M6: stop the layer, work alone. The phase is GONE; see the log effect. */
    SWIM_NEWS_CONFLICT = 8,
};

/* Where effects are gathered, over any number of calls until it is reset. The
 * caller's; grows on the heap. Out of memory drops effects, which is to the
 * protocol a lost datagram, and counts them; `news` is never lost. */
struct swim_out {
    uint32_t news;              /* enum swim_news */
    size_t count, capacity;
    struct swim_effect *effects;
    size_t bytes, bytes_capacity;
    uint8_t *payloads;
    uint64_t dropped;
};

void swim_out_init(struct swim_out *);
void swim_out_deinit(struct swim_out *);
void swim_out_reset(struct swim_out *);         /* keeps the memory */

/* The bytes of a SEND or PULL; lives until the next call that adds effects. */
static inline struct span swim_payload(const struct swim_out *out, const struct swim_effect *e)
{
    return span_of(out->payloads + e->payload_at, e->payload_bytes);
}

/* Life. */

/* Start in phase LOOKING; the first tick sends joins. ERR_NOMEM. */
int swim_new(struct swim **out, const struct swim_config *, uint64_t now_ms);
void swim_free(struct swim *);                  /* NULL is fine */

/* When to call swim_tick() at the latest. Ask again after every other call. */
uint64_t swim_due_ms(const struct swim *);

/* Do what is due. Call it after the sockets are drained: it takes its own
 * lateness from what swim_due_ms() had promised (M5). */
void swim_tick(struct swim *, uint64_t now_ms, uint64_t wall_ms, struct swim_out *);

struct swim_from {
    struct addr source;         /* of the packet */
    uint64_t node_id;           /* of the sender, authenticated */
    bool open_receiver;         /* the tag left the receiver open: only a join may */
};

enum swim_verdict {
    SWIM_OK,
    SWIM_MALFORMED,
    SWIM_UNKNOWN_KIND,          /* W8: counted, answered by nobody over UDP */
    SWIM_NOT_ALLOWED,           /* source or advertised address outside the list */
    SWIM_NOT_OPEN,              /* something else than a join with an open receiver */
    SWIM_OWN,                   /* from ourselves */
    SWIM_GONE,                  /* we have left */
};

/* A datagram whose frame verified for us (or openly) and is no replay. Borrows. */
enum swim_verdict swim_receive(struct swim *, uint64_t now_ms, uint64_t wall_ms,
                               const struct swim_from *, struct span payload,
                               struct swim_out *);

/* The result of a PROVE. */
void swim_proven(struct swim *, uint64_t now_ms, uint64_t wall_ms, const struct addr *,
                 uint64_t node_id, bool proven, struct swim_out *);

/* Announce that we leave. Sends at once; nothing is due afterwards. Idempotent. */
void swim_leave(struct swim *, uint64_t now_ms, struct swim_out *);

/* Set our own flags under `mask`; a change is gossiped under a new version.
 * DRAINING makes the phase so; WARMING is the phase's and can't be set. */
void swim_set_flags(struct swim *, uint64_t now_ms, uint8_t mask, uint8_t flags,
                    struct swim_out *);

/* Seeds. */

/* Replace what seed `index` (below SEEDS_MAX) resolves to: a name's addresses,
 * or one host's whole port range, which is asked at once. Count 0 forgets it
 * for now. Copies. Our own address in it is skipped. ERR_NOMEM, ERR_FULL. */
int swim_set_seed(struct swim *, size_t index, const struct addr *, size_t count);

/* A live member is known besides ourselves (observers count: they answered). */
bool swim_is_alone(const struct swim *);

/* Hints from TCP. */

/* A query to this member got no answer: probe it next. Cheap, believed of nobody. */
void swim_hint_silent(struct swim *, uint64_t now_ms, const struct addr *);

/* W6: the challenge on this address named another node id than the record's:
 * probe the member next, and greet whoever is there. */
void swim_hint_replaced(struct swim *, uint64_t now_ms, const struct addr *, uint64_t other_id);

/* Table pages, over TCP (M4). */

#define SWIM_PULL_BYTES_MAX 1024u       /* a pull request */
#define SWIM_PAGE_BYTES 65536u          /* room a page wants */

/* Answer a pull request: write one page (at most what `w` holds; give it
 * SWIM_PAGE_BYTES). Start with *cursor = 0 and go on while it returns true. A
 * request that is malformed, or empty, is one for everything. */
bool swim_page_encode(const struct swim *, uint64_t now_ms, struct span request,
                      uint32_t *cursor, struct writer *w);

/* Take one page from `node_id`, to whom the connection was proven. */
enum swim_verdict swim_page_merge(struct swim *, uint64_t now_ms, uint64_t wall_ms,
                                  uint64_t node_id, struct span page, struct swim_out *);

/* The pull asked for by SWIM_PULL is over: every page is merged, or it failed. */
void swim_pulled(struct swim *, uint64_t now_ms, bool complete, struct swim_out *);

/* Looking at it. */

enum swim_phase swim_phase(const struct swim *);
const struct member *swim_self(const struct swim *);    /* started_ms may rise until admission */
const struct member *swim_find(const struct swim *, const struct addr *);  /* NULL: unknown */

/* Every record, tombstones and ourselves too: for (m = NULL; (m = swim_next(s, m)); ).
 * In no order; void after any call that is not const. */
const struct member *swim_next(const struct swim *, const struct member *);

/* Live members with ourselves, without observers: N. */
size_t swim_live(const struct swim *);

/* The lowest live address that may coordinate and is neither warming, draining
 * nor observing (M8); NULL while there is none. */
const struct member *swim_coordinator(const struct swim *);

/* May this address be talked to at all? (PEER_ALLOW_CIDR, own hosts.) */
bool swim_allows(const struct swim *, const struct addr *);

struct swim_stats {
    uint64_t sent, sent_bytes, received, received_bytes;        /* payloads */
    uint64_t probes, probes_failed, suspicions, refutations, deaths, deaf;
    uint64_t pulls, joins_sent, challenged, admissions, late_wakeups, accusations_answered;
    uint64_t malformed, not_allowed, refused_updates;
    uint32_t health;
};

void swim_stats(const struct swim *, struct swim_stats *);
size_t swim_memory(const struct swim *);        /* bytes on the heap, for the simulator */

#endif
