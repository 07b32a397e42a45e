/* What both drivers of a question share (a blocked thread, ask.c; an event loop,
 * port_ask.c): the public question as core's, core's answer as the public one, and the
 * frames of an answer gathered until it is complete.
 */
#ifndef PEERAGE_SHELL_EXCHANGE_H
#define PEERAGE_SHELL_EXCHANGE_H

#include "core/query.h"
#include "core/serve.h"
#include "peerage.h"

struct peerage;
struct turn;

/* 0, or ERR_TOO_BIG. Borrows the spans. */
int exchange_question(const struct peerage *, const struct peerage_ask *, struct question *);

/* Ask core, in a turn; a node that closes has its store alone. A load is in *out already. */
void exchange_ask(struct peerage *, const struct question *, struct waiter *, struct turn *,
                  struct answer *, struct query_rank ranks[RANKS_MAX], unsigned *count,
                  struct peerage_answer *out);
/* Takes what core's answer holds. VALUE, FAILED and MISS; everything else is trouble. */
void exchange_answer(struct answer *, uint64_t now_ms, struct peerage_answer *out);
void exchange_trouble(struct peerage_answer *out, int error);
/* Under the lock: OUTCOME_LOAD, with the chain of what it asks. */
void exchange_load(struct peerage *, uint64_t load_id, struct peerage_answer *out);
/* The error an outcome stands for; 0 for those that are none. */
int exchange_error(enum outcome);
void exchange_clear(struct peerage_answer *out);

/* An answer's entries: items[0] is the one asked for. */
struct gathered {
    struct loaded *items;       /* `one`, or on the heap */
    unsigned count, room;
    struct loaded one;
    uint64_t delete_id;
    bool stale;
};

void gathered_init(struct gathered *);
void gathered_clear(struct gathered *);     /* unrefs and frees; ready for another answer */
/* A frame of the answer that `q` waits for; takes `value` in any case. *step: how to go on,
 * QUERY_WAIT while more is to come. False: out of memory, or too many entries, and the rest
 * of the answer is still on the connection. */
bool gathered_frame(struct gathered *, struct query *q, const struct message *,
                    struct blob *value, uint64_t now_ms, enum query_step *step);

/* As an answer to the asker itself. Refs the blob. */
void gathered_answer(const struct gathered *, enum tier, uint64_t asked_ms, struct answer *out);
enum tier exchange_tier(const struct query *);

#endif
