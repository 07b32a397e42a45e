/* peerage: a peer-to-peer cache ownership layer. The only public header.
 *
 * A `peerage` is one node: it finds its peers, keeps a cache, and answers for the keys
 * it owns. Ask it for a key; what is not here is asked of the key's owner, or you are
 * told to load it (PEERAGE_LOAD) and then report with peerage_finish().
 *
 *     peerage_ask()  ->  PEERAGE_VALUE   here it is
 *                        PEERAGE_LOAD    run your loader, then peerage_finish(),
 *                                        peerage_fail() or peerage_lose()
 *                        PEERAGE_FAILED  the loader raised, somewhere: the value is its error
 *                        PEERAGE_MISS    nobody has it and you offered no loader
 *
 * Threads: every function may be called from any thread unless it says otherwise.
 * Blocking functions say so. No function prints, exits, installs a signal handler, or
 * calls back. Errors: 0 or a positive count is success; negative numbers are
 * PEERAGE_E_*, and peerage_error_text() words them.
 * Ownership: *borrows* means valid during the call; *copies*; *owned* means you free it
 * as told. Times are milliseconds unless the name says otherwise.
 * After fork() the child's inherited nodes answer PEERAGE_E_FORKED to everything but
 * peerage_forget(); make a new one.
 */
#ifndef PEERAGE_H
#define PEERAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && defined(PEERAGE_SHARED)
#define PEERAGE_API __attribute__((visibility("default")))
#else
#define PEERAGE_API
#endif

#define PEERAGE_VERSION_TEXT "0.1.0"

enum peerage_error {
    PEERAGE_E_NOMEM = -1,
    PEERAGE_E_TOO_BIG = -2,
    PEERAGE_E_FULL = -3,
    PEERAGE_E_CLOSED = -4,
    PEERAGE_E_TIMEOUT = -5,
    PEERAGE_E_LOST = -6,
    PEERAGE_E_LOAD_FAILED = -7,
    PEERAGE_E_RECURSIVE = -8,
    PEERAGE_E_SETTING = -9,
    PEERAGE_E_SYSTEM = -10,         /* the caller's errno says which error */
    PEERAGE_E_FORKED = -11,
    PEERAGE_E_UNREACHABLE = -12,
    PEERAGE_E_UNSUPPORTED = -13,
    PEERAGE_E_MISSING = -14,
    PEERAGE_E_INTERRUPTED = -15,    /* a signal arrived: see peerage_ask */
};

/* A constant text; never NULL. */
PEERAGE_API const char *peerage_error_text(int code);

typedef struct peerage peerage;
typedef struct peerage_port peerage_port;
typedef struct peerage_blob peerage_blob;   /* a shared value, see peerage_answer */

#define PEERAGE_LINE_MAX 512    /* room for one error line, with its zero */

/* Settings. */

/* Every field has a default: NULL or what peerage_options_default() sets. The names in
 * brackets are the environment's, used in error lines. */
struct peerage_options {
    int enabled;                /* [ENABLE_PEERS] 0: one process alone, no thread, no socket */
    const char *secret;         /* [PEER_SECRET] 64 hex characters, or "new,old" */
    const char *peers;          /* [PEERS] comma-separated */
    int port;                   /* [PEER_PORT] 7946 */
    int port_range;             /* [PEER_PORT_RANGE] 16 */
    const char *listen;         /* [PEER_LISTEN] "0.0.0.0" */
    const char *advertise;      /* [PEER_ADVERTISE_ADDR] NULL: as docs/ARCHITECTURE.md says */
    const char *allow_cidr;     /* [PEER_ALLOW_CIDR] NULL: private ranges and loopback */
    int encryption;             /* [PEER_ENCRYPTION] */
    const char *label;          /* [PEER_LABEL] "default" */
    double timeout_s;           /* [PEER_TIMEOUT] 0.25 */
    double load_timeout_s;      /* [PEER_LOAD_TIMEOUT] 10 */
    int heir;                   /* [PEER_HEIR] 1 */
    int coordinate;             /* [PEER_COORDINATE] 1 */
    int unix_sockets;           /* [PEER_UNIX_SOCKETS] 1 */
    int spin_us;                /* [PEER_SPIN_US] 100, 0 to 200: how long a thread looks for the
                                   answer of a peer of its host before it sleeps */
    int observer;               /* join without ever owning anything (the command line tool) */
    uint64_t cache_bytes;       /* [PEER_CACHE_BYTES] 64 MiB */
    const char *redis_url;      /* [REDIS_URL] NULL */
    const char *redis_prefix;   /* [PEER_REDIS_PREFIX] "peerage:v1" */
};

PEERAGE_API void peerage_options_default(struct peerage_options *);

/* Life. */

/* Make a node; checks and copies the options, starts nothing, opens nothing.
 * PEERAGE_E_SETTING: `line` says which setting, what it got, what it takes (never the
 * secret). Free with peerage_free(). */
PEERAGE_API int peerage_new(const struct peerage_options *, peerage **out,
                            char line[PEERAGE_LINE_MAX]);

/* Bind, start the loop thread, look for peers. Blocks until looking has ended (at most a
 * second or so). Without options.enabled: does nothing, 0, or, with a redis_url, runs the
 * loop thread for Redis alone. Idempotent.
 * PEERAGE_E_SETTING, PEERAGE_E_SYSTEM, PEERAGE_E_NOMEM, PEERAGE_E_UNREACHABLE (neither the
 * Redis of redis_url nor any peer was found): nothing runs; `line` says why. */
PEERAGE_API int peerage_start(peerage *, char line[PEERAGE_LINE_MAX]);
/* The same for a start that nobody asked for by name (a first question): it does not wait for
 * Redis, and never fails for want of it. */
PEERAGE_API int peerage_start_quietly(peerage *, char line[PEERAGE_LINE_MAX]);

/* Leave the contest, finish flights and hand entries on for at most drain_ms, leave, wake
 * every waiter with PEERAGE_E_CLOSED, join the loop thread. Blocks. Idempotent; the cache
 * itself still answers local hits afterwards. */
PEERAGE_API void peerage_close(peerage *, uint32_t drain_ms);

/* peerage_close(p, 0) if need be, then free. No other call may be running or follow. */
PEERAGE_API void peerage_free(peerage *);

/* In a fork's child: forget an inherited node. Its descriptors are closed already, its
 * memory is given up on purpose (its locks may be held for ever). */
PEERAGE_API void peerage_forget(peerage *);

/* Raised by one in every forked child; compare it to notice a fork for the price of a load. */
PEERAGE_API extern volatile unsigned peerage_fork_count;

enum peerage_state {
    PEERAGE_NEW, PEERAGE_LOOKING, PEERAGE_WARMING, PEERAGE_READY, PEERAGE_DRAINING,
    PEERAGE_CLOSED, PEERAGE_CONFLICT    /* another node took our address: working alone */
};
PEERAGE_API int peerage_state(const peerage *);

/* Asking. */

enum peerage_value_type {
    PEERAGE_BYTES = 0, PEERAGE_STR = 1, PEERAGE_JSON = 2, PEERAGE_PICKLE = 3,
    PEERAGE_ERROR = 4           /* a loader's error as the binding wrote it */
};

enum peerage_tier {
    PEERAGE_TIER_LOCAL, PEERAGE_TIER_OWNER, PEERAGE_TIER_HEIR, PEERAGE_TIER_REDIS,
    PEERAGE_TIER_LOAD           /* a load made it just now, wherever it ran */
};

enum peerage_ask_flags {
    PEERAGE_LOADS = 1,          /* a loader stands behind: PEERAGE_LOAD is a welcome answer */
    PEERAGE_FRESH = 2,          /* refresh: load although it is in the store */
    PEERAGE_NO_WAIT = 4,        /* the local store alone */
};

/* Borrows everything during the call. */
struct peerage_ask {
    const void *key;            /* 1..1024 bytes */
    size_t key_bytes;
    const void *channel;        /* 0..255 bytes; none: the key itself */
    size_t channel_bytes;
    const void *loader;         /* 0..255 bytes: a registered loader's name; none: a closure */
    size_t loader_bytes;
    uint32_t ttl_ms, stale_ms;
    uint32_t load_timeout_ms;   /* 0: the node's own */
    uint32_t timeout_ms;        /* the caller's patience in all; 0: none of its own */
    unsigned flags;
    const uint64_t *chain;      /* of the load this question is part of (peerage_load) */
    unsigned chain_count;
};

enum peerage_answer_kind {
    PEERAGE_PENDING,            /* ports only: a completion follows */
    PEERAGE_VALUE,
    PEERAGE_LOAD,
    PEERAGE_FAILED,
    PEERAGE_MISS,
    PEERAGE_TROUBLE             /* `error` says what */
};

/* An answer's value is `bytes` at `at`. It is owned by `blob` (peerage_blob_free), or, if
 * blob is NULL, lies in `inline_bytes`. */
struct peerage_answer {
    int kind;                   /* enum peerage_answer_kind */
    int error;                  /* PEERAGE_TROUBLE: PEERAGE_E_* */
    int value_type, tier, stale;
    const void *at;
    size_t bytes;
    peerage_blob *blob;
    void *foreign;              /* the owner given to peerage_finish or peerage_swap, if the
                                   value is held by one: the caller's own object, unchanged */
    uint64_t age_ms;            /* since its owner stored it */
    uint64_t ttl_ms;            /* what is left; UINT64_MAX: for ever */
    uint64_t generation, until_ms;      /* of a local hit, for peerage_hit_again */
    uint64_t load_id;           /* PEERAGE_LOAD */
    uint64_t chain[8];          /* PEERAGE_LOAD: to pass on with questions this load asks */
    unsigned chain_count;
    unsigned char inline_bytes[1024];
};

/* The local store alone. 1: *answer is a PEERAGE_VALUE; 0: not here (or only stale);
 * negative: PEERAGE_E_FORKED. Never blocks, never calls the system; the hot path.
 * `inline_bytes` is written only as far as needed. */
PEERAGE_API int peerage_get(peerage *, const void *key, size_t key_bytes, struct peerage_answer *);
/* The same, but a value that a foreign owner holds comes without a reference of its own:
 * `blob` is NULL, and `foreign` and `at` are borrowed until the caller next lets go of the
 * owners that its release callback was given (see peerage_set_release). */
PEERAGE_API int peerage_get_borrowed(peerage *, const void *key, size_t key_bytes,
                                     struct peerage_answer *);
/* 1: peerage_get_borrowed would find again what it found when it gave these two numbers, and
 * this counts as such a hit; a `foreign` that was borrowed is good again, on the same terms.
 * 0: ask. Takes no lock and no key: the caller remembers which key it was. One thread at a
 * time for a node, and for its release callback's owners: in Python, who holds the GIL. */
PEERAGE_API int peerage_hit_again(peerage *, uint64_t generation, uint64_t until_ms);

/* Ask and wait: blocks the calling thread, which drives its own connection.
 * PEERAGE_LOAD means that this thread now holds the load.
 * `interrupted` (may be NULL) is called when poll() was cut by a signal, and before it where one
 * may have come already; if it returns nonzero the question is given up (PEERAGE_TROUBLE,
 * PEERAGE_E_INTERRUPTED). */
PEERAGE_API void peerage_ask(peerage *, const struct peerage_ask *, struct peerage_answer *,
                             int (*interrupted)(void *), void *argument);

PEERAGE_API void peerage_blob_free(peerage_blob *);     /* NULL is fine */
PEERAGE_API peerage_blob *peerage_blob_ref(peerage_blob *);

/* The caller made an object of its own of an answer's value (the same bytes at `at`): let
 * the store hold that instead of its native copy. `owner` is taken when it returns 1:
 * release(owner) is called once, on any thread, when it is needed no more; see
 * peerage_set_release. 0: the store had moved on; nothing was taken. */
PEERAGE_API int peerage_swap(peerage *, const void *key, size_t key_bytes, peerage_blob *old,
                             const void *at, size_t bytes, void *owner);

/* How foreign owners given to this process's nodes are let go: called on any thread, must
 * not block nor need a lock of the caller's (the binding queues them). Set once, before
 * the first foreign value. */
PEERAGE_API void peerage_set_release(void (*release)(void *owner));

/* Loads. */

/* One entry a load made. */
struct peerage_item {
    const void *key;
    size_t key_bytes;           /* items[0]: may be empty, it answers the question */
    const void *at;
    size_t bytes;
    void *owner;                /* not NULL: the bytes stay where they are, held by owner
                                   (taken, see peerage_swap); NULL: copied */
    int value_type;
    uint32_t ttl_ms, stale_ms;  /* ttl_ms 0: given to whoever waits, stored nowhere */
};

/* The holder's word on load_id; every PEERAGE_LOAD gets exactly one. Unknown ids (deleted
 * meanwhile, closed) are fine. Owners are taken in any case.
 * finish: items[0] is the value, the others are further entries of its channel.
 * PEERAGE_E_TOO_BIG: above the frame bound: its callers here have it, it was not shared.
 * fail: the loader raised; `error` goes to all who wait, kept for negative_ttl_ms.
 * lose: cancelled or not possible; whoever waits asks again. */
PEERAGE_API int peerage_finish(peerage *, uint64_t load_id, const struct peerage_item *items,
                               unsigned count);
PEERAGE_API int peerage_fail(peerage *, uint64_t load_id, const void *error, size_t bytes,
                             uint32_t negative_ttl_ms);
PEERAGE_API int peerage_lose(peerage *, uint64_t load_id);

/* Load the values of a registered loader anew this long before they end, if they were asked for
 * again since they were loaded; 0: don't. After peerage_register. */
PEERAGE_API int peerage_refresh_early(peerage *, const void *loader, size_t bytes,
                                      uint32_t early_ms);

/* This process can run `loader` for others: in its pool (peerage_take), or on the start
 * loop's port when is_async. Copies the name. */
PEERAGE_API int peerage_register(peerage *, const void *loader, size_t bytes, int is_async);

/* A load for this process to run; all spans are owned, freed by peerage_load_free. */
struct peerage_load {
    uint64_t load_id;
    unsigned char *key, *channel, *loader;
    size_t key_bytes, channel_bytes, loader_bytes;
    uint32_t ttl_ms, stale_ms, load_timeout_ms;
    uint64_t chain[8];
    unsigned chain_count;
};

/* Wait for a registered load of a sync loader and take it (it is then accepted).
 * Blocks: 1 taken; 0 nothing within timeout_ms; PEERAGE_E_CLOSED: the thread may end. */
PEERAGE_API int peerage_take(peerage *, uint32_t timeout_ms, struct peerage_load *out);
PEERAGE_API void peerage_load_free(struct peerage_load *);

/* Ports: asking from an event loop. */

/* One per event loop. A port owns that loop's connections and completions; all of them
 * hang on one descriptor (an epoll set of its own), so the loop watches just that and
 * calls peerage_port_run() when it is readable. Everything but peerage_port_gone is for
 * the loop's own thread. */
PEERAGE_API int peerage_port_new(peerage *, peerage_port **out);
PEERAGE_API int peerage_port_fd(const peerage_port *);

/* Ask. An answer at once (like peerage_ask), or PEERAGE_PENDING: a completion with
 * `token` follows, exactly one, unless peerage_port_leave takes the token back first.
 * PEERAGE_LOAD at once: run the loader as a task of its own; this question waits for it
 * too, so a completion follows as well. */
PEERAGE_API void peerage_port_ask(peerage_port *, const struct peerage_ask *, void *token,
                                  struct peerage_answer *);

/* Do what is ready: read answers, write, handle deadlines. Never blocks. */
PEERAGE_API void peerage_port_run(peerage_port *);

enum peerage_event_kind {
    PEERAGE_EVENT_ANSWER,       /* `answer` for `token`; PEERAGE_LOAD here: see port_ask */
    PEERAGE_EVENT_LOAD,         /* start loop: a registered async load; free it */
    PEERAGE_EVENT_CANCEL,       /* nobody waits for load_id any more: its task may be cancelled */
    PEERAGE_EVENT_REPORT,       /* a set or delete is done: `report` for `token`; free it */
    PEERAGE_EVENT_TALLY,        /* of peerage_port_tally: `added` and `total` for `token` */
};

/* Who acknowledged a set or delete. Owned: peerage_report_free. Addresses are texts; the
 * second tier's is "redis". */
struct peerage_report {
    unsigned acknowledged_count, unreached_count;
    char **acknowledged, **unreached;
};
PEERAGE_API void peerage_report_free(struct peerage_report *);

struct peerage_event {
    int kind;
    void *token;
    uint64_t load_id;
    struct peerage_answer *answer;      /* valid until the next call on this port; its blob is
                                           yours to free */
    struct peerage_load load;
    struct peerage_report report;
    int error;                          /* REPORT, TALLY: 0 or PEERAGE_E_* */
    int added;                          /* TALLY: 1 counted, 0 refused */
    uint64_t total;
};

/* The next completion: 1, or 0 when there is none (after port_run). */
PEERAGE_API int peerage_port_next(peerage_port *, struct peerage_event *);

/* The caller of `token` gives up. 1: no completion will come. 0: it has been returned. */
PEERAGE_API int peerage_port_leave(peerage_port *, void *token);

/* This port runs the registered async loaders (the start loop). NULL: none does. */
PEERAGE_API void peerage_start_port(peerage *, peerage_port *);

/* The loop is closed or gone: its waiters leave their flights, its loads are lost, its
 * descriptors are closed, the port is freed. Any thread, when no other call on this port
 * can be running. Tokens that had no completion are handed to `token_gone` (may be NULL). */
PEERAGE_API void peerage_port_gone(peerage_port *, void (*token_gone)(void *token, void *argument),
                                   void *argument);

/* Set and delete. */

/* Everywhere: on the owner, the heir and every live node. Blocks up to the timeouts.
 * item NULL: delete; else set: the owner and the heir keep the value, all others drop theirs.
 * by_channel: every key of the channel.
 * *report (may be NULL) says who acknowledged. 0 also when some could not be reached. */
PEERAGE_API int peerage_change(peerage *, const struct peerage_ask *name,
                               const struct peerage_item *item, int by_channel,
                               struct peerage_report *report);
/* The same from an event loop: PEERAGE_EVENT_REPORT follows for `token`. */
PEERAGE_API int peerage_port_change(peerage_port *, const struct peerage_ask *name,
                                    const struct peerage_item *item, int by_channel, void *token);

/* Tallies. */

/* A counter summed over all nodes, in fixed windows of wall time. Borrows. Names and windows
 * are the application's; one name with two windows is two tallies. */
struct peerage_tally {
    const void *name;           /* 0..255 bytes */
    size_t name_bytes;
    const void *key;            /* 0..1024 bytes: whose count it is */
    size_t key_bytes;
    uint32_t window_ms;         /* at least 1 */
};

/* Every node counts its own and tells the others, within about 100 ms while anything is
 * counted; so a sum is what this node knows. Alone, it counts for this process. With Redis the
 * sums live there, exact for all who share it; while it is away, or does not answer within
 * timeout_s, what the nodes know of each other stands in.
 * PEERAGE_E_TOO_BIG: a length, or no window; PEERAGE_E_FULL: more keys than a node keeps;
 * PEERAGE_E_NOMEM. *total (may be NULL) is the sum of this window.
 *
 * add: never blocks (Redis is told behind it). 0 or an error.
 * take: add `amount` only if the sum then stays within `limit` (UINT64_MAX: none): 1 it was
 * added; 0 refused, nothing was added. Blocks only with Redis, for at most timeout_s. Amount 0
 * asks for the sum. `interrupted` as for peerage_ask (PEERAGE_E_INTERRUPTED). */
PEERAGE_API int peerage_tally_add(peerage *, const struct peerage_tally *, uint64_t amount,
                                  uint64_t *total);
PEERAGE_API int peerage_tally_take(peerage *, const struct peerage_tally *, uint64_t amount,
                                   uint64_t limit, uint64_t *total, int (*interrupted)(void *),
                                   void *argument);
/* take from an event loop: the same at once, or PEERAGE_PENDING_TALLY: Redis is asked, and
 * PEERAGE_EVENT_TALLY follows for `token`. */
#define PEERAGE_PENDING_TALLY 2
PEERAGE_API int peerage_port_tally(peerage_port *, const struct peerage_tally *, uint64_t amount,
                                   uint64_t limit, void *token, uint64_t *total);

/* Looking at it. */

struct peerage_member {
    char address[56];           /* "10.0.0.1:7946" */
    uint64_t node_id, started_ms;
    int self, live;             /* live: alive (suspects among them) */
    int coordinates, warming, draining, observer;
    int owns;                   /* takes part in the contest for channels */
};

/* Up to `room` members into out, by address; returns how many there are. */
PEERAGE_API int peerage_members(const peerage *, struct peerage_member *out, int room);
/* The channel's ranks, best first, up to `room` (3 make sense); returns how many.
 * score: the rendezvous score. Layer off or alone and looking: 0. */
PEERAGE_API int peerage_owner(const peerage *, const void *channel, size_t bytes,
                              struct peerage_member *out, uint64_t *score, int room);
/* 1 and *out; 0 while there is none. */
PEERAGE_API int peerage_coordinator(const peerage *, struct peerage_member *out);
/* This node's advertised address, "" before start. Copies. */
PEERAGE_API void peerage_address(const peerage *, char out[56]);

/* One counter or gauge of peerage_stats; names are documented in docs/ARCHITECTURE.md. */
struct peerage_stat {
    const char *name;           /* constant */
    double value;
};
PEERAGE_API int peerage_stats(const peerage *, struct peerage_stat *out, int room);

/* Looking at others from outside. */

enum peerage_probe_stage {      /* how far one got */
    PEERAGE_PROBE_UNREACHED,    /* no connection: `error` is an errno */
    PEERAGE_PROBE_SHUT,         /* closed before it said a word: it does not want this address */
    PEERAGE_PROBE_MUTE,         /* connected, and nothing came */
    PEERAGE_PROBE_FOREIGN,      /* something came that is not a node's, or of another version */
    PEERAGE_PROBE_OTHER_LABEL,
    PEERAGE_PROBE_OTHER_MODE,
    PEERAGE_PROBE_REFUSED,      /* it closed at our first frame: another secret, or its clock */
    PEERAGE_PROBE_PROVEN        /* both sides have proven themselves */
};

/* What a member's own table says of one member. */
struct peerage_seen {
    char address[56];
    uint64_t node_id, started_ms;
    int state;                  /* 0 alive, 1 suspect, 2 dead, 3 left */
    int coordinates, warming, draining, observer;
    int speaks_min, speaks_max; /* versions of the protocol */
};

struct peerage_probe {
    int stage;                  /* enum peerage_probe_stage */
    int error;                  /* an errno, or 0 */
    int allowed;                /* its address is inside options.allow_cidr */
    uint64_t node_id;           /* 0: it did not say */
    int64_t ahead_ms;           /* proven: its clock less this host's */
    int seen_count;             /* how many it has in its table; -1: it was not given */
};

/* Connect to the node at `address` (numeric, with a port) and go as far as it lets us, without
 * joining: nothing of it stays there. Its table goes into `seen`, up to `room`. Of the options
 * the secret, label, encryption and allow_cidr count. `clock_offset_ms` is added to this host's
 * wall time: a node whose clock is far off answers to one that is as far off. Blocks, for at most
 * timeout_ms. 0, PEERAGE_E_SETTING (see `line`), PEERAGE_E_NOMEM. */
PEERAGE_API int peerage_probe(const struct peerage_options *, const char *address,
                              uint32_t timeout_ms, int64_t clock_offset_ms,
                              struct peerage_probe *out, struct peerage_seen *seen, int room,
                              char line[PEERAGE_LINE_MAX]);

/* The attendant. */

enum peerage_notice_kind {
    PEERAGE_NOTICE_LOG,         /* one line for the log; level 10 debug, 20, 30, 40 as in Python */
    PEERAGE_NOTICE_MEMBERS,     /* the live members changed; `line` reads "Peers: ..." */
    PEERAGE_NOTICE_COORDINATOR, /* the coordinator changed; `line` is its address or "" */
    PEERAGE_NOTICE_POOL,        /* loads wait and no thread does: start one in peerage_take */
    PEERAGE_NOTICE_RELEASE,     /* released owners wait to be dropped (peerage_ring_release) */
};

struct peerage_notice {
    int kind, level;
    char line[PEERAGE_LINE_MAX * 2];
};

/* Wait for what the node has to say; made for one parked thread. Blocks: 1, or
 * 0 nothing within timeout_ms, or PEERAGE_E_CLOSED: the thread may end. */
PEERAGE_API int peerage_attend(peerage *, uint32_t timeout_ms, struct peerage_notice *);
/* From a release callback: wake the attendant with PEERAGE_NOTICE_RELEASE. */
PEERAGE_API void peerage_ring_release(peerage *);

#ifdef __cplusplus
}
#endif
#endif
