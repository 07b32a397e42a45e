/* The frames of one read, up to BURST_MAX at a time, opened before the first of them is taken
 * (rule W11).
 *
 * So it is known which questions come next: what answering them reads is fetched from memory
 * for all of them at once (store_prefetch), and they take the lock once, not one by one. All
 * frames are taken in their order.
 */
#ifndef PEERAGE_SHELL_BURST_H
#define PEERAGE_SHELL_BURST_H

#include "core/store.h"
#include "shell/stream.h"

#define BURST_MAX STORE_PREFETCH_MAX

struct opened {
    struct message message;     /* its spans lie in the stream's buffer, until its next fill */
    struct blob *value;         /* a reference, or NULL */
};

struct burst {
    enum stream_next end;       /* what came after them; STREAM_FRAME: there may be more */
    uint64_t wall_ms;           /* when they were opened: their senders' clocks were right then */
    unsigned next, count;
    struct opened at[BURST_MAX];
};

static inline bool burst_is_taken(const struct burst *b) { return b->next == b->count; }
/* Would its frames still be opened now? (As frame_is_timely, which was asked then.) */
static inline bool burst_is_timely(const struct burst *b, uint64_t wall_ms)
{
    return wall_ms <= b->wall_ms + CLOCK_SKEW_MS_MAX;
}

void burst_init(struct burst *);
/* Lets go of what was not taken. NULL is fine. */
void burst_deinit(struct burst *);
/* What was not taken, moved to the heap. NULL: out of memory, it is let go of. */
struct burst *burst_keep(struct burst *);

/* Open what is complete in the stream, once all that was there has been taken. */
void burst_open(struct burst *, struct stream *, uint64_t wall_ms);
/* The keys of the ASKs and PEEKs that stand next to each other at its front. Borrowed. */
unsigned burst_questions(const struct burst *, struct span keys[BURST_MAX]);

#endif
