/* Tallies over real sockets: threads of several nodes count at once while the loop threads
 * carry what they counted to each other. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/shell_nodes.h"

#define COUNT 3
#define THREADS 2           /* a node */
#define TIMES 2000

static peerage *nodes[COUNT];

static int make_cluster(void **state)
{
    struct peerage_options o;

    (void)state;
    nodes_options(&o);
    nodes_cluster(nodes, COUNT, &o);
    return 0;
}

static int free_cluster(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++)
        peerage_free(nodes[i]);
    return 0;
}

static struct peerage_tally hours(const char *key)
{
    return (struct peerage_tally){"hits", 4, key, strlen(key), 24u * 3600000u};
}

static uint64_t total(peerage *p, const char *key)
{
    struct peerage_tally t = hours(key);
    uint64_t sum;

    assert_int_equal(peerage_tally_take(p, &t, 0, UINT64_MAX, &sum, NULL, NULL), 1);
    return sum;
}

struct counting {
    pthread_t thread;
    peerage *node;
    uint64_t limit;         /* 0: none */
    unsigned taken;
};

static void *count_on(void *argument)
{
    struct counting *c = argument;
    struct peerage_tally t = hours(c->limit ? "limited" : "all");

    for (int i = 0; i < TIMES; i++) {
        if (c->limit)
            c->taken += peerage_tally_take(c->node, &t, 1, c->limit, NULL, NULL, NULL) == 1;
        else
            c->taken += peerage_tally_add(c->node, &t, 1, NULL) == 0;
    }
    return NULL;
}

/* Everybody counts; how many were taken in all. */
static unsigned count_everywhere(uint64_t limit)
{
    struct counting c[COUNT * THREADS];
    unsigned taken = 0;

    for (int i = 0; i < COUNT * THREADS; i++) {
        c[i] = (struct counting){.node = nodes[i % COUNT], .limit = limit};
        assert_int_equal(pthread_create(&c[i].thread, NULL, count_on, &c[i]), 0);
    }
    for (int i = 0; i < COUNT * THREADS; i++) {
        pthread_join(c[i].thread, NULL);
        taken += c[i].taken;
    }
    return taken;
}

static void await_total(const char *key, uint64_t sum)
{
    for (int i = 0; i < COUNT; i++) {
        for (int tries = 0; tries < 100 && total(nodes[i], key) != sum; tries++)
            nodes_sleep_ms(50);
        assert_int_equal(total(nodes[i], key), sum);
    }
}

static void no_add_is_lost_or_counted_twice(void **state)
{
    (void)state;
    assert_int_equal(count_everywhere(0), COUNT * THREADS * TIMES);
    await_total("all", COUNT * THREADS * TIMES);
    assert_true(nodes_stats_of(nodes, COUNT, "tally_pages_taken") > 0);
    assert_true(nodes_stats_of(nodes, COUNT, "tally_pages_malformed") == 0);
}

/* As fast as threads can no news arrives in time, so a node may let through the whole limit;
 * it never lets through more, and all agree on what was let through. */
static void what_was_taken_is_what_all_know(void **state)
{
    (void)state;
    unsigned taken = count_everywhere(500);

    assert_in_range(taken, 500, COUNT * 500);
    await_total("limited", taken);
    assert_int_equal(count_everywhere(500), 0);
}

static void what_is_no_tally_is_refused(void **state)
{
    struct peerage_tally t = hours("durov");
    static const char long_name[256];
    uint64_t sum = 7;

    (void)state;
    t.window_ms = 0;
    assert_int_equal(peerage_tally_add(nodes[0], &t, 1, &sum), PEERAGE_E_TOO_BIG);
    assert_int_equal(sum, 0);
    assert_int_equal(peerage_tally_take(nodes[0], &t, 1, 10, NULL, NULL, NULL), PEERAGE_E_TOO_BIG);
    t = hours("durov");
    t.name = long_name;
    t.name_bytes = sizeof long_name;
    assert_int_equal(peerage_tally_add(nodes[0], &t, 1, NULL), PEERAGE_E_TOO_BIG);
    t = (struct peerage_tally){.window_ms = 24u * 3600000u};     /* no name, no key: one like any */
    assert_int_equal(peerage_tally_add(nodes[0], &t, 2, &sum), 0);
    assert_int_equal(sum, 2);
}

static void an_event_loop_is_answered_at_once_without_redis(void **state)
{
    struct peerage_tally t = hours("loop");
    peerage_port *port;
    uint64_t sum;

    (void)state;
    assert_int_equal(peerage_port_new(nodes[0], &port), 0);
    assert_int_equal(peerage_port_tally(port, &t, 2, 3, NULL, &sum), 1);
    assert_int_equal(sum, 2);
    assert_int_equal(peerage_port_tally(port, &t, 2, 3, NULL, &sum), 0);
    assert_int_equal(sum, 2);
    peerage_port_gone(port, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_add_is_lost_or_counted_twice),
        cmocka_unit_test(what_was_taken_is_what_all_know),
        cmocka_unit_test(what_is_no_tally_is_refused),
        cmocka_unit_test(an_event_loop_is_answered_at_once_without_redis),
    };

    nodes_child_main(argc, argv);
    return cmocka_run_group_tests(tests, make_cluster, free_cluster);
}
