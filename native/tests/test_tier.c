/* The second tier as the core sees it: the lease's steps, the bytes of a value, and which
 * questions ask it at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/limits.h"
#include "core/mem.h"
#include "core/serve.h"
#include "core/tier.h"

#define TIMEOUT 250u
#define LOAD_TIMEOUT 10000u

/* The lease. */

/* Replies: v value, l leased, h held, n nothing, a away; d: the pause is over. Steps: S send,
 * W wait, L land, G go and load. */
struct story {
    const char *what;
    bool lease;
    const char *events, *steps;
};

static const struct story stories[] = {
    {"the value is there", true, "v", "SL"},
    {"the lease is free: this node loads", true, "l", "SG"},
    {"somebody loads: wait, then take its value", true, "hdv", "SWSL"},
    {"the holder died: the next one gets the lease", true, "hdhdl", "SWSWSG"},
    {"no answer: load without a lease", true, "a", "SG"},
    {"the server goes away while one waits", true, "hda", "SWSG"},
    {"only a look: nothing there, load", false, "n", "SG"},
    {"only a look: it is there", false, "v", "SL"},
};

static enum tier_step play(struct tier_ask *a, char event, uint64_t *now_ms)
{
    static const char replies[] = "vlhna";

    if (event == 'd') {
        assert_true(a->due_ms > *now_ms);
        *now_ms = a->due_ms;
        return tier_due(a, *now_ms);
    }
    return tier_replied(a, (enum tier_reply)(strchr(replies, event) - replies), *now_ms);
}

static void test_stories(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(stories); i++) {
        const struct story *s = &stories[i];
        uint64_t now_ms = 1000;
        struct tier_ask a;
        char steps[16];
        size_t n = 0;

        steps[n++] = "SWLG"[tier_begin(&a, s->lease, now_ms + LOAD_TIMEOUT)];
        for (const char *e = s->events; *e; e++)
            steps[n++] = "SWLG"[play(&a, *e, &now_ms)];
        steps[n] = 0;
        if (strcmp(steps, s->steps) != 0)
            fail_msg("%s: %s, expected %s", s->what, steps, s->steps);
        assert_int_equal(a.leased, strchr(s->events, 'l') != NULL);
    }
}

/* A holder that renews for ever keeps nobody longer than a load may take. */
static void test_waiting_ends(void **state)
{
    uint64_t now_ms = 1000;
    struct tier_ask a;
    unsigned asked = 0;

    (void)state;
    enum tier_step step = tier_begin(&a, true, now_ms + LOAD_TIMEOUT);
    while (step != TIER_GO) {
        assert_int_equal(step, TIER_SEND);
        asked++;
        now_ms += 1;
        if (tier_replied(&a, TIER_HELD, now_ms) != TIER_WAIT)
            break;
        assert_true(a.due_ms - now_ms <= TIER_PAUSE_MS_MAX);
        now_ms = a.due_ms;
        step = tier_due(&a, now_ms);
    }
    assert_int_equal(now_ms, 1000 + LOAD_TIMEOUT);
    assert_in_range(asked, LOAD_TIMEOUT / TIER_PAUSE_MS_MAX, 80);
    assert_false(a.leased);
}

/* Values. */

static void test_values(void **state)
{
    uint8_t bytes[TIER_HEAD_BYTES + 1];
    struct loaded in = {.value_type = VALUE_JSON, .ttl_ms = 10000, .stale_ms = 500, .age_ms = 7};
    struct loaded out;

    (void)state;
    tier_write(&in, bytes);
    assert_true(tier_read(span_of(bytes, sizeof bytes), 4000, &out));
    assert_int_equal(out.value_type, VALUE_JSON);
    assert_int_equal(out.ttl_ms, 4000);         /* what the server says is left */
    assert_int_equal(out.age_ms, 6007);         /* and so long it has lain there */
    assert_int_equal(out.stale_ms, 500);
    assert_true(tier_read(span_of(bytes, sizeof bytes), 99000, &out));
    assert_int_equal(out.ttl_ms, 10000);        /* never more than it was written with */
    assert_false(tier_read(span_of(bytes, sizeof bytes), 0, &out));

    in.ttl_ms = UINT32_MAX;
    tier_write(&in, bytes);
    assert_int_equal(tier_kept_ms(UINT32_MAX), TIER_EVER_MS);
    assert_true(tier_read(span_of(bytes, sizeof bytes), 1000, &out));
    assert_int_equal(out.ttl_ms, UINT32_MAX);
}

/* Whatever else lies under the name is no value. */
static void test_hostile_values(void **state)
{
    uint8_t bytes[TIER_HEAD_BYTES];
    struct loaded in = {.value_type = VALUE_STR, .ttl_ms = 10000}, out;

    (void)state;
    for (size_t n = 0; n < sizeof bytes; n++) {
        tier_write(&in, bytes);
        assert_false(tier_read(span_of(bytes, n), 1000, &out));
    }
    struct {
        size_t at;
        uint8_t byte;
    } broken[] = {{0, 0}, {0, 2}, {1, VALUE_TYPE_COUNT}, {2, 1}, {3, 1}};
    for (size_t i = 0; i < ARRAY_COUNT(broken); i++) {
        tier_write(&in, bytes);
        bytes[broken[i].at] = broken[i].byte;
        assert_false(tier_read(span_of(bytes, sizeof bytes), 1000, &out));
    }
    in.ttl_ms = 0;
    tier_write(&in, bytes);
    assert_false(tier_read(span_of(bytes, sizeof bytes), 1000, &out));
}

/* Who asks it. */

struct desk {
    struct serve *serve;
    struct effects fx;
    struct waiter waiter;
    struct answer answer;
    struct query_rank ranks[RANKS_MAX];
    unsigned ranks_count;
    uint64_t now_ms;
};

static void open_desk(struct desk *d, bool tier)
{
    struct serve_config c = {.label = span_text("test"), .cache_bytes = 1u << 20,
                             .timeout_ms = TIMEOUT, .load_timeout_ms = LOAD_TIMEOUT};

    memset(d, 0, sizeof *d);
    d->now_ms = 5000;
    d->serve = serve_new(&c);
    assert_non_null(d->serve);
    effects_init(&d->fx);
    serve_set_tier(d->serve, tier, d->now_ms, &d->fx);
}

static void close_desk(struct desk *d)
{
    answer_deinit(&d->answer);
    effects_deinit(&d->fx);
    serve_free(d->serve);
}

/* This node (port 1) and `others` more, all ready. */
static void set_members(struct desk *d, unsigned others)
{
    struct view *v = view_new(others + 1);

    v->phase = PHASE_READY;
    v->count = others + 1;
    for (unsigned i = 0; i < v->count; i++) {
        addr_parse("10.0.0.1:1", &v->members[i].addr);
        v->members[i].addr.port = (uint16_t)(1 + i);
        v->members[i].node_id = 100 + i;
        v->members[i].self = i == 0;
        v->members[i].hash = serve_member_hash(d->serve, &v->members[i].addr);
    }
    view_finish(v);
    serve_set_view(d->serve, v, d->now_ms, &d->fx);
    effects_clear(&d->fx);
}

static void ask(struct desk *d, const char *key)
{
    struct question q = {.ask = {.kind = MESSAGE_ASK, .key = span_text(key), .ttl_ms = 10000,
                                 .flags = MESSAGE_LOADS},
                         .run_inline = true};

    serve_ask(d->serve, &q, &d->waiter, d->now_ms, &d->answer, d->ranks, &d->ranks_count, &d->fx);
}

static const struct effect *find(const struct desk *d, enum effect_kind kind)
{
    for (size_t i = 0; i < d->fx.count; i++) {
        if (d->fx.at[i].kind == kind)
            return &d->fx.at[i];
    }
    return NULL;
}

/* A key this node owns (or not) among its members. */
static const char *key_of(struct desk *d, bool own)
{
    static char key[16];
    unsigned at[RANKS_MAX];

    for (unsigned n = 0; n < 1000; n++) {
        key[0] = 'k';
        key[1] = (char)('a' + n / 26 % 26);
        key[2] = (char)('a' + n % 26);
        key[3] = 0;
        view_rank(serve_view(d->serve), serve_channel_hash(d->serve, span_text(key)), 1, at);
        if (serve_view(d->serve)->members[at[0]].self == own)
            return key;
    }
    fail();
    return NULL;
}

static uint64_t load_value(struct desk *d, uint64_t load_id)
{
    struct blob *b = blob_copy(span_text("value"));
    struct loaded item = {.blob = b, .ttl_ms = 10000};

    serve_finish(d->serve, load_id, &item, 1, d->now_ms, &d->fx);
    blob_unref(b);
    return load_id;
}

/* Without peers: value or lease first; the leave to load comes with the lease, the value goes
 * behind, the lease is let go after it. */
static void test_alone_asks_for_the_lease(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, true);
    ask(&d, "key");
    assert_int_equal(d.answer.outcome, OUTCOME_WAIT);
    const struct effect *e = find(&d, EFFECT_TIER_ASK);
    assert_non_null(e);
    assert_true(e->lease);
    assert_int_equal(e->timeout_ms, LOAD_TIMEOUT);
    uint64_t id = e->load_id;
    effects_clear(&d.fx);
    assert_true(serve_tier_load(d.serve, id, d.now_ms, &d.fx));
    assert_false(list_empty(&d.fx.completed));
    assert_int_equal(d.waiter.answer.outcome, OUTCOME_LOAD);
    list_init(&d.fx.completed);
    load_value(&d, id);
    const struct effect *put = find(&d, EFFECT_TIER_PUT), *end = find(&d, EFFECT_TIER_END);
    assert_non_null(put);
    assert_int_equal(put->load_id, id);
    assert_true(end > put);
    close_desk(&d);
}

static void test_value_lands(void **state)
{
    struct store_hit hit;
    struct desk d;

    (void)state;
    open_desk(&d, true);
    ask(&d, "key");
    struct blob *b = blob_copy(span_text("there"));
    struct loaded item = {.blob = b, .ttl_ms = 4000};
    serve_tier_value(d.serve, find(&d, EFFECT_TIER_ASK)->load_id, &item, d.now_ms - 100, d.now_ms,
                     &d.fx);
    blob_unref(b);
    assert_int_equal(d.waiter.answer.outcome, OUTCOME_VALUE);
    assert_int_equal(d.waiter.answer.tier, TIER_REDIS);
    assert_null(find(&d, EFFECT_TIER_PUT));     /* it came from there */
    assert_true(serve_get(d.serve, span_text("key"), d.now_ms + 3899, &hit));
    assert_false(serve_get(d.serve, span_text("key"), d.now_ms + 3900, &hit));
    answer_deinit(&d.waiter.answer);
    close_desk(&d);
}

/* The server's word comes too late, or never: the load begins by itself. */
static void test_no_word_is_a_load(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, true);
    ask(&d, "key");
    uint64_t id = find(&d, EFFECT_TIER_ASK)->load_id;
    serve_tick(d.serve, d.now_ms + LOAD_TIMEOUT - 1, &d.fx);
    assert_true(list_empty(&d.fx.completed));
    d.now_ms += LOAD_TIMEOUT;
    serve_tick(d.serve, d.now_ms, &d.fx);
    assert_int_equal(d.waiter.answer.outcome, OUTCOME_LOAD);
    assert_false(serve_tier_load(d.serve, id, d.now_ms, &d.fx));
    close_desk(&d);

    open_desk(&d, true);
    ask(&d, "key");
    serve_set_tier(d.serve, false, d.now_ms, &d.fx);
    assert_int_equal(d.waiter.answer.outcome, OUTCOME_LOAD);
    close_desk(&d);

    open_desk(&d, false);
    ask(&d, "key");
    assert_int_equal(d.answer.outcome, OUTCOME_LOAD);
    assert_null(find(&d, EFFECT_TIER_ASK));
    close_desk(&d);
}

/* O7: with peers up the owner takes no lease and waits for nothing; its value goes behind. */
static void test_owner_with_peers_asks_nothing(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, true);
    set_members(&d, 2);
    ask(&d, key_of(&d, true));
    assert_int_equal(d.answer.outcome, OUTCOME_LOAD);
    assert_null(find(&d, EFFECT_TIER_ASK));
    load_value(&d, d.answer.load_id);
    assert_non_null(find(&d, EFFECT_TIER_PUT));
    assert_null(find(&d, EFFECT_TIER_END));
    close_desk(&d);
}

/* An asker whom nobody helped takes the way by the lease. */
static void test_fallback_asks_for_the_lease(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, true);
    set_members(&d, 2);
    ask(&d, key_of(&d, false));
    assert_int_equal(d.answer.outcome, OUTCOME_ASK);
    uint64_t id = d.answer.load_id;
    serve_answered_load(d.serve, id, QUERY_LOAD, true, &d.waiter, d.now_ms, &d.answer, &d.fx);
    assert_int_equal(d.answer.outcome, OUTCOME_WAIT);
    assert_true(find(&d, EFFECT_TIER_ASK)->lease);
    assert_true(serve_tier_load(d.serve, id, d.now_ms, &d.fx));
    assert_int_equal(d.waiter.answer.outcome, OUTCOME_LOAD);
    load_value(&d, id);
    assert_non_null(find(&d, EFFECT_TIER_PUT));
    close_desk(&d);

    /* and so does one whose every peer is avoided */
    open_desk(&d, true);
    set_members(&d, 2);
    const char *key = key_of(&d, false);
    for (unsigned i = 1; i <= 2; i++)
        serve_peer(d.serve, &serve_view(d.serve)->members[i].addr, PEER_SILENT, d.now_ms);
    ask(&d, key);
    if (d.answer.outcome == OUTCOME_WAIT && find(&d, EFFECT_TIER_ASK)->lease)
        serve_leave(d.serve, &d.waiter, d.now_ms, &d.fx);
    else
        assert_int_equal(d.answer.outcome, OUTCOME_LOAD);   /* this node is its heir */
    close_desk(&d);
}

/* The heir of a silent owner looks there, for half of a timeout, and takes no lease. */
static void test_heir_looks(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, true);
    set_members(&d, 1);
    ask(&d, key_of(&d, false));
    uint64_t id = d.answer.load_id;
    serve_answered_load(d.serve, id, QUERY_OWN, true, &d.waiter, d.now_ms, &d.answer, &d.fx);
    assert_int_equal(d.answer.outcome, OUTCOME_WAIT);
    assert_false(find(&d, EFFECT_TIER_ASK)->lease);
    serve_tick(d.serve, d.now_ms + TIMEOUT / 2, &d.fx);
    assert_int_equal(d.waiter.answer.outcome, OUTCOME_LOAD);
    load_value(&d, id);
    close_desk(&d);
}

/* D5: what was deleted while it loaded is not written; the delete's id goes with what is. */
static void test_deletes(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, true);
    ask(&d, "key");
    uint64_t id = find(&d, EFFECT_TIER_ASK)->load_id;
    serve_tier_load(d.serve, id, d.now_ms, &d.fx);
    serve_drop(d.serve, span_text("key"), span_text("key"), false, 77, NULL, d.now_ms);
    load_value(&d, id);
    assert_null(find(&d, EFFECT_TIER_PUT));
    assert_non_null(find(&d, EFFECT_TIER_END));
    effects_clear(&d.fx);

    list_init(&d.fx.completed);
    ask(&d, "key");
    id = find(&d, EFFECT_TIER_ASK)->load_id;
    serve_tier_load(d.serve, id, d.now_ms, &d.fx);
    load_value(&d, id);
    assert_int_equal(find(&d, EFFECT_TIER_PUT)->marks[0], 77);
    assert_int_equal(find(&d, EFFECT_TIER_PUT)->marks[1], 0);
    close_desk(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories),
        cmocka_unit_test(test_waiting_ends),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_hostile_values),
        cmocka_unit_test(test_alone_asks_for_the_lease),
        cmocka_unit_test(test_value_lands),
        cmocka_unit_test(test_no_word_is_a_load),
        cmocka_unit_test(test_owner_with_peers_asks_nothing),
        cmocka_unit_test(test_fallback_asks_for_the_lease),
        cmocka_unit_test(test_heir_looks),
        cmocka_unit_test(test_deletes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
