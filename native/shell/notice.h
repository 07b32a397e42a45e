/* What a node has to say to its application: log lines, changed members, a wish for more
 * loader threads. A bounded queue that one parked thread, the attendant, empties (rule P6),
 * so that native threads never call the application.
 *
 * Log lines come at a bounded rate: a flood of hostile packets must not fill the log. What
 * was left out is counted and said.
 */
#ifndef PEERAGE_SHELL_NOTICE_H
#define PEERAGE_SHELL_NOTICE_H

#include <pthread.h>

#include "core/base.h"
#include "peerage.h"

struct notices {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct list lines;              /* struct line, in order */
    unsigned count;
    unsigned pool_wanted;           /* threads to start */
    bool release_rung;
    bool closed;
    double tokens;                  /* of the log's rate */
    uint64_t filled_ms;
    uint64_t left_out;
};

enum { LOG_DEBUG = 10, LOG_INFO = 20, LOG_WARNING = 30, LOG_ERROR = 40 };

void notice_init(struct notices *);
void notice_deinit(struct notices *);

/* One line for the log, at a bounded rate. */
void notice_log(struct notices *, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* MEMBERS or COORDINATOR: the newest replaces one that still waits. */
void notice_say(struct notices *, enum peerage_notice_kind, const char *line);
void notice_pool(struct notices *);
void notice_release(struct notices *);
void notice_close(struct notices *);

/* See peerage_attend. What was said before the close is still given. */
int notice_take(struct notices *, uint32_t timeout_ms, struct peerage_notice *out);

#endif
