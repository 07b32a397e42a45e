/* The attendant's queue (see notice.h). */
#include "shell/notice.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/err.h"
#include "core/mem.h"
#include "shell/clock.h"
#include "shell/wait.h"

#define LINES_MAX 256u
#define BURST 40.0
#define PER_MS (5.0 / 1000)

struct line {
    struct list of;
    int kind, level;
    char text[];
};

void notice_init(struct notices *n)
{
    memset(n, 0, sizeof *n);
    pthread_mutex_init(&n->lock, NULL);
    wait_init(&n->changed);
    list_init(&n->lines);
    n->tokens = BURST;
    n->filled_ms = clock_now_ms();
}

static void drop(struct notices *n, struct line *l)
{
    list_remove(&l->of);
    n->count--;
    mem_free(l);
}

void notice_deinit(struct notices *n)
{
    LIST_FOREACH_SAFE(&n->lines, l)
        drop(n, CONTAINER_OF(l, struct line, of));
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
}

/* Under the lock. Out of memory loses a line. */
static void add(struct notices *n, int kind, int level, const char *text)
{
    size_t bytes = strlen(text) + 1;
    struct line *l = n->closed || n->count >= LINES_MAX ? NULL : mem_alloc(sizeof *l + bytes);

    if (!l) {
        n->left_out++;
        return;
    }
    l->kind = kind;
    l->level = level;
    memcpy(l->text, text, bytes);
    list_add_tail(&n->lines, &l->of);
    n->count++;
    pthread_cond_signal(&n->changed);
}

static bool may_log(struct notices *n)
{
    uint64_t now = clock_now_ms();

    n->tokens += (double)(now - n->filled_ms) * PER_MS;
    n->filled_ms = now;
    if (n->tokens > BURST)
        n->tokens = BURST;
    if (n->tokens < 1)
        return false;
    n->tokens -= 1;
    return true;
}

void notice_log(struct notices *n, int level, const char *format, ...)
{
    char text[PEERAGE_LINE_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&n->lock);
    if (!may_log(n)) {
        n->left_out++;
    } else {
        if (n->left_out) {
            char more[64];
            snprintf(more, sizeof more, "%llu log lines left out",
                     (unsigned long long)n->left_out);
            n->left_out = 0;
            add(n, PEERAGE_NOTICE_LOG, LOG_WARNING, more);
        }
        add(n, PEERAGE_NOTICE_LOG, level, text);
    }
    pthread_mutex_unlock(&n->lock);
}

void notice_say(struct notices *n, enum peerage_notice_kind kind, const char *line)
{
    pthread_mutex_lock(&n->lock);
    LIST_FOREACH_SAFE(&n->lines, l) {
        struct line *old = CONTAINER_OF(l, struct line, of);
        if (old->kind == (int)kind)
            drop(n, old);
    }
    add(n, (int)kind, LOG_INFO, line);
    pthread_mutex_unlock(&n->lock);
}

void notice_pool(struct notices *n)
{
    pthread_mutex_lock(&n->lock);
    n->pool_wanted++;
    pthread_cond_signal(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

void notice_release(struct notices *n)
{
    pthread_mutex_lock(&n->lock);
    n->release_rung = true;
    pthread_cond_signal(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

void notice_close(struct notices *n)
{
    pthread_mutex_lock(&n->lock);
    n->closed = true;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static bool take_one(struct notices *n, struct peerage_notice *out)
{
    out->level = 0;
    out->line[0] = 0;
    if (n->pool_wanted) {
        n->pool_wanted--;
        out->kind = PEERAGE_NOTICE_POOL;
        return true;
    }
    if (n->release_rung) {
        n->release_rung = false;
        out->kind = PEERAGE_NOTICE_RELEASE;
        return true;
    }
    if (list_empty(&n->lines))
        return false;
    struct line *l = CONTAINER_OF(n->lines.next, struct line, of);
    out->kind = l->kind;
    out->level = l->level;
    snprintf(out->line, sizeof out->line, "%s", l->text);
    drop(n, l);
    return true;
}

int notice_take(struct notices *n, uint32_t timeout_ms, struct peerage_notice *out)
{
    uint64_t until_ms = clock_now_ms() + timeout_ms;
    int rc;

    pthread_mutex_lock(&n->lock);
    for (;;) {
        if (take_one(n, out))
            rc = 1;
        else if (n->closed)
            rc = ERR_CLOSED;
        else if (wait_until(&n->changed, &n->lock, until_ms))
            continue;
        else
            rc = 0;
        break;
    }
    pthread_mutex_unlock(&n->lock);
    return rc;
}
