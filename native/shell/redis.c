/* The connection to Redis (see redis.h; rules R1, R2).
 *
 *   REST -> NAMING -> DIALLING -> GREETING (AUTH, SELECT, PING) -> UP
 *
 * Two deadlines, both ours: 2 s until it is up, and 2 s for every command. What is late, or
 * broken, or refused ends the connection; it is tried again after 100 ms, then twice as
 * long each time, up to 10 s, with a random part so that a fleet does not come back at once.
 * A change of state is one line in the log, never with user or password.
 */
#include "shell/redis.h"

#include <stdio.h>
#include <sys/random.h>

#include "core/err.h"
#include "core/mem.h"
#include "shell/clock.h"
#include "shell/loop.h"
#include "shell/redis_state.h"
#include "shell/shell.h"
#include "shell/turn.h"
#include "shell/wait.h"

#define CONNECT_MS 2000u
#define COMMAND_MS 2000u
#define BACKOFF_MS_MIN 100u
#define BACKOFF_MS_MAX 10000u
#define LEAVE_MS 300u
#define ERROR_EVERY_MS 10000u

struct command {
    struct list of;
    struct redis *redis;
    uint64_t sent_ms;
    redis_done *done;
    void *token;
};

static struct redis_counters *counters(struct redis *r)
{
    return &r->peerage->redis;
}

static void see(struct redis *r, enum redis_phase_seen seen)
{
    struct peerage *p = r->peerage;

    atomic_store(&counters(r)->seen, seen);
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* Commands. */

static void answered(void *token, const struct redis_answer *a)
{
    struct command *c = token;
    struct redis *r = c->redis;

    list_remove(&c->of);
    if (a)
        r->trip_ms = clock_now_ms() - c->sent_ms;
    if (c->done)
        c->done(r, c->token, a);
    mem_free(c);
}

static bool send(struct redis *r, unsigned count_words, const struct span *words, redis_done *done,
                 void *token)
{
    struct command *c = r->link ? mem_alloc(sizeof *c) : NULL;

    if (!c)
        return false;
    *c = (struct command){.redis = r, .sent_ms = clock_now_ms(), .done = done, .token = token};
    if (!redis_link_send(r->link, count_words, words, answered, c)) {
        mem_free(c);
        return false;
    }
    list_add_tail(&r->commands, &c->of);
    return true;
}

bool redis_send(struct redis *r, unsigned count_words, const struct span *words, redis_done *done,
                void *token)
{
    return redis_is_up(r) && send(r, count_words, words, done, token);
}

void redis_error(struct redis *r, const struct redis_answer *a)
{
    struct span text = redis_text(a);
    uint64_t now_ms = clock_now_ms();

    count(&counters(r)->errors);
    if (r->error_ms && now_ms - r->error_ms < ERROR_EVERY_MS)
        return;
    r->error_ms = now_ms;
    notice_log(&r->peerage->notices, LOG_WARNING, "Redis at %s answers: %.*s", r->url->where,
               (int)min_size(text.bytes, 100), (const char *)text.at);
}

struct span redis_digits(uint64_t value, char out[24])
{
    return span_of(out, (size_t)snprintf(out, 24, "%llu", (unsigned long long)value));
}

/* The connection's end. */

static void rest(struct redis *r, const char *why)
{
    uint64_t random = 0;

    r->phase = PHASE_REST;
    r->link = NULL;
    r->backoff_ms = r->backoff_ms ? min_u64(2 * r->backoff_ms, BACKOFF_MS_MAX) : BACKOFF_MS_MIN;
    if (getentropy(&random, sizeof random) < 0)
        random = r->count;
    r->retry_ms = clock_now_ms() + r->backoff_ms * 3 / 4 + random % (r->backoff_ms / 4 + 1);
    r->marks_ms = NEVER_MS;
    if (!r->said_away && !r->closing)
        notice_log(&r->peerage->notices, LOG_WARNING, "Redis at %s is away (%s): this node goes on "
                   "without it, and tries again", r->url->where, why);
    r->said_away = true;
    see(r, REDIS_AWAY);
    redis_tier_away(r);
    if (r->leaving)
        r->leave_ms = 0;
}

/* By our own decision. */
static void drop(struct redis *r, const char *why)
{
    struct redis_link *link = r->link;

    redis_name_stop(r->lookup);
    r->lookup = NULL;
    r->link = NULL;
    r->phase = PHASE_REST;      /* nothing is sent while the commands hear of it */
    if (link)
        redis_link_close(link);
    rest(r, why);
}

/* Its beginning. */

static bool is_ok(struct redis *r, const struct redis_answer *a)
{
    if (!a || r->phase != PHASE_GREETING)
        return false;           /* it ends already */
    if (redis_kind(a) != REDIS_ERROR)
        return true;
    char why[REDIS_WHY_MAX];
    struct span text = redis_text(a);
    snprintf(why, sizeof why, "%.*s", (int)min_size(text.bytes, sizeof why - 1),
             (const char *)text.at);
    count(&counters(r)->errors);
    drop(r, why);
    return false;
}

static void greeted(struct redis *r, void *token, const struct redis_answer *a)
{
    (void)token;
    is_ok(r, a);
}

static void ponged(struct redis *r, void *token, const struct redis_answer *a)
{
    (void)token;
    if (!is_ok(r, a))
        return;
    r->phase = PHASE_UP;
    r->backoff_ms = 0;
    count(&counters(r)->connects);
    if (!r->ever || r->said_away)
        notice_log(&r->peerage->notices, LOG_INFO, "Redis at %s is %s", r->url->where,
                   r->ever ? "back" : "there");
    r->ever = true;
    r->said_away = false;
    r->marks_ms = 0;
    see(r, REDIS_UP);
    redis_tier_up(r);
}

static void greet(struct redis *r)
{
    const struct redis_url *u = r->url;
    struct span words[3];
    char digits[24];
    bool sent = true;

    r->phase = PHASE_GREETING;
    if (u->password[0]) {
        unsigned n = 0;
        words[n++] = span_text("AUTH");
        if (u->user[0])
            words[n++] = span_text(u->user);
        words[n++] = span_text(u->password);
        sent = send(r, n, words, greeted, NULL);
    }
    if (sent && u->db) {
        words[0] = span_text("SELECT");
        words[1] = redis_digits(u->db, digits);
        sent = send(r, 2, words, greeted, NULL);
    }
    words[0] = span_text("PING");
    if (!sent || !send(r, 1, words, ponged, NULL))
        drop(r, err_text(ERR_NOMEM));
}

static void linked(void *owner, const char *why)
{
    struct redis *r = owner;

    if (!why) {
        greet(r);
        return;
    }
    r->link = NULL;
    rest(r, why);
}

static void dial(struct redis *r, const struct addr *addr)
{
    const struct redis_url *u = r->url;
    char why[REDIS_WHY_MAX];

    r->phase = PHASE_DIALLING;
    r->link = redis_link_open(r->loop->ev, addr, u->path[0] ? u->path : NULL,
                              u->tls ? u->host : NULL, linked, r, why);
    if (!r->link)
        rest(r, why);
}

static void named(void *owner, const struct addr *addr, const char *why)
{
    struct redis *r = owner;

    r->lookup = NULL;
    if (addr)
        dial(r, addr);
    else
        rest(r, why);
}

static void begin(struct redis *r, uint64_t now_ms)
{
    struct addr addr = {.port = 0};

    r->phase_ms = now_ms + CONNECT_MS;
    if (r->url->path[0]) {
        dial(r, &addr);
    } else if (addr_parse(r->url->host, &addr) && addr.port == 0) {
        addr.port = r->url->port;
        dial(r, &addr);
    } else {
        r->phase = PHASE_NAMING;
        r->lookup = redis_name_start(r->peerage, r->url->host, r->url->port, named, r);
        if (!r->lookup)
            rest(r, err_text(ERR_NOMEM));
    }
}

/* Time. */

static uint64_t command_due_ms(const struct redis *r)
{
    if (list_empty(&r->commands))
        return NEVER_MS;
    return CONTAINER_OF(r->commands.next, struct command, of)->sent_ms + COMMAND_MS;
}

uint64_t redis_due_ms(const struct redis *r)
{
    uint64_t due_ms;

    if (!r)
        return NEVER_MS;
    due_ms = min_u64(r->tier_ms, r->phase == PHASE_UP ? r->marks_ms : NEVER_MS);
    due_ms = min_u64(due_ms, r->phase == PHASE_REST ? r->retry_ms : NEVER_MS);
    due_ms = min_u64(due_ms, r->phase > PHASE_REST && r->phase < PHASE_UP ? r->phase_ms : NEVER_MS);
    due_ms = min_u64(due_ms, command_due_ms(r));
    return r->leaving ? min_u64(due_ms, r->leave_ms) : due_ms;
}

static void left(struct redis *r, void *token, const struct redis_answer *a)
{
    (void)token;
    (void)a;
    r->leave_ms = 0;
}

void redis_tick(struct redis *r, uint64_t now_ms)
{
    if (!r)
        return;
    if (r->leaving && now_ms >= r->leave_ms) {
        r->left = true;
        r->leave_ms = NEVER_MS;
        return;
    }
    if (now_ms >= command_due_ms(r)) {
        count(&counters(r)->timeouts);
        drop(r, "no answer in 2 s");
    }
    if (r->phase == PHASE_REST && now_ms >= r->retry_ms && !r->leaving) {
        begin(r, now_ms);
    } else if (r->phase > PHASE_REST && r->phase < PHASE_UP && now_ms >= r->phase_ms) {
        count(&counters(r)->timeouts);
        drop(r, "no connection in 2 s");
    }
    if (r->phase == PHASE_UP && now_ms >= r->marks_ms)
        redis_marks_tick(r, now_ms);
    if (now_ms >= r->tier_ms)
        redis_tier_tick(r, now_ms);
}

/* Life. */

struct redis *redis_start(struct loop *loop)
{
    struct peerage *p = loop->peerage;
    struct turn t;

    if (!p->settings.redis_given || redis_link_missing(p->settings.redis.tls))
        return NULL;
    struct redis *r = mem_zalloc(sizeof *r);
    if (!r)
        return NULL;
    r->loop = loop;
    r->peerage = p;
    r->url = &p->settings.redis;
    r->prefix = p->settings.redis_prefix;
    if (getentropy(&r->id, sizeof r->id) < 0) {
        mem_free(r);
        return NULL;
    }
    list_init(&r->commands);
    r->retry_ms = r->tier_ms = r->marks_ms = NEVER_MS;
    redis_tier_init(r);
    atomic_store(&p->redis.seen, REDIS_TRYING);
    turn_begin(p, &t);
    serve_set_tier(node_serve(p->node), true, t.now_ms, &t.effects);
    turn_end(p, &t);
    return r;
}

void redis_run(struct redis *r)
{
    if (r)
        begin(r, clock_now_ms());
}

void redis_leave(struct redis *r)
{
    struct span quit = span_text("PING");

    r->leaving = true;
    r->leave_ms = clock_now_ms() + LEAVE_MS;
    redis_marks_remove(r);
    redis_tier_leave(r);
    /* Answers come in order: after this one everything that was written has arrived. */
    if (!redis_send(r, 1, &quit, left, NULL))
        r->leave_ms = 0;
}

bool redis_has_left(const struct redis *r)
{
    return !r || r->left;
}

void redis_stop(struct loop *loop)
{
    struct redis *r = loop->redis;
    struct peerage *p = loop->peerage;
    struct turn t;

    if (!r)
        return;
    r->closing = true;
    drop(r, "closing");
    turn_begin(p, &t);
    serve_set_tier(node_serve(p->node), false, t.now_ms, &t.effects);
    turn_end(p, &t);
    redis_tier_deinit(r);
    redis_marks_deinit(r);
    loop->redis = NULL;
    mem_free(r);
    atomic_store(&p->redis.seen, REDIS_OFF);
}

bool redis_wait(struct peerage *p, char line[PEERAGE_LINE_MAX])
{
    uint64_t until_ms = clock_now_ms() + CONNECT_MS + CONNECT_MS / 10;

    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->redis.seen) == REDIS_TRYING && wait_until(&p->changed, &p->lock, until_ms))
        ;
    pthread_mutex_unlock(&p->lock);
    int seen = atomic_load(&p->redis.seen);
    if (seen == REDIS_UP || seen == REDIS_OFF)
        return true;
    snprintf(line, PEERAGE_LINE_MAX, "REDIS_URL: Redis at %s is unreachable, and no peer was found",
             p->settings.redis.where);
    return false;
}
