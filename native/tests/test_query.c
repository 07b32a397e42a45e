/* The failure table of one question, a line a case: events in, steps out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/query.h"

#define TIMEOUT 250u
#define LOAD_TIMEOUT 10000u

static struct query_rank ranks_of(const char *kinds, struct query_rank out[RANKS_MAX],
                                  unsigned *count)
{
    *count = 0;
    for (; *kinds; kinds++) {
        struct query_rank *r = &out[(*count)++];
        memset(r, 0, sizeof *r);
        addr_parse("10.0.0.1:7946", &r->addr);
        r->addr.port = (uint16_t)(7000 + *count);
        r->node_id = *count;
        r->self = *kinds == 's';
        r->hits_only = *kinds == 'b';
    }
    return out[0];
}

/* o: other node, s: self, b: busy of late. Events: message kinds' letters, lower case for
 * what is no frame. Steps: one letter each, the first from query_begin. */
struct story {
    const char *rule, *ranks;
    bool loads;
    const char *events, *steps;
};

static const struct story stories[] = {
    {"a hit at the owner", "oo", true, "V", "SA"},
    {"the loader raised", "oo", true, "F", "SA"},
    {"no ranks: load here", "", true, "", "L"},
    {"no ranks, no loader", "", false, "", "M"},
    {"this node owns", "s", true, "", "O"},
    {"plain get, the owner has nothing", "oo", false, "M", "SM"},
    {"O2: a silent owner, the heir has it", "oo", true, "tV", "SSA"},
    {"O2: both silent, load here", "oo", true, "tt", "SSL"},
    {"O2: both silent, no loader: a miss, not an error", "oo", false, "tt", "SSM"},
    {"the heir is this node", "os", true, "t", "SO"},
    {"O2: a reused connection fails: once afresh", "oo", true, "rV", "SSA"},
    {"O2: and only once", "oo", true, "rrV", "SSSA"},
    {"a fresh connection refuses: the heir", "oo", true, "cV", "SSA"},
    {"O8: not me goes on without avoidance", "oo", true, "nV", "SSA"},
    {"O5: busy goes on", "oo", true, "BV", "SSA"},
    {"O5: accepted, then the value", "oo", true, "aV", "SWA"},
    {"O5: accepted, working, value", "oo", true, "awwV", "SWWWA"},
    {"O5: accepted and closed: the heir", "oo", true, "acV", "SWSA"},
    {"O5: accepted and never answered: the heir, then here", "oo", true, "att", "SWSL"},
    {"O6: a permit", "oo", true, "P", "SP"},
    {"O5: hits of a busy owner, then its heir", "bo", true, "MV", "SSA"},
    {"W6: a stranger on the port", "oo", true, "xV", "SSA"},
    {"a lost load is asked for again", "oo", true, "lV", "SSA"},
    {"and not for ever", "oo", true, "lllllV", "SSSSSSA"},
    {"O6: recursion", "oo", true, "R", "SR"},
    {"declared dead while it loads", "oo", true, "adV", "SWSA"},
};

static enum query_step happen(struct query *q, char event, uint64_t *now_ms)
{
    switch (event) {
    case 'V':
        return query_frame(q, MESSAGE_VALUE, *now_ms);
    case 'F':
        return query_frame(q, MESSAGE_FAILED, *now_ms);
    case 'M':
        return query_frame(q, MESSAGE_MISS, *now_ms);
    case 'P':
        return query_frame(q, MESSAGE_PERMIT, *now_ms);
    case 'B':
        return query_frame(q, MESSAGE_BUSY, *now_ms);
    case 'R':
        return query_frame(q, MESSAGE_RECURSIVE, *now_ms);
    case 'n':
        return query_frame(q, MESSAGE_NOT_ME, *now_ms);
    case 'l':
        return query_frame(q, MESSAGE_LOST, *now_ms);
    case 'a':
        return query_frame(q, MESSAGE_ACCEPTED, *now_ms);
    case 'w':
        *now_ms += 1000;
        return query_frame(q, MESSAGE_WORKING, *now_ms);
    case 'r':
        return query_broken(q, true, *now_ms);
    case 'c':
        return query_broken(q, false, *now_ms);
    case 'x':
        return query_stranger(q, *now_ms);
    case 'd':
        return query_peer_dead(q, *now_ms);
    case 't':
        *now_ms = q->due_ms;
        return query_expired(q, *now_ms);
    }
    fail_msg("no such event: %c", event);
    return QUERY_LOAD;
}

static char letter(enum query_step step)
{
    static const char letters[] = "SWAMPOLR";
    return letters[step];
}

static void test_stories(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(stories); i++) {
        const struct story *s = &stories[i];
        struct query_rank ranks[RANKS_MAX];
        struct query q;
        unsigned count;
        uint64_t now_ms = 1000;
        char steps[32] = "";
        size_t n = 0;

        ranks_of(s->ranks, ranks, &count);
        steps[n++] = letter(query_begin(&q, ranks, count, s->loads, TIMEOUT, LOAD_TIMEOUT, now_ms));
        for (const char *e = s->events; *e; e++)
            steps[n++] = letter(happen(&q, *e, &now_ms));
        if (strcmp(steps, s->steps) != 0)
            fail_msg("%s: %s gave %s, wanted %s", s->rule, s->events, steps, s->steps);
    }
}

static void begin(struct query *q, const char *kinds, uint64_t now_ms)
{
    struct query_rank ranks[RANKS_MAX];
    unsigned count;

    ranks_of(kinds, ranks, &count);
    query_begin(q, ranks, count, true, TIMEOUT, LOAD_TIMEOUT, now_ms);
}

/* O2: one budget a node, dialling included; a redial does not renew it. */
static void test_budget(void **state)
{
    struct query q;
    struct message m = {0};

    (void)state;
    begin(&q, "oo", 1000);
    assert_int_equal(q.due_ms, 1250);
    assert_int_equal(query_broken(&q, true, 1100), QUERY_SEND);
    assert_int_equal(q.due_ms, 1250);
    query_fill(&q, 1100, &m);
    assert_int_equal(m.kind, MESSAGE_ASK);
    assert_int_equal(m.budget_ms, 150);
    assert_true(m.flags & MESSAGE_LOADS);
    assert_int_equal(query_expired(&q, 1250), QUERY_SEND);
    assert_int_equal(q.due_ms, 1500);
    query_fill(&q, 1250, &m);
    assert_true(m.flags & MESSAGE_OWNER_SILENT);
}

/* O2: after the first byte each further timeout must bring some. */
static void test_progress(void **state)
{
    struct query q;

    (void)state;
    begin(&q, "o", 0);
    query_progress(&q, 200);
    assert_int_equal(q.due_ms, 450);
    query_progress(&q, 440);
    assert_int_equal(q.due_ms, 690);
}

/* O5: "still working" keeps an accepted load waited for, but does not stretch its time; three
 * such words missing are silence. */
static void test_working_keeps_it_and_does_not_stretch_it(void **state)
{
    struct query q;

    (void)state;
    begin(&q, "oo", 0);
    query_frame(&q, MESSAGE_ACCEPTED, 100);
    assert_int_equal(q.due_ms, 100 + 3000 + TIMEOUT);
    query_frame(&q, MESSAGE_WORKING, 3000);
    assert_int_equal(q.due_ms, 3000 + 3000 + TIMEOUT);
    query_progress(&q, 5000);
    assert_int_equal(q.due_ms, 5000 + 3000 + TIMEOUT);
    query_frame(&q, MESSAGE_WORKING, 9000);
    assert_int_equal(q.due_ms, 100 + LOAD_TIMEOUT);
    assert_int_equal(query_expired(&q, q.due_ms), QUERY_SEND);
    assert_int_equal(q.verdict, PEER_FINE);     /* it was slow, not silent */
}

/* Only silence makes an owner avoided; busy, "not me" and a slow accepted load do not. */
static void test_verdicts(void **state)
{
    static const struct {
        const char *events;
        enum query_verdict verdict;
    } cases[] = {
        {"V", PEER_FINE}, {"t", PEER_SILENT}, {"c", PEER_SILENT}, {"B", PEER_BUSY},
        {"n", PEER_FINE}, {"at", PEER_SILENT}, {"awwwwwwwwwt", PEER_FINE}, {"ac", PEER_SILENT}, {"x", PEER_SILENT},
        {"r", PEER_NOTHING}, {"a", PEER_NOTHING},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct query q;
        uint64_t now_ms = 0;
        begin(&q, "oo", 0);
        for (const char *e = cases[i].events; *e; e++)
            happen(&q, *e, &now_ms);
        if (q.verdict != cases[i].verdict)
            fail_msg("%s: verdict %d, wanted %d", cases[i].events, q.verdict, cases[i].verdict);
        if (q.verdict != PEER_NOTHING)
            assert_int_equal(q.verdict_of.port, 7001);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_working_keeps_it_and_does_not_stretch_it),
        cmocka_unit_test(test_verdicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
