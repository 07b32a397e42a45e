/* Tallies, rules T1 and T2: absolute counts per node, the highest wins; the dead count until
 * the window ends; a refused request is not added; bounds. Told directly and through owners. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/err.h"
#include "core/mem.h"
#include "core/prng.h"
#include "core/tally.h"
#include "tests/hex.h"

#define MINUTE 60000u
#define START UINT64_C(1700000040000)       /* a minute's first millisecond */

static const uint8_t hash_key[16] = {5, 5, 5};
static uint8_t page_room[TALLY_PAGE_BYTES];

static struct tally_name name_of(const char *name, const char *key)
{
    return (struct tally_name){span_text(name), span_text(key), MINUTE};
}

static uint64_t add(struct tally *t, const struct tally_name *n, uint64_t amount, uint64_t wall_ms)
{
    uint64_t total;
    bool added;

    assert_int_equal(tally_add(t, n, amount, UINT64_MAX, wall_ms, &total, &added), ERR_OK);
    assert_true(added);
    return total;
}

static uint64_t total(struct tally *t, const struct tally_name *n, uint64_t wall_ms)
{
    return tally_total(t, n, tally_window(n, wall_ms), wall_ms);
}

/* Tell `to` everything that changed since; returns the pages it took. */
static unsigned tell(struct tally *from, struct tally *to, struct tally_page *p, uint64_t wall_ms)
{
    unsigned pages = 0;
    bool more = true;

    while (more) {
        struct writer w = writer_of(page_room, sizeof page_room);
        p->since = tally_encode(from, p, wall_ms, &w, &more);
        assert_false(w.failed);
        if (writer_bytes(&w) == 0)
            break;
        assert_true(tally_merge(to, span_of(page_room, writer_bytes(&w)), wall_ms));
        pages++;
    }
    return pages;
}

static void counts_add_up_within_a_window(void **state)
{
    struct tally *t = tally_new(1, hash_key);
    struct tally_name a = name_of("hits", "durov"), other = name_of("hits", "other");
    struct tally_name shifted = name_of("hitsd", "urov"), hour = a;

    (void)state;
    hour.window_ms = 3600000;
    assert_int_equal(total(t, &a, START), 0);
    assert_int_equal(add(t, &a, 3, START), 3);
    assert_int_equal(add(t, &a, 4, START + MINUTE - 1), 7);
    assert_int_equal(add(t, &hour, 1, START), 1);
    assert_int_equal(total(t, &a, START), 7);
    assert_int_equal(tally_own(t, &a, tally_window(&a, START)), 7);
    assert_int_equal(total(t, &other, START), 0);
    assert_int_equal(total(t, &shifted, START), 0);     /* name and key don't run together */
    /* The next window begins at 0, and the last has ended. */
    assert_int_equal(total(t, &a, START + MINUTE), 0);
    assert_int_equal(tally_total(t, &a, tally_window(&a, START), START + MINUTE), 0);
    assert_int_equal(add(t, &a, 1, START + MINUTE), 1);
    tally_free(t);
    tally_free(NULL);
}

static void a_refused_request_is_not_added(void **state)
{
    struct tally *t = tally_new(1, hash_key);
    struct tally_name a = name_of("limit", "client");
    uint64_t sum;
    bool added;

    (void)state;
    for (unsigned i = 1; i <= 10; i++) {
        assert_int_equal(tally_add(t, &a, 1, 10, START, &sum, &added), ERR_OK);
        assert_true(added);
        assert_int_equal(sum, i);
    }
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(tally_add(t, &a, 1, 10, START, &sum, &added), ERR_OK);
        assert_false(added);
        assert_int_equal(sum, 10);
    }
    assert_int_equal(tally_add(t, &a, 0, 10, START, &sum, &added), ERR_OK);
    assert_true(added);
    assert_int_equal(tally_add(t, &a, UINT64_MAX, 10, START, &sum, &added), ERR_OK);
    assert_false(added);
    assert_int_equal(total(t, &a, START), 10);
    assert_int_equal(add(t, &a, UINT64_MAX, START), UINT64_MAX);    /* and it never wraps */
    tally_free(t);
}

static void the_bytes_are_those_drawn(void **state)
{
    struct tally *t = tally_new(UINT64_C(0x0102030405060708), hash_key);
    struct tally_name a = name_of("hits", "abc");
    struct tally_page p = {0};
    struct writer w = writer_of(page_room, sizeof page_room);
    uint8_t expected[128];
    bool more;
    size_t bytes = unhex("00 04 0003 0000ea60 0000000001b05516 0001 68697473 616263"
                         "0102030405060708 000000000000002a", expected, sizeof expected);

    (void)state;
    add(t, &a, 42, START);
    p.since = tally_encode(t, &p, START, &w, &more);
    assert_int_equal(writer_bytes(&w), bytes);
    assert_memory_equal(page_room, expected, bytes);
    assert_false(more);
    assert_false(tally_wants_answer(span_of(page_room, bytes)));
    tally_free(t);
}

static void only_what_changed_is_told(void **state)
{
    struct tally *a = tally_new(1, hash_key), *b = tally_new(2, hash_key);
    struct tally_name x = name_of("hits", "x"), y = name_of("hits", "y");
    struct tally_page to_b = {.receiver = 2}, to_a = {.receiver = 1};

    (void)state;
    add(a, &x, 5, START);
    add(b, &x, 7, START);
    assert_int_equal(tell(a, b, &to_b, START), 1);
    assert_int_equal(total(b, &x, START), 12);
    assert_int_equal(total(a, &x, START), 5);
    assert_int_equal(tell(a, b, &to_b, START), 0);
    /* What b learned is not its own to tell, and looking changes nothing. */
    assert_int_equal(tell(b, a, &to_a, START), 1);
    assert_int_equal(tell(b, a, &to_a, START), 0);
    total(b, &x, START);
    assert_int_equal(tell(b, a, &to_a, START), 0);
    assert_int_equal(total(a, &x, START), 12);
    add(a, &y, 1, START);
    assert_int_equal(tell(a, b, &to_b, START), 1);
    assert_int_equal(total(b, &y, START), 1);
    assert_int_equal(total(b, &x, START), 12);
    /* Was the message lost, the same `since` says it again. */
    struct tally_page lost = to_b;
    add(a, &x, 1, START);
    struct writer w = writer_of(page_room, sizeof page_room);
    bool more;
    tally_encode(a, &lost, START, &w, &more);
    assert_true(writer_bytes(&w) > 0);
    assert_int_equal(tell(a, b, &to_b, START), 1);
    assert_int_equal(total(b, &x, START), 13);
    tally_free(a);
    tally_free(b);
}

/* Lost, repeated, late messages in any order: the highest wins, and once everything was
 * told, everyone knows the sum. */
static void any_order_of_messages_gives_the_same_sum(void **state)
{
    enum { NODES = 5, NAMES = 7, KEPT = 40 };
    struct tally *t[NODES];
    struct tally_name names[NAMES];
    char keys[NAMES][8];
    uint64_t sum[NAMES] = {0};
    static uint8_t kept[KEPT][4096];
    size_t kept_bytes[KEPT] = {0};
    struct prng p;

    (void)state;
    prng_seed(&p, 4);
    for (unsigned i = 0; i < NODES; i++)
        t[i] = tally_new(100 + i, hash_key);
    for (unsigned i = 0; i < NAMES; i++) {
        snprintf(keys[i], sizeof keys[i], "k%u", i);
        names[i] = name_of("n", keys[i]);
    }
    for (unsigned step = 0; step < 5000; step++) {
        unsigned from = (unsigned)prng_below(&p, NODES), i = (unsigned)prng_below(&p, NAMES);
        unsigned slot = (unsigned)prng_below(&p, KEPT);
        uint64_t amount = 1 + prng_below(&p, 5);
        add(t[from], &names[i], amount, START);
        sum[i] += amount;
        if (prng_below(&p, 3) == 0) {
            struct tally_page page = {.of_all = prng_below(&p, 2)};
            struct writer w = writer_of(page_room, sizeof page_room);
            bool more;
            tally_encode(t[from], &page, START, &w, &more);
            assert_true(writer_bytes(&w) <= sizeof kept[slot]);
            memcpy(kept[slot], page_room, writer_bytes(&w));
            kept_bytes[slot] = writer_bytes(&w);
        }
        slot = (unsigned)prng_below(&p, KEPT);
        if (kept_bytes[slot])
            assert_true(tally_merge(t[prng_below(&p, NODES)], span_of(kept[slot], kept_bytes[slot]), START));
        unsigned at = (unsigned)prng_below(&p, NODES);
        assert_true(total(t[at], &names[i], START) <= sum[i]);
    }
    for (unsigned from = 0; from < NODES; from++) {
        for (unsigned to = 0; to < NODES; to++) {
            struct tally_page page = {0};
            tell(t[from], t[to], &page, START);
        }
    }
    for (unsigned n = 0; n < NODES; n++) {
        for (unsigned i = 0; i < NAMES; i++)
            assert_int_equal(total(t[n], &names[i], START), sum[i]);
        tally_free(t[n]);
    }
}

static void a_joiner_is_given_the_counts_of_the_dead(void **state)
{
    struct tally *dead = tally_new(1, hash_key), *a = tally_new(2, hash_key);
    struct tally *joiner = tally_new(3, hash_key);
    struct tally_name x = name_of("hits", "x");
    struct tally_page own = {.receiver = 3}, all = {.receiver = 3, .of_all = true}, to_a = {0};

    (void)state;
    add(dead, &x, 30, START);
    add(a, &x, 4, START);
    tell(dead, a, &to_a, START);
    tally_free(dead);
    tell(a, joiner, &own, START);
    assert_int_equal(total(joiner, &x, START), 4);
    tell(a, joiner, &all, START);
    assert_int_equal(total(joiner, &x, START), 34);
    assert_int_equal(total(a, &x, START + MINUTE - 1), 34);
    assert_int_equal(total(a, &x, START + MINUTE), 0);
    tally_free(a);
    tally_free(joiner);
}

static void windows_that_have_ended_are_forgotten_and_not_taken(void **state)
{
    struct tally *a = tally_new(1, hash_key), *b = tally_new(2, hash_key);
    struct tally_page fresh = {0};
    struct tally_stats stats;
    char key[16];

    (void)state;
    struct tally_name x = name_of("hits", "x");
    add(a, &x, 1, START + MINUTE);
    for (unsigned i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "k%u", i);
        struct tally_name n = name_of("hits", key);
        add(a, &n, 1, START);
    }
    struct writer w = writer_of(page_room, sizeof page_room);
    bool more;
    tally_encode(a, &fresh, START, &w, &more);
    size_t bytes = writer_bytes(&w);

    /* A minute later the sender says only what still counts, and the receiver takes no more. */
    assert_true(tally_merge(b, span_of(page_room, bytes), START + MINUTE));
    tally_stats(b, &stats);
    assert_int_equal(stats.misplaced, 40);
    assert_int_equal(stats.keys, 1);
    assert_int_equal(total(b, &x, START + MINUTE), 1);
    /* A clock that is 30 s behind still takes the next window; one further behind does not. */
    struct tally *c = tally_new(3, hash_key);
    assert_true(tally_merge(c, span_of(page_room, bytes), START + MINUTE - CLOCK_SKEW_MS_MAX));
    tally_stats(c, &stats);
    assert_int_equal(stats.misplaced, 0);
    struct tally *d = tally_new(4, hash_key);
    assert_true(tally_merge(d, span_of(page_room, bytes), START + MINUTE - CLOCK_SKEW_MS_MAX - 1));
    tally_stats(d, &stats);
    assert_int_equal(stats.misplaced, 1);

    w = writer_of(page_room, sizeof page_room);
    tally_encode(a, &fresh, START + MINUTE, &w, &more);
    assert_true(writer_bytes(&w) > 0 && writer_bytes(&w) < 64);
    tally_tick(a, START + MINUTE);
    tally_stats(a, &stats);
    assert_int_equal(stats.keys, 1);
    tally_tick(a, START + 2 * MINUTE);
    tally_stats(a, &stats);
    assert_int_equal(stats.keys, 0);
    tally_free(a);
    tally_free(b);
    tally_free(c);
    tally_free(d);
}

static void keys_are_bounded_and_some_are_left_for_ones_own(void **state)
{
    struct tally *a = tally_new(1, hash_key), *b = tally_new(2, hash_key);
    struct tally_page p = {0};
    struct tally_stats stats;
    uint64_t sum;
    bool added;
    char key[16];

    (void)state;
    for (unsigned i = 0; i < TALLY_KEYS_MAX; i++) {
        snprintf(key, sizeof key, "k%u", i);
        struct tally_name n = name_of("hits", key);
        add(a, &n, 1, START);
    }
    struct tally_name one = name_of("hits", "one more"), first = name_of("hits", "k0");
    assert_int_equal(tally_add(a, &one, 1, UINT64_MAX, START, &sum, &added), ERR_FULL);
    assert_false(added);
    assert_int_equal(add(a, &first, 1, START), 2);      /* nothing already there is lost */
    tally_stats(a, &stats);
    assert_int_equal(stats.keys, TALLY_KEYS_MAX);
    assert_int_equal(stats.refused, 1);

    tell(a, b, &p, START);
    tally_stats(b, &stats);
    assert_int_equal(stats.keys, TALLY_KEYS_MAX / 4 * 3);
    assert_int_equal(stats.refused, TALLY_KEYS_MAX - TALLY_KEYS_MAX / 4 * 3);
    for (unsigned i = 0; i < TALLY_KEYS_MAX / 4; i++) {
        snprintf(key, sizeof key, "own%u", i);
        struct tally_name n = name_of("hits", key);
        add(b, &n, 1, START);
    }
    assert_int_equal(tally_add(b, &one, 1, UINT64_MAX, START, &sum, &added), ERR_FULL);
    /* When the window has ended there is room at once. */
    assert_int_equal(add(a, &one, 1, START + MINUTE), 1);
    assert_int_equal(add(b, &one, 1, START + MINUTE), 1);
    tally_free(a);
    tally_free(b);
}

static void a_table_comes_in_pages(void **state)
{
    /* Of 1,300 bytes each: more than a page. */
    enum { KEYS = TALLY_KEYS_MAX / 4 * 3 < 60 ? TALLY_KEYS_MAX / 4 * 3 : 60 };
    struct tally *a = tally_new(1, hash_key), *b = tally_new(2, hash_key);
    static char text[2 * KEY_BYTES_MAX];
    struct tally_page p = {0};
    struct tally_name n = name_of("a name as long as it may be", "");

    (void)state;
    memset(text, 'x', sizeof text);
    n.name = span_of(text, TALLY_NAME_BYTES_MAX);
    for (unsigned i = 0; i < KEYS; i++) {
        n.key = span_of(text, KEY_BYTES_MAX - i % 30);
        text[0] = (char)i;
        n.name = span_of(text, TALLY_NAME_BYTES_MAX);
        add(a, &n, i + 1, START);
    }
    assert_true(tell(a, b, &p, START) > 1);
    for (unsigned i = 0; i < KEYS; i++) {
        text[0] = (char)i;
        n.key = span_of(text, KEY_BYTES_MAX - i % 30);
        assert_int_equal(total(b, &n, START), i + 1);
    }
    n.key = span_of(text, KEY_BYTES_MAX + 1);
    uint64_t sum;
    bool added;
    assert_int_equal(tally_add(a, &n, 1, UINT64_MAX, START, &sum, &added), ERR_TOO_BIG);
    n.key = SPAN_NONE;
    n.name.bytes++;
    assert_int_equal(tally_add(a, &n, 1, UINT64_MAX, START, &sum, &added), ERR_TOO_BIG);
    n.name = SPAN_NONE;
    assert_int_equal(add(a, &n, 1, START), 1);      /* empty is a name */
    n.window_ms = 0;
    assert_int_equal(tally_add(a, &n, 1, UINT64_MAX, START, &sum, &added), ERR_TOO_BIG);
    tally_free(a);
    tally_free(b);
}

/* The largest record there can be fits in one page. */
static void a_record_of_every_node_fits_in_a_page(void **state)
{
    static uint8_t text[KEY_BYTES_MAX];
    struct tally *t = tally_new(1, hash_key), *copy = tally_new(2, hash_key);
    struct tally_name n = {span_of(text, TALLY_NAME_BYTES_MAX), span_of(text, KEY_BYTES_MAX), MINUTE};
    struct tally_page all = {.of_all = true};
    struct tally_stats stats;

    (void)state;
    for (unsigned i = 0; i <= TALLY_NODES_MAX; i++) {
        struct tally *other = tally_new(UINT64_MAX - i * UINT64_C(7919), hash_key);
        struct tally_page p = {0};
        add(other, &n, 2, START);
        tell(other, t, &p, START);
        tally_free(other);
    }
    add(t, &n, 1, START);
    tally_stats(t, &stats);
    assert_int_equal(stats.refused, 2);
    assert_int_equal(total(t, &n, START), 2 * (TALLY_NODES_MAX - 1) + 1);
    assert_int_equal(tell(t, copy, &all, START), 1);
    /* The copy keeps a place for its own count, so one of these finds none. */
    assert_int_equal(total(copy, &n, START), 2 * (TALLY_NODES_MAX - 1) + 1 - 2);
    tally_free(t);
    tally_free(copy);
}

static void malformed_payloads_change_nothing(void **state)
{
    struct tally *a = tally_new(1, hash_key), *b = tally_new(2, hash_key);
    struct tally_name x = name_of("hits", "x"), y = name_of("hits", "y");
    struct tally_page p = {0};
    struct tally_stats stats;
    bool more;

    (void)state;
    add(a, &x, 1, START);
    add(a, &y, 1, START);
    struct writer w = writer_of(page_room, sizeof page_room);
    tally_encode(a, &p, START, &w, &more);
    size_t bytes = writer_bytes(&w), second = 1 + (bytes - 1) / 2;
    for (size_t n = 0; n < bytes; n++) {
        bool whole = n == 1 || n == second;     /* between two records */
        if (!whole)
            assert_false(tally_merge(b, span_of(page_room, n), START));
    }
    uint8_t changed[256];
    const struct {
        size_t at;
        uint8_t byte;
    } breaks[] = {{0, 2}, {0, 0x80}, {2, 5} /* key of 1281 bytes */, {18 - 2, 0xff} /* counts */};
    for (size_t i = 0; i < ARRAY_COUNT(breaks); i++) {
        memcpy(changed, page_room, bytes);
        changed[breaks[i].at] = breaks[i].byte;
        assert_false(tally_merge(b, span_of(changed, bytes), START));
    }
    memcpy(changed, page_room, bytes);
    memset(changed + 4, 0, 4);                  /* a window of no length */
    assert_false(tally_merge(b, span_of(changed, bytes), START));
    tally_stats(b, &stats);
    assert_int_equal(stats.keys, 0);
    assert_false(tally_wants_answer(SPAN_NONE));
    assert_true(tally_merge(b, span_of(page_room, bytes), START));
    assert_int_equal(total(b, &y, START), 1);
    tally_free(a);
    tally_free(b);
}

static void out_of_memory_adds_nothing(void **state)
{
    struct tally *a = NULL;
    struct tally_page p = {0};
    long n;
    bool more;

    (void)state;
    for (n = 0; !a; n++) {
        mem_fail_after(n);
        a = tally_new(1, hash_key);
    }
    mem_fail_after(-1);
    assert_int_equal(n, 3);
    unsigned failed = 0;
    for (unsigned i = 0; i < 40; i++) {
        char key[16];
        uint64_t sum;
        bool added;
        snprintf(key, sizeof key, "k%u", i);
        struct tally_name name = name_of("hits", key);
        for (n = 0;; n++) {
            mem_fail_after(n);
            int rc = tally_add(a, &name, 1, UINT64_MAX, START, &sum, &added);
            mem_fail_after(-1);
            if (rc == ERR_OK)
                break;
            assert_int_equal(rc, ERR_NOMEM);
            assert_false(added);
            assert_int_equal(total(a, &name, START), 0);
            failed++;
        }
        assert_int_equal(total(a, &name, START), 1);
    }
    assert_true(failed >= 40);

    /* A merge takes what it can; said again, the rest comes. */
    struct writer w = writer_of(page_room, sizeof page_room);
    tally_encode(a, &p, START, &w, &more);
    for (n = 0; n < 60; n++) {
        struct tally *b = tally_new(2, hash_key);
        unsigned missing[2] = {0, 0};
        for (unsigned time = 0; time < 2; time++) {
            mem_fail_after(time == 0 ? n : -1);
            assert_true(tally_merge(b, span_of(page_room, writer_bytes(&w)), START));
            mem_fail_after(-1);
            for (unsigned i = 0; i < 40; i++) {
                char key[16];
                snprintf(key, sizeof key, "k%u", i);
                struct tally_name name = name_of("hits", key);
                missing[time] += total(b, &name, START) != 1;
            }
        }
        assert_true(missing[0] <= 1);
        assert_int_equal(missing[1], 0);
        tally_free(b);
    }
    tally_free(a);
}

/* A small cluster in simulated time. Nodes tell each other once a second, each at its own
 * moment; one is killed half-way. */

enum { CLUSTER = 6 };

static void a_limit_holds_across_the_fleet(void **state)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct tally *t[CLUSTER];
        struct tally_page pages[CLUSTER][CLUSTER] = {{{0}}};
        struct tally_name client = name_of("requests", "198.51.100.7");
        unsigned offset[CLUSTER], admitted = 0, killed = CLUSTER;
        struct prng p;

        (void)state;
        prng_seed(&p, seed);
        for (unsigned i = 0; i < CLUSTER; i++) {
            t[i] = tally_new(i + 1, hash_key);
            offset[i] = (unsigned)prng_below(&p, 1000);
        }
        for (unsigned ms = 0; ms < 20000; ms++) {
            uint64_t wall = START + ms;
            if (ms == 10000)
                killed = (unsigned)prng_below(&p, CLUSTER);
            for (unsigned i = 0; i < CLUSTER; i++)
                for (unsigned to = 0; ms % 1000 == offset[i] && i != killed && to < CLUSTER; to++)
                    if (to != i && to != killed)
                        tell(t[i], t[to], &pages[i][to], wall);
            if (ms % 20 == 0) {     /* 1,000 requests in 20 s */
                unsigned at = (unsigned)prng_below(&p, CLUSTER);
                uint64_t sum;
                bool added = false;
                if (at != killed)
                    assert_int_equal(tally_add(t[at], &client, 1, 100, wall, &sum, &added), ERR_OK);
                admitted += added;
            }
        }
        assert_in_range(admitted, 100, 150);
        for (unsigned i = 0; i < CLUSTER; i++)
            tally_free(t[i]);
    }
}

/* More members than tell each other directly: each key through its owner. */

enum { CROWD = 80, CROWD_KEYS = 12 };

struct crowd {
    struct tally *t[CROWD];
    bool alive[CROWD];
    struct tally_page pages[CROWD][CROWD];
    struct tally_name names[CROWD_KEYS];
    char keys[CROWD_KEYS][8];
    uint64_t version;
    unsigned payloads;
};

static struct crowd crowd;

/* The live nodes with the highest scores, as rendezvous would have it. Ids are index + 1. */
static void owners_of(void *context, struct span name, struct span key, uint64_t owners[2])
{
    const struct crowd *c = context;
    uint64_t scores[2] = {0, 0};

    (void)name;
    owners[0] = owners[1] = 0;
    for (unsigned i = 0; i < CROWD; i++) {
        uint64_t score = ((uint64_t)key.at[0] << 8 | key.at[1]) * 1000003u + i;
        score = (score ^ score >> 7) * UINT64_C(0x9e3779b97f4a7c15);
        score = (score ^ score >> 29) | 1;
        if (!c->alive[i] || score <= scores[1])
            continue;
        unsigned rank = score < scores[0];
        if (rank == 0) {
            scores[1] = scores[0];
            owners[1] = owners[0];
        }
        scores[rank] = score;
        owners[rank] = i + 1;
    }
}

static void crowd_round(struct crowd *c, bool through_owners, struct prng *p, unsigned loss)
{
    static uint8_t answer_room[TALLY_PAGE_BYTES];

    for (unsigned from = 0; from < CROWD; from++) {
        if (!c->alive[from])
            continue;
        tally_route(c->t[from], c->version, through_owners ? owners_of : NULL, c);
        for (unsigned to = 0; to < CROWD; to++) {
            struct tally_page *page = &c->pages[from][to];
            struct writer w = writer_of(page_room, sizeof page_room);
            bool more;
            if (to == from || !c->alive[to])
                continue;
            page->receiver = to + 1;
            uint64_t since = tally_encode(c->t[from], page, START, &w, &more);
            assert_false(more);
            if (writer_bytes(&w) == 0) {
                page->since = since;
                continue;
            }
            c->payloads++;
            if (prng_below(p, 100) < loss)
                continue;
            struct span payload = span_of(page_room, writer_bytes(&w));
            assert_true(tally_merge(c->t[to], payload, START));
            assert_int_equal(tally_wants_answer(payload), through_owners);
            if (prng_below(p, 100) < loss)
                continue;       /* the answer is lost, so `since` stays */
            page->since = since;
            if (through_owners) {
                struct writer answer = writer_of(answer_room, sizeof answer_room);
                tally_answer(c->t[to], payload, from + 1, &answer);
                assert_false(answer.failed);
                assert_true(tally_merge(c->t[from], span_of(answer_room, writer_bytes(&answer)), START));
            }
        }
    }
}

static void crowd_is_right(struct crowd *c, const uint64_t *sum, bool exact)
{
    for (unsigned n = 0; n < CROWD; n++) {
        for (unsigned k = 0; c->alive[n] && k < CROWD_KEYS; k++) {
            uint64_t is = total(c->t[n], &c->names[k], START);
            if (exact)
                assert_int_equal(is, sum[k]);
            assert_true(is <= sum[k]);
        }
    }
}

static void above_64_members_counts_go_through_the_owner(void **state)
{
    struct crowd *c = &crowd;
    uint64_t sum[CROWD_KEYS] = {0}, seen[CROWD][CROWD_KEYS] = {{0}};
    unsigned died = 0;
    struct prng p;

    (void)state;
    prng_seed(&p, 9);
    for (unsigned i = 0; i < CROWD; i++) {
        c->t[i] = tally_new(i + 1, hash_key);
        c->alive[i] = i < 60;
    }
    for (unsigned k = 0; k < CROWD_KEYS; k++) {
        snprintf(c->keys[k], sizeof c->keys[k], "%c%c", 'a' + (int)k, 'q' - (int)k);
        c->names[k] = name_of("hits", c->keys[k]);
    }
    /* 60 members tell each other; 20 more come; owners and an heir die; then, as if enough
     * had gone, everyone tells everyone again. */
    for (unsigned round = 0; round < 40; round++) {
        bool through_owners = round >= 10 && round < 30;
        if (round == 10) {
            /* Who joins is given the table, by one node. */
            for (unsigned i = 60; i < CROWD; i++) {
                struct tally_page all = {.receiver = i + 1, .of_all = true};
                c->alive[i] = true;
                tell(c->t[0], c->t[i], &all, START);
            }
            c->version++;
        }
        if (round >= 15 && round < 30 && round % 5 == 0) {
            /* It has told everything: in the rounds before nobody counted. */
            uint64_t owners[2];
            owners_of(c, SPAN_NONE, c->names[round % CROWD_KEYS].key, owners);
            c->alive[owners[round == 20] - 1] = false;
            c->version++;
            died++;
        }
        bool quiet = round % 5 >= 3;
        for (unsigned i = 0; i < 400 && !quiet; i++) {
            unsigned n = (unsigned)prng_below(&p, CROWD), k = (unsigned)prng_below(&p, CROWD_KEYS);
            if (!c->alive[n])
                continue;
            add(c->t[n], &c->names[k], 1, START);
            sum[k]++;
        }
        c->payloads = 0;
        crowd_is_right(c, sum, false);  /* a look at each: through owners, a wish */
        crowd_round(c, through_owners, &p, quiet ? 0 : 20);
        if (through_owners && !quiet)
            assert_true(c->payloads <= 2 * CROWD * CROWD_KEYS);
        if (round % 5 == 4)
            /* Two quiet rounds: the first tells, the second asks what was told. */
            crowd_is_right(c, sum, true);
        for (unsigned n = 0; n < CROWD; n++) {
            for (unsigned k = 0; c->alive[n] && k < CROWD_KEYS; k++) {
                uint64_t is = total(c->t[n], &c->names[k], START);
                assert_true(is >= seen[n][k]);      /* a sum never falls */
                seen[n][k] = is;
            }
        }
    }
    assert_int_equal(died, 3);
    for (unsigned i = 0; i < CROWD; i++)
        tally_free(c->t[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_add_up_within_a_window),
        cmocka_unit_test(a_refused_request_is_not_added),
        cmocka_unit_test(the_bytes_are_those_drawn),
        cmocka_unit_test(only_what_changed_is_told),
        cmocka_unit_test(any_order_of_messages_gives_the_same_sum),
        cmocka_unit_test(a_joiner_is_given_the_counts_of_the_dead),
        cmocka_unit_test(windows_that_have_ended_are_forgotten_and_not_taken),
        cmocka_unit_test(keys_are_bounded_and_some_are_left_for_ones_own),
        cmocka_unit_test(a_table_comes_in_pages),
        cmocka_unit_test(a_record_of_every_node_fits_in_a_page),
        cmocka_unit_test(malformed_payloads_change_nothing),
        cmocka_unit_test(out_of_memory_adds_nothing),
        cmocka_unit_test(a_limit_holds_across_the_fleet),
        cmocka_unit_test(above_64_members_counts_go_through_the_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
