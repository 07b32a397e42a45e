/* Heartbeat markers, by which nodes find each other without PEERS.
 *
 * Each node keeps `<prefix>:node:<host>:<pid>` = {"peer": "10.0.0.1:7946", ...} alive for
 * 30 s, and every 10 s reads all others. The addresses of those who are no live members
 * become a seed of membership, asked like one of PEERS: an address in Redis is a hint,
 * never a member. The whole key space is gone through with SCAN, page by page, since KEYS
 * would stop a large server.
 */
#include <stdio.h>
#include <unistd.h>

#include "core/limits.h"
#include "core/mem.h"
#include "shell/clock.h"
#include "shell/loop.h"
#include "shell/redis_state.h"
#include "shell/shell.h"

#define EVERY_MS 10000u
#define ALONE_EVERY_MS 1000u        /* while nobody was found: a fleet starts all at once */
#define MARK_MS "30000"
#define FOUND_MAX 1024u
#define PAGE "500"                  /* keys looked at, about; all of them fit in one MGET */
#define REDIS_SEED (SEEDS_MAX - 1)  /* PEERS has those from 1 on, see read_seeds */

static struct span mark_name(struct redis *r, char *out, size_t room)
{
    char host[128] = "";

    gethostname(host, sizeof host - 1);
    return span_of(out, (size_t)snprintf(out, room, "%s:node:%s:%ld", r->prefix, host,
                                         (long)getpid()));
}

static void cluster(struct redis *r, char out[2 * FRAME_LABEL_BYTES + 1])
{
    for (unsigned i = 0; i < FRAME_LABEL_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", r->peerage->settings.seal.label[i]);
}

/* Reading. */

/* The text of a member of a flat JSON object; no escapes, which ours never need. */
static bool text_of(struct span json, const char *name, char *out, size_t room)
{
    char quoted[32];
    size_t bytes = (size_t)snprintf(quoted, sizeof quoted, "\"%s\"", name), n = 0;
    const char *at = json.bytes ? memmem(json.at, json.bytes, quoted, bytes) : NULL;
    const char *end = (const char *)json.at + json.bytes;

    if (!at)
        return false;
    at += bytes;
    while (at < end && (*at == ' ' || *at == ':'))
        at++;
    if (at == end || *at++ != '"')
        return false;
    while (at < end && *at != '"' && n + 1 < room)
        out[n++] = *at++;
    out[n] = 0;
    return at < end && *at == '"';
}

static bool is_known(struct redis *r, const struct addr *a)
{
    struct peerage *p = r->peerage;

    pthread_mutex_lock(&p->lock);
    const struct view *v = serve_view(node_serve(p->node));
    bool known = addr_equal(a, &p->self) || (v && view_find(v, a) >= 0);
    pthread_mutex_unlock(&p->lock);
    return known;
}

static void take_mark(struct redis *r, struct span json)
{
    const struct peerage *p = r->peerage;
    char text[ADDR_TEXT_MAX], own[2 * FRAME_LABEL_BYTES + 1], its[2 * FRAME_LABEL_BYTES + 1];
    struct addr a;

    if (!text_of(json, "peer", text, sizeof text) || !addr_parse(text, &a) || a.port == 0 ||
        r->found_count == FOUND_MAX)
        return;
    cluster(r, own);
    if (text_of(json, "cluster", its, sizeof its) && strcmp(own, its) != 0)
        return;                 /* another label: it would not admit us */
    if (!settings_allow(&p->settings, p->own_hosts, p->own_hosts_count, &a) || is_known(r, &a))
        return;
    r->found[r->found_count++] = a;
}

static void seed(struct redis *r)
{
    struct swim *swim = node_swim(r->peerage->node);

    if (swim && !r->loop->parted) {
        swim_set_seed(swim, REDIS_SEED, r->found, r->found_count);
        loop_news(r->loop);
    }
    mem_free(r->found);
    r->found = NULL;
}

static void scan(struct redis *r, struct span cursor);

/* The marks of one page, and the next page's cursor as the token. */
static void got_marks(struct redis *r, void *token, const struct redis_answer *a)
{
    char *cursor = token;

    for (unsigned i = 0; a && r->found && i < redis_count(a); i++)
        take_mark(r, redis_text(redis_item(a, i)));
    if (a && redis_kind(a) == REDIS_ERROR)
        redis_error(r, a);
    if (!a || !r->found) {
        mem_free(r->found);
        r->found = NULL;
    } else if (strcmp(cursor, "0") == 0) {
        seed(r);
    } else {
        scan(r, span_text(cursor));
    }
    mem_free(cursor);
}

static void got_page(struct redis *r, void *token, const struct redis_answer *a)
{
    struct span words[REDIS_WORDS_MAX];
    char *cursor = NULL;

    (void)token;
    if (a && redis_kind(a) == REDIS_ERROR)
        redis_error(r, a);
    if (a && redis_count(a) == 2 && r->found) {
        struct span next = redis_text(redis_item(a, 0));
        cursor = mem_zalloc(next.bytes + 1);
        if (cursor)
            memcpy(cursor, next.at, next.bytes);
    }
    if (!cursor) {
        mem_free(r->found);
        r->found = NULL;
        return;
    }
    const struct redis_answer *keys = redis_item(a, 1);
    unsigned count_words = 0;
    words[count_words++] = span_text("MGET");
    for (unsigned i = 0; i < redis_count(keys) && count_words < ARRAY_COUNT(words); i++)
        words[count_words++] = redis_text(redis_item(keys, i));
    if (count_words > 1) {
        if (!redis_send(r, count_words, words, got_marks, cursor)) {
            mem_free(cursor);
            mem_free(r->found);
            r->found = NULL;
        }
    } else if (strcmp(cursor, "0") == 0) {
        mem_free(cursor);
        seed(r);
    } else {
        scan(r, span_text(cursor));
        mem_free(cursor);
    }
}

static void scan(struct redis *r, struct span cursor)
{
    char pattern[512];
    size_t n = 0;

    for (const char *c = r->prefix; *c && n + 2 < sizeof pattern - 8; c++) {
        if (strchr("*?[]\\^-", *c))
            pattern[n++] = '\\';
        pattern[n++] = *c;
    }
    memcpy(pattern + n, ":node:*", 7);
    struct span words[] = {span_text("SCAN"), cursor, span_text("MATCH"), span_of(pattern, n + 7),
                           span_text("COUNT"), span_text(PAGE)};
    if (!redis_send(r, ARRAY_COUNT(words), words, got_page, NULL)) {
        mem_free(r->found);
        r->found = NULL;
    }
}

/* Writing. */

static void marked(struct redis *r, void *token, const struct redis_answer *a)
{
    (void)token;
    if (a && redis_kind(a) == REDIS_ERROR)
        redis_error(r, a);
}

static void mark(struct redis *r)
{
    struct peerage *p = r->peerage;
    char name[512], json[256], text[ADDR_TEXT_MAX], own[2 * FRAME_LABEL_BYTES + 1];

    cluster(r, own);
    int bytes = snprintf(json, sizeof json, "{\"peer\": \"%s\", \"node\": \"%016llx\", "
                         "\"started_ms\": %llu, \"cluster\": \"%s\"}", addr_format(&p->self, text),
                         (unsigned long long)p->node_id, (unsigned long long)r->loop->started_ms,
                         own);
    struct span words[] = {span_text("SET"), mark_name(r, name, sizeof name),
                           span_of(json, (size_t)bytes), span_text("PX"), span_text(MARK_MS)};
    redis_send(r, ARRAY_COUNT(words), words, marked, NULL);
}

void redis_marks_tick(struct redis *r, uint64_t now_ms)
{
    struct swim *swim = node_swim(r->peerage->node);

    r->marks_ms = NEVER_MS;
    if (!swim || r->loop->parted || r->leaving)
        return;
    r->marks_ms = now_ms + (swim_is_alone(swim) ? ALONE_EVERY_MS : EVERY_MS);
    if (!r->loop->observing && !r->peerage->settings.observer)
        mark(r);
    if (r->found)
        return;                 /* the last round is still under way */
    r->found_count = 0;
    r->found = mem_alloc(FOUND_MAX * sizeof r->found[0]);
    if (r->found)
        scan(r, span_text("0"));
}

void redis_marks_remove(struct redis *r)
{
    char name[512];
    struct span words[] = {span_text("DEL"), mark_name(r, name, sizeof name)};

    if (r->peerage->settings.enabled)
        redis_send(r, ARRAY_COUNT(words), words, marked, NULL);
}

void redis_marks_deinit(struct redis *r)
{
    mem_free(r->found);
    r->found = NULL;
}
