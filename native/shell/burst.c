/* Frames opened ahead (see burst.h). */
#include "shell/burst.h"

#include "core/mem.h"

void burst_init(struct burst *b)
{
    b->end = STREAM_FRAME;
    b->next = b->count = 0;     /* nothing of the rest is read */
}

void burst_deinit(struct burst *b)
{
    while (b && !burst_is_taken(b))
        blob_unref(b->at[b->next++].value);
}

struct burst *burst_keep(struct burst *b)
{
    struct burst *kept = mem_alloc(sizeof *kept);

    if (kept)
        *kept = *b;
    else
        burst_deinit(b);
    return kept;
}

void burst_open(struct burst *b, struct stream *c, uint64_t wall_ms)
{
    assert(burst_is_taken(b) && b->end != STREAM_BAD);
    b->next = b->count = 0;
    b->wall_ms = wall_ms;
    while (b->count < BURST_MAX) {
        struct opened *o = &b->at[b->count];
        b->end = stream_next(c, wall_ms, &o->message, &o->value);
        if (b->end != STREAM_FRAME)
            return;
        b->count++;
    }
}

unsigned burst_questions(const struct burst *b, struct span keys[BURST_MAX])
{
    unsigned count = 0;

    for (const struct opened *o = &b->at[b->next]; o < &b->at[b->count]; o++) {
        if ((o->message.kind != MESSAGE_ASK && o->message.kind != MESSAGE_PEEK) || o->value)
            break;
        keys[count++] = o->message.key;
    }
    return count;
}
