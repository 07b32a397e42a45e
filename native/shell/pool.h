/* Idle proven connections, for threads to take and give back (rule O13). A connection in use
 * is its thread's alone; the pool knows only idle ones. One that went stale meanwhile is
 * noticed at its use, and dialled afresh once (O2).
 */
#ifndef PEERAGE_SHELL_POOL_H
#define PEERAGE_SHELL_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "shell/stream.h"

#define POOL_BUCKETS 64u

struct pool {
    pthread_mutex_t lock;
    bool open;
    atomic_size_t count;
    struct list buckets[POOL_BUCKETS];      /* struct stream by `of`, most recently used first */
};

void pool_init(struct pool *);
void pool_deinit(struct pool *);

/* An idle connection to this very node, or NULL. */
struct stream *pool_take(struct pool *, const struct addr *, uint64_t node_id);
/* Takes it; closes it if it is not clean, or there are enough. */
void pool_give(struct pool *, struct stream *, uint64_t now_ms);
/* Close what has been idle for long. */
void pool_sweep(struct pool *, uint64_t now_ms);
static inline size_t pool_count(struct pool *p) { return atomic_load(&p->count); }
/* Close everything; while closed, whatever is given is closed too. */
void pool_set_open(struct pool *, bool);

#endif
