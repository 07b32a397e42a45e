/* One question's way through the failure table: the owner, the heir, then one's own load.
 *
 * A state machine: events in, the next step out; whoever asks drives it, a blocked thread,
 * an event loop, or the simulator (rules O2, O5, O8). The driver does what the step says
 * and reports what came of it. It owns the deadline: due_ms is valid after every call, and
 * the driver must have read what already lies in its socket before it calls
 * query_expired (O9).
 */
#ifndef PEERAGE_QUERY_H
#define PEERAGE_QUERY_H

#include "addr.h"
#include "base.h"
#include "flight.h"
#include "message.h"
#include "view.h"

struct query_rank {
    struct addr addr;
    uint64_t node_id;
    bool self;          /* this node stands here: act as owner */
    bool hits_only;     /* busy of late: ask for what it has, not for a load (O5) */
};

enum query_step {
    QUERY_SEND,         /* send an ASK to query->at, with query_fill's fields; then WAIT */
    QUERY_WAIT,         /* for a frame, a close, or due_ms */
    QUERY_ANSWERED,     /* done: the last frame is the answer (VALUE, FAILED) */
    QUERY_MISSED,       /* done: nobody has it, and no loader was offered */
    QUERY_PERMITTED,    /* done: run the loader, send its value under the same request */
    QUERY_OWN,          /* done: this node is next in rank: load it as the acting owner */
    QUERY_LOAD,         /* done: nobody helped: load it here */
    QUERY_RECURSIVE,    /* done: the key stands in its own chain */
};

/* What a step tells of a peer; the driver hands it to `serve` (serve_peer) each time. */
enum query_verdict { PEER_NOTHING, PEER_FINE, PEER_SILENT, PEER_BUSY };

struct query {
    struct query_rank ranks[RANKS_MAX];
    unsigned count, rank;
    bool loads;                 /* a loader stands behind the question */
    bool accepted;
    bool redialled;             /* a reused connection failed once already (O2) */
    bool owner_silent;          /* some higher rank gave no answer */
    uint8_t lost;               /* times the load was lost and asked for again */
    uint32_t timeout_ms, load_timeout_ms;
    uint64_t started_ms;        /* of this rank's budget */
    uint64_t due_ms;
    uint64_t load_due_ms;       /* of an accepted load; due_ms comes earlier when the owner's
                                   "still working" stays away */
    uint64_t delete_id, deleted_ms;     /* query_know_delete */
    enum query_verdict verdict; /* of the last step: about the rank it left or ended at */
    struct addr verdict_of;
};

/* Ranks are the caller's (serve gives them, the avoided left out). */
enum query_step query_begin(struct query *, const struct query_rank *, unsigned count, bool loads,
                            uint32_t timeout_ms, uint32_t load_timeout_ms, uint64_t now_ms);
/* The key's last delete known here, as serve_ask told it; after query_begin. */
void query_know_delete(struct query *, uint64_t delete_id, uint64_t deleted_ms);

static inline const struct query_rank *query_at(const struct query *q) { return &q->ranks[q->rank]; }

/* Set kind, flags, budget_ms, load_timeout_ms of the request to send. */
void query_fill(const struct query *, uint64_t now_ms, struct message *);

/* A frame with our request id came (its value complete and verified). */
enum query_step query_frame(struct query *, uint8_t kind, uint64_t now_ms);
/* The VALUE that came, `age_ms` old, is from before the delete that is known here, and its sender
 * does not know of that (it could not be reached): it is no answer. */
bool query_value_is_deleted(const struct query *, uint64_t delete_id, uint32_t age_ms,
                            uint64_t now_ms);
enum query_step query_deleted(struct query *, uint64_t now_ms);
/* Bytes of our answer keep coming: each further timeout_ms must bring some (O2). */
void query_progress(struct query *, uint64_t now_ms);
/* The connection failed, refused, or closed. `reused`: it had served before, and no byte
 * of this answer had come: it is dialled afresh once within the same budget. */
enum query_step query_broken(struct query *, bool reused, uint64_t now_ms);
/* The challenge showed another node than expected (W6): to the next rank at once. */
enum query_step query_stranger(struct query *, uint64_t now_ms);
/* due_ms has passed. */
enum query_step query_expired(struct query *, uint64_t now_ms);
/* Membership declared the asked node dead (O5). */
enum query_step query_peer_dead(struct query *, uint64_t now_ms);

#endif
