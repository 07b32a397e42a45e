/* The second tier in Redis: what core's EFFECT_TIER_... become.
 *
 *   <prefix>:value:<label>:<key>        a value (core/tier.h), sealed with encryption on
 *   <prefix>:lease:<label>:<key>        the token of who loads it
 *   <prefix>:gone:<label>:<key>         the id of its last delete, for as long as a load that
 *   <prefix>:gone-channel:<label>:<ch>  began before it may take (D5)
 *   <prefix>:channel:<label>:<ch>       which values a channel has
 *
 * Everything is a script of one step, because what it decides by must not change in between:
 * no value is written over a delete that its load did not know of, no lease is granted where
 * the value has just come, none is let go or renewed by another than its holder. Commands of
 * Redis 6 and Valkey only.
 */
#include <stdio.h>
#include <sys/random.h>

#include "core/limits.h"
#include "core/mem.h"
#include "core/tier.h"
#include "shell/clock.h"
#include "shell/loop.h"
#include "shell/redis_state.h"
#include "shell/shell.h"
#include "shell/turn.h"

#define DELETES_MAX 1024u           /* kept until Redis is back */
#define MARK_BYTES_MAX 24u

/* KEYS value, lease, gone, gone-channel; ARGV token (empty: only a look), ms.
 * {0, value, ms left} | {1, mark, mark}: the lease is yours | {2}: another's | {3}: nothing */
static const char ask_script[] =
    "local v = redis.call('GET', KEYS[1]) "
    "if v then return {0, v, redis.call('PTTL', KEYS[1])} end "
    "if ARGV[1] == '' then return {3} end "
    "if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then "
    "return {1, redis.call('GET', KEYS[3]), redis.call('GET', KEYS[4])} end "
    "return {2}";
/* KEYS lease; ARGV token, ms */
static const char renew_script[] =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then "
    "return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
static const char release_script[] =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then "
    "return redis.call('DEL', KEYS[1]) end return 0";
/* What both writers end with. */
#define INDEX_VALUE(channel, ms) \
    "if " channel " then redis.call('SADD', " channel ", KEYS[1]) " \
    "if redis.call('PTTL', " channel ") < tonumber(" ms ") then " \
    "redis.call('PEXPIRE', " channel ", " ms ") end end "
/* KEYS value, gone, gone-channel[, channel]; ARGV value, ms, mark, mark */
static const char put_script[] =
    "for i = 2, 3 do local m = redis.call('GET', KEYS[i]) "
    "if m and m ~= ARGV[i + 1] then return 0 end end "
    "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) "
    INDEX_VALUE("KEYS[4]", "ARGV[2]")
    "return 1";
/* The mark of the later delete stays (D1); the texts are of one length, so they compare as the
 * ids do. */
#define MARK(gone) \
    "local m = redis.call('GET', " gone ") if not m or m <= ARGV[1] then " \
    "redis.call('SET', " gone ", ARGV[1], 'PX', ARGV[2]) end "
/* KEYS value, gone, gone-channel[, channel]; ARGV mark, ms[, value, ms] */
static const char delete_script[] =
    "redis.call('DEL', KEYS[1]) " MARK("KEYS[2]")
    "local c = redis.call('GET', KEYS[3]) "
    "if ARGV[3] and (not m or m <= ARGV[1]) and (not c or c <= ARGV[1]) then "
    "redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4]) "
    INDEX_VALUE("KEYS[4]", "ARGV[4]")
    "end return 1";
/* KEYS channel, gone-channel, value of the key named like it; ARGV mark, ms */
static const char delete_channel_script[] =
    "for _, k in ipairs(redis.call('SMEMBERS', KEYS[1])) do redis.call('DEL', k) end "
    "redis.call('DEL', KEYS[1], KEYS[3]) " MARK("KEYS[2]")
    "return 1";

/* A flight that asks, or holds its lease. Found by its load id until it has ended; one that
 * ends while its question is out is freed by the answer. */
struct ask {
    struct list of;
    struct redis *redis;
    uint64_t load_id, asked_ms, renew_ms;
    struct tier_ask tier;
    bool sent, unsent;          /* a question is out; waits for the connection to be made */
    bool ended;
    char token[48];
    char marks[2][MARK_BYTES_MAX];      /* as they were when the lease was granted */
    struct span key, channel;   /* into text */
    uint8_t text[];
};

/* A delete that Redis has not acknowledged. */
struct removal {
    struct list of;
    struct redis *redis;
    uint64_t call_id, tell_ms;  /* tell_ms NEVER_MS: core has its answer */
    uint64_t delete_id;
    bool by_channel, sent;
    struct span key, channel;
    uint8_t text[];
};

/* Names. */

struct name {
    size_t bytes;
    char at[NAME_BYTES_MAX];
};

static struct span name(const struct redis *r, const char *kind, struct span of, struct name *out)
{
    const char *label = r->peerage->settings.label;
    int n = snprintf(out->at, sizeof out->at, "%s:%s:%s:", r->prefix, kind, label);

    assert(n > 0 && (size_t)n + of.bytes <= sizeof out->at);
    if (of.bytes)
        memcpy(out->at + n, of.at, of.bytes);
    out->bytes = (size_t)n + of.bytes;
    return span_of(out->at, out->bytes);
}

static struct span mark_text(uint64_t id, char out[MARK_BYTES_MAX])
{
    if (id == 0)
        return SPAN_NONE;
    return span_of(out, (size_t)snprintf(out, MARK_BYTES_MAX, "%016llx", (unsigned long long)id));
}

static uint8_t *keep(uint8_t *at, struct span from, struct span *to)
{
    *to = span_of(at, from.bytes);
    if (from.bytes)
        memcpy(at, from.at, from.bytes);
    return at + from.bytes;
}

static void due_by(struct redis *r, uint64_t at_ms)
{
    r->tier_ms = min_u64(r->tier_ms, at_ms);
}

/* An answer that only matters when it is an error. */
static void told(struct redis *r, void *token, const struct redis_answer *a)
{
    (void)token;
    if (a && redis_kind(a) == REDIS_ERROR)
        redis_error(r, a);
}

/* Values. */

/* Head and value as they lie in Redis; NULL: no memory. */
static uint8_t *wrap(struct redis *r, const struct loaded *item, struct span redis_name,
                     size_t *bytes)
{
    const struct settings *s = &r->peerage->settings;
    size_t clear_bytes = TIER_HEAD_BYTES + item->blob->bytes;
    uint8_t *clear = mem_alloc(clear_bytes), *sealed = NULL, nonce[24];

    if (!clear)
        return NULL;
    tier_write(item, clear);
    if (item->blob->bytes)
        memcpy(clear + TIER_HEAD_BYTES, item->blob->at, item->blob->bytes);
    *bytes = clear_bytes;
    if (!s->encryption)
        return clear;
    *bytes += SEAL_REST_BYTES;
    if (getentropy(nonce, sizeof nonce) == 0 && (sealed = mem_alloc(*bytes)) &&
        seal_rest(&s->seal, redis_name, nonce, span_of(clear, clear_bytes), sealed) < 0) {
        mem_free(sealed);
        sealed = NULL;
    }
    mem_free(clear);
    return sealed;
}

/* The other way: *out with a blob of its own. False: nothing of ours, or no memory. */
static bool unwrap(struct redis *r, struct span in, uint64_t left_ms, struct span redis_name,
                   struct loaded *out)
{
    const struct settings *s = &r->peerage->settings;
    uint8_t *opened = NULL;
    bool read = false;

    if (in.bytes > FRAME_BYTES_MAX + TIER_HEAD_BYTES + SEAL_REST_BYTES)
        return false;
    if (s->encryption) {
        opened = mem_alloc(in.bytes + 1);
        long bytes = opened ? seal_rest_open(&s->seal, redis_name, in, opened) : -1;
        if (bytes < 0) {
            mem_free(opened);
            return false;
        }
        in = span_of(opened, (size_t)bytes);
    }
    if (tier_read(in, left_ms, out)) {
        out->blob = blob_copy(span_of(in.at + TIER_HEAD_BYTES, in.bytes - TIER_HEAD_BYTES));
        read = out->blob != NULL;
    }
    mem_free(opened);
    return read;
}

/* Asking. */

static struct list *bucket(struct redis *r, uint64_t load_id)
{
    return &r->asks[load_id % ASK_BUCKETS];
}

static struct ask *find(struct redis *r, uint64_t load_id)
{
    LIST_FOREACH(bucket(r, load_id), l) {
        struct ask *a = CONTAINER_OF(l, struct ask, of);
        if (a->load_id == load_id)
            return a;
    }
    return NULL;
}

static void release(struct redis *r, struct span key, const char *token)
{
    struct name lease;
    struct span words[] = {span_text("EVAL"), span_text(release_script), span_text("1"),
                           name(r, "lease", key, &lease), span_text(token)};

    redis_send(r, ARRAY_COUNT(words), words, told, NULL);
}

static void free_ask(struct ask *a)
{
    list_remove(&a->of);
    mem_free(a);
}

/* The flight has ended. */
static void end(struct redis *r, uint64_t load_id)
{
    struct ask *a = find(r, load_id);

    if (!a)
        return;
    if (a->tier.leased)
        release(r, a->key, a->token);
    if (a->sent) {
        list_remove(&a->of);
        a->ended = true;
    } else {
        free_ask(a);
    }
}

/* Load it, with the lease or without. Core may end the flight within: `a` is not touched after
 * the call into it. */
static void load(struct redis *r, struct ask *a, uint64_t now_ms)
{
    struct peerage *p = r->peerage;
    uint64_t load_id = a->load_id;
    bool leased = a->tier.leased;
    struct turn t;

    if (leased) {
        a->renew_ms = now_ms + TIER_RENEW_MS;
        due_by(r, a->renew_ms);
    } else {
        free_ask(a);
    }
    turn_begin_loop(p, r->loop, &t);
    bool loads = serve_tier_load(node_serve(p->node), load_id, t.now_ms, &t.effects);
    turn_end(p, &t);
    if (!loads && leased)
        end(r, load_id);
}

static void land(struct redis *r, struct ask *a, const struct loaded *item)
{
    struct peerage *p = r->peerage;
    uint64_t load_id = a->load_id, asked_ms = a->asked_ms;
    struct turn t;

    free_ask(a);
    turn_begin_loop(p, r->loop, &t);
    serve_tier_value(node_serve(p->node), load_id, item, asked_ms, t.now_ms, &t.effects);
    turn_end(p, &t);
}

static void copy_mark(struct span from, char out[MARK_BYTES_MAX])
{
    size_t bytes = min_size(from.bytes, MARK_BYTES_MAX - 1);

    if (bytes)
        memcpy(out, from.at, bytes);
    out[bytes] = 0;
}

/* What an answer means; fills *item with TIER_VALUE. */
static enum tier_reply read_answer(struct redis *r, struct ask *a, const struct redis_answer *got,
                                   struct loaded *item)
{
    struct name value;
    unsigned count_items = got ? redis_count(got) : 0;

    if (got && redis_kind(got) == REDIS_ERROR)
        redis_error(r, got);
    if (count_items == 0)
        return TIER_AWAY;
    switch (redis_number(redis_item(got, 0))) {
    case 0:
        if (count_items == 3 &&
            unwrap(r, redis_text(redis_item(got, 1)),
                   (uint64_t)(redis_number(redis_item(got, 2)) > 0 ? redis_number(redis_item(got, 2))
                                                                   : 0),
                   name(r, "value", a->key, &value), item))
            return TIER_VALUE;
        count(&r->peerage->redis.errors);
        return TIER_AWAY;       /* another mode, another secret: load, and write over it */
    case 1:
        for (unsigned i = 0; i < 2; i++)
            copy_mark(i + 1 < count_items ? redis_text(redis_item(got, i + 1)) : SPAN_NONE,
                      a->marks[i]);
        count(&r->peerage->redis.leases);
        return TIER_LEASED;
    case 2:
        return TIER_HELD;
    default:
        count(&r->peerage->redis.misses);
        return TIER_NOTHING;
    }
}

static void follow(struct redis *, struct ask *, enum tier_step, uint64_t now_ms);

static void asked(struct redis *r, void *token, const struct redis_answer *got)
{
    struct ask *a = token;
    struct loaded item = {.blob = NULL};
    uint64_t now_ms = clock_now_ms();
    enum tier_reply reply = read_answer(r, a, got, &item);

    a->sent = false;
    if (a->ended) {
        if (reply == TIER_LEASED)
            release(r, a->key, a->token);
        mem_free(a);
    } else {
        enum tier_step step = tier_replied(&a->tier, reply, now_ms);
        if (step == TIER_LAND)
            land(r, a, &item);
        else
            follow(r, a, step, now_ms);
    }
    blob_unref(item.blob);
}

static bool send_ask(struct redis *r, struct ask *a, uint64_t now_ms)
{
    struct name names[4];
    char lease_ms[24];
    struct span words[] = {
        span_text("EVAL"), span_text(ask_script), span_text("4"),
        name(r, "value", a->key, &names[0]), name(r, "lease", a->key, &names[1]),
        name(r, "gone", a->key, &names[2]), name(r, "gone-channel", a->channel, &names[3]),
        a->tier.wants_lease ? span_text(a->token) : SPAN_NONE,
        redis_digits(TIER_LEASE_MS, lease_ms),
    };

    a->asked_ms = now_ms;
    a->sent = redis_send(r, ARRAY_COUNT(words), words, asked, a);
    return a->sent;
}

static void follow(struct redis *r, struct ask *a, enum tier_step step, uint64_t now_ms)
{
    switch (step) {
    case TIER_SEND:
        if (!send_ask(r, a, now_ms))
            load(r, a, now_ms);
        return;
    case TIER_WAIT:
        count(&r->peerage->redis.waits);
        due_by(r, a->tier.due_ms);
        return;
    case TIER_LAND:
    case TIER_GO:
        load(r, a, now_ms);
        return;
    }
}

/* Only noted here: core may be what we were called from. It is sent, or told that Redis is
 * away, at the next tick, which is at once. */
static void take_ask(struct redis *r, const struct effect *e)
{
    const struct message *m = &e->message;
    uint64_t now_ms = clock_now_ms();
    struct ask *a = mem_zalloc(sizeof *a + m->key.bytes + m->channel.bytes);

    if (!a)
        return;                 /* core's own deadline */
    a->redis = r;
    a->load_id = e->load_id;
    a->renew_ms = NEVER_MS;
    a->unsent = true;
    keep(keep(a->text, m->key, &a->key), m->channel, &a->channel);
    snprintf(a->token, sizeof a->token, "%016llx-%llu", (unsigned long long)r->id,
             (unsigned long long)++r->count);
    tier_begin(&a->tier, e->lease, now_ms + e->timeout_ms);
    list_add_tail(bucket(r, e->load_id), &a->of);
    due_by(r, 0);
}

/* Writing behind. */

struct put {
    size_t bytes;
};

static void put_done(struct redis *r, void *token, const struct redis_answer *a)
{
    struct put *put = token;
    struct redis_counters *c = &r->peerage->redis;

    r->put_bytes -= put->bytes;
    mem_free(put);
    if (!a)
        count(&c->writes_lost);
    else if (redis_kind(a) == REDIS_ERROR)
        redis_error(r, a);
    else
        count(redis_number(a) == 1 ? &c->writes : &c->writes_refused);
}

/* What is left of a TTL when the server gets it: the way there is taken off (C1). */
static uint32_t shortened(const struct redis *r, uint32_t ttl_ms)
{
    if (ttl_ms == UINT32_MAX)
        return ttl_ms;
    return ttl_ms > r->trip_ms ? ttl_ms - (uint32_t)r->trip_ms : 0;
}

static void take_put(struct redis *r, const struct effect *e)
{
    const struct message *m = &e->message;
    const struct ask *a = find(r, e->load_id);
    bool indexed = !span_equal(m->channel, m->key);
    struct loaded item = {.blob = e->value, .value_type = m->value_type,
                          .ttl_ms = shortened(r, m->ttl_ms), .stale_ms = m->stale_ms,
                          .age_ms = m->age_ms};
    struct name names[4];
    char ms[24], marks[2][MARK_BYTES_MAX];
    size_t bytes = 0;

    if (!redis_is_up(r) || item.ttl_ms == 0 || !e->value ||
        r->put_bytes + e->value->bytes > QUEUED_BYTES_MAX) {
        count(&r->peerage->redis.writes_lost);
        return;
    }
    struct span value_name = name(r, "value", m->key, &names[0]);
    uint8_t *wrapped = wrap(r, &item, value_name, &bytes);
    struct put *put = mem_alloc(sizeof *put);
    if (wrapped && put) {
        bool leased = a && a->tier.leased;
        struct span words[] = {
            span_text("EVAL"), span_text(put_script), span_text(indexed ? "4" : "3"),
            value_name, name(r, "gone", m->key, &names[1]),
            name(r, "gone-channel", m->channel, &names[2]),
            name(r, "channel", m->channel, &names[3]),
            span_of(wrapped, bytes), redis_digits(tier_kept_ms(item.ttl_ms), ms),
            leased ? span_text(a->marks[0]) : mark_text(e->marks[0], marks[0]),
            leased ? span_text(a->marks[1]) : mark_text(e->marks[1], marks[1]),
        };
        if (!indexed)
            memmove(&words[6], &words[7], 4 * sizeof words[0]);
        put->bytes = bytes;
        if (redis_send(r, ARRAY_COUNT(words) - !indexed, words, put_done, put)) {
            r->put_bytes += bytes;
            put = NULL;
        }
    }
    if (put || !wrapped)
        count(&r->peerage->redis.writes_lost);
    mem_free(put);
    mem_free(wrapped);
}

/* Deleting. */

static void free_removal(struct removal *d)
{
    list_remove(&d->of);
    d->redis->delete_count--;
    mem_free(d);
}

/* The word for core: acknowledged, or unreached. */
static void tell(struct redis *r, uint64_t call_id, bool acknowledged)
{
    struct peerage *p = r->peerage;
    struct message done = {.kind = MESSAGE_DONE};
    struct turn t;

    turn_begin_loop(p, r->loop, &t);
    node_reply(p->node, call_id, acknowledged ? &done : NULL, NULL, t.now_ms, &t.effects);
    turn_end(p, &t);
}

static void removed(struct redis *r, void *token, const struct redis_answer *a)
{
    struct removal *d = token;
    uint64_t call_id = d->call_id;
    bool waits = d->tell_ms != NEVER_MS, acknowledged = a && redis_kind(a) != REDIS_ERROR;

    if (a && redis_kind(a) == REDIS_ERROR)
        redis_error(r, a);
    d->sent = false;
    d->tell_ms = NEVER_MS;
    if (acknowledged)
        count(&r->peerage->redis.deletes);
    if (a)
        free_removal(d);        /* else it is sent again when Redis is back */
    if (waits)
        tell(r, call_id, acknowledged);
}

/* `item`: a set's value, or NULL. */
static bool send_removal(struct redis *r, struct removal *d, const struct loaded *item)
{
    struct name names[4];
    char mark[MARK_BYTES_MAX], mark_ms[24], ms[24];
    struct span words[13];
    unsigned n = 0;
    size_t bytes = 0;
    uint8_t *wrapped = NULL;
    bool indexed = item && !span_equal(d->key, d->channel);

    words[n++] = span_text("EVAL");
    words[n++] = span_text(d->by_channel ? delete_channel_script : delete_script);
    words[n++] = span_text(indexed && !d->by_channel ? "4" : "3");
    if (d->by_channel) {
        words[n++] = name(r, "channel", d->channel, &names[0]);
        words[n++] = name(r, "gone-channel", d->channel, &names[1]);
        words[n++] = name(r, "value", d->channel, &names[2]);
    } else {
        words[n++] = name(r, "value", d->key, &names[0]);
        words[n++] = name(r, "gone", d->key, &names[1]);
        words[n++] = name(r, "gone-channel", d->channel, &names[2]);
        if (indexed)
            words[n++] = name(r, "channel", d->channel, &names[3]);
    }
    words[n++] = mark_text(d->delete_id, mark);
    words[n++] = redis_digits(r->peerage->settings.load_timeout_ms, mark_ms);
    if (item && (wrapped = wrap(r, item, words[3], &bytes))) {
        words[n++] = span_of(wrapped, bytes);
        words[n++] = redis_digits(tier_kept_ms(item->ttl_ms), ms);
    }
    d->sent = redis_send(r, n, words, removed, d);
    mem_free(wrapped);
    return d->sent;
}

static void take_delete(struct redis *r, const struct effect *e)
{
    const struct message *m = &e->message;
    struct removal *d = mem_zalloc(sizeof *d + m->key.bytes + m->channel.bytes);
    struct loaded item = {.blob = e->value, .value_type = m->value_type,
                          .ttl_ms = shortened(r, m->ttl_ms), .stale_ms = m->stale_ms};
    uint64_t now_ms = clock_now_ms();

    if (!d)
        return;
    if (r->delete_count == DELETES_MAX) {
        struct removal *oldest = CONTAINER_OF(r->deletes.next, struct removal, of);
        if (oldest->tell_ms == NEVER_MS && !oldest->sent)
            free_removal(oldest);
    }
    d->redis = r;
    d->call_id = e->call_id;
    d->delete_id = m->delete_id;
    d->by_channel = m->flags & MESSAGE_BY_CHANNEL;
    keep(keep(d->text, m->key, &d->key), m->channel, &d->channel);
    list_add_tail(&r->deletes, &d->of);
    r->delete_count++;
    bool sets = item.blob && item.ttl_ms &&
                item.blob->bytes <= FRAME_BYTES_MAX - HEAD_BYTES_MAX;
    send_removal(r, d, sets ? &item : NULL);
    /* Away: said at the next tick, since core may be what we were called from. */
    d->tell_ms = d->sent || r->phase != PHASE_REST ? now_ms + e->timeout_ms : now_ms;
    due_by(r, d->tell_ms);
}

/* All of it. */

void redis_carry(struct redis *r, struct effect *e)
{
    if (!r)
        return;
    switch (e->kind) {
    case EFFECT_TIER_ASK:
        take_ask(r, e);
        break;
    case EFFECT_TIER_PUT:
        take_put(r, e);
        break;
    case EFFECT_TIER_END:
        end(r, e->load_id);
        break;
    case EFFECT_TIER_DELETE:
        take_delete(r, e);
        break;
    case EFFECT_TIER_TALLY:
        redis_tally(r, e);
        break;
    default:
        break;
    }
}

static void renew(struct redis *r, struct ask *a, uint64_t now_ms)
{
    struct name lease;
    char ms[24];
    struct span words[] = {span_text("EVAL"), span_text(renew_script), span_text("1"),
                           name(r, "lease", a->key, &lease), span_text(a->token),
                           redis_digits(TIER_LEASE_MS, ms)};

    redis_send(r, ARRAY_COUNT(words), words, told, NULL);
    a->renew_ms = now_ms + TIER_RENEW_MS;
}

static bool waits_for_link(const struct redis *r)
{
    return r->phase != PHASE_UP && !r->said_away;       /* the first connection is being made */
}

static void go_on(struct redis *r, struct ask *a, uint64_t now_ms)
{
    if (a->unsent) {
        a->unsent = false;
        follow(r, a, TIER_SEND, now_ms);
    } else {
        follow(r, a, tier_due(&a->tier, now_ms), now_ms);
    }
}

static bool is_due(const struct redis *r, const struct ask *a, uint64_t now_ms)
{
    if (a->sent || a->tier.leased)
        return false;
    return a->unsent ? !waits_for_link(r) || now_ms >= a->tier.until_ms : now_ms >= a->tier.due_ms;
}

void redis_tier_tick(struct redis *r, uint64_t now_ms)
{
    struct list due;

    list_init(&due);
    r->tier_ms = NEVER_MS;
    for (unsigned b = 0; b < ASK_BUCKETS; b++) {
        LIST_FOREACH_SAFE(&r->asks[b], l) {
            struct ask *a = CONTAINER_OF(l, struct ask, of);
            if (is_due(r, a, now_ms)) {
                list_remove(l);
                list_add_tail(&due, l);
                continue;
            }
            if (a->renew_ms <= now_ms)
                renew(r, a, now_ms);
            due_by(r, a->renew_ms);
            due_by(r, a->sent ? NEVER_MS : a->unsent ? a->tier.until_ms : a->tier.due_ms);
        }
    }
    /* Back where they can be found before core hears of them: it may end others meanwhile, and
     * those are gone from `due` then. */
    while (!list_empty(&due)) {
        struct ask *a = CONTAINER_OF(due.next, struct ask, of);
        list_remove(&a->of);
        list_add_tail(bucket(r, a->load_id), &a->of);
        go_on(r, a, now_ms);
    }
    for (bool again = true; again;) {
        again = false;
        LIST_FOREACH(&r->deletes, l) {
            struct removal *d = CONTAINER_OF(l, struct removal, of);
            if (d->tell_ms <= now_ms) {
                d->tell_ms = NEVER_MS;
                tell(r, d->call_id, false);
                again = true;
                break;
            }
            due_by(r, d->tell_ms);
        }
    }
}

void redis_tier_up(struct redis *r)
{
    /* First what was deleted while it was away, then questions. */
    LIST_FOREACH(&r->deletes, l) {
        struct removal *d = CONTAINER_OF(l, struct removal, of);
        if (!d->sent)
            send_removal(r, d, NULL);
    }
    due_by(r, 0);
}

void redis_tier_away(struct redis *r)
{
    for (unsigned b = 0; b < ASK_BUCKETS; b++) {
        LIST_FOREACH(&r->asks[b], l) {
            struct ask *a = CONTAINER_OF(l, struct ask, of);
            if (!a->sent && !a->tier.leased && !a->unsent)
                a->tier.due_ms = 0;     /* sent to nobody, it goes on without */
        }
    }
    LIST_FOREACH(&r->deletes, l) {
        struct removal *d = CONTAINER_OF(l, struct removal, of);
        if (d->tell_ms != NEVER_MS)
            d->tell_ms = 0;
    }
    due_by(r, 0);
}

void redis_tier_leave(struct redis *r)
{
    for (unsigned b = 0; b < ASK_BUCKETS; b++) {
        LIST_FOREACH(&r->asks[b], l) {
            struct ask *a = CONTAINER_OF(l, struct ask, of);
            if (a->tier.leased)
                release(r, a->key, a->token);
        }
    }
}

void redis_tier_init(struct redis *r)
{
    list_init(&r->deletes);
    for (unsigned b = 0; b < ASK_BUCKETS; b++)
        list_init(&r->asks[b]);
}

void redis_tier_deinit(struct redis *r)
{
    for (unsigned b = 0; b < ASK_BUCKETS; b++) {
        while (!list_empty(&r->asks[b]))
            free_ask(CONTAINER_OF(r->asks[b].next, struct ask, of));
    }
    while (!list_empty(&r->deletes))
        free_removal(CONTAINER_OF(r->deletes.next, struct removal, of));
}
