/* An event loop's port: it watches one descriptor, asks many at once over one connection,
 * runs loads as tasks of its own, and can go away at any moment. The "event loop" here is
 * poll() on that descriptor. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/shell_nodes.h"

#define COUNT 2

static peerage *nodes[COUNT];
static peerage_port *port;          /* of nodes[0] */

static int make_cluster(void **state)
{
    struct peerage_options o;

    (void)state;
    nodes_options(&o);
    o.heir = 0;         /* else, of two nodes, each would have what the other owns */
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

static int make_port(void **state)
{
    (void)state;
    return peerage_port_new(nodes[0], &port);
}

static int free_port(void **state)
{
    (void)state;
    if (port)
        peerage_port_gone(port, NULL, NULL);
    port = NULL;
    return 0;
}

static int ask_with(peerage_port *at, const char *key, unsigned flags, unsigned timeout_ms,
                    const char *loader, void *token, struct peerage_answer *answer)
{
    struct peerage_ask ask = {.key = key, .key_bytes = strlen(key), .ttl_ms = 60000,
                              .flags = flags, .timeout_ms = timeout_ms,
                              .loader = loader, .loader_bytes = loader ? strlen(loader) : 0};

    peerage_port_ask(at, &ask, token, answer);
    return answer->kind;
}

static int ask(const char *key, void *token, struct peerage_answer *answer)
{
    return ask_with(port, key, PEERAGE_LOADS, 0, NULL, token, answer);
}

/* One event, as an event loop would get it; false when none came within ms. */
static bool next_event(struct peerage_event *event, int ms)
{
    long long until = nodes_now_ms() + ms;

    for (;;) {
        struct pollfd fd = {.fd = peerage_port_fd(port), .events = POLLIN};
        if (peerage_port_next(port, event))
            return true;
        long long left = until - nodes_now_ms();
        if (left < 0)
            return false;
        if (poll(&fd, 1, (int)left) > 0)
            peerage_port_run(port);
    }
}

static void expect_answer(void *token, int kind, struct peerage_event *event)
{
    assert_true(next_event(event, 3000));
    assert_int_equal(event->kind, PEERAGE_EVENT_ANSWER);
    assert_ptr_equal(event->token, token);
    assert_int_equal(event->answer->kind, kind);
}

/* Ask for what has to be loaded here: the leave comes at once, or (the owner looks at its
 * heir first) as an event. */
static uint64_t ask_for_load(const char *key, void *token)
{
    struct peerage_event event;
    struct peerage_answer a;

    if (ask(key, token, &a) == PEERAGE_LOAD)
        return a.load_id;
    assert_int_equal(a.kind, PEERAGE_PENDING);
    expect_answer(token, PEERAGE_LOAD, &event);
    return event.answer->load_id;
}

static void expect_silence(void)
{
    struct peerage_event event;

    assert_false(next_event(&event, 100));
}

static void a_hit_is_answered_at_once(void **state)
{
    struct peerage_answer a;
    char key[64];

    (void)state;
    nodes_key_owned_by(nodes[0], "at once", key);
    nodes_ask_or_load(nodes[0], key, "here");
    assert_int_equal(ask(key, &a, &a), PEERAGE_VALUE);
    assert_int_equal(a.tier, PEERAGE_TIER_LOCAL);
    assert_true(nodes_is(&a, "here"));
    expect_silence();
}

static void many_questions_share_one_connection(void **state)
{
    static char keys[200][64];
    struct peerage_event event;
    struct peerage_answer a;
    char key[64];

    (void)state;
    for (int i = 0; i < 200; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "shared %d", i);
        nodes_key_owned_by(nodes[1], prefix, keys[i]);
    }
    nodes_key_owned_by(nodes[1], "first", key);
    assert_int_equal(ask(key, &a, &a), PEERAGE_PENDING);
    expect_answer(&a, PEERAGE_LOAD, &event);
    peerage_lose(nodes[0], event.answer->load_id);
    assert_true(next_event(&event, 3000));
    double dials = nodes_stat(nodes[0], "dials"), asks = nodes_stat(nodes[0], "asks_by_loops");
    for (int i = 0; i < 200; i++)
        assert_int_equal(ask_with(port, keys[i], 0, 0, NULL, keys[i], &a), PEERAGE_PENDING);
    bool seen[200] = {false};
    for (int i = 0; i < 200; i++) {
        assert_true(next_event(&event, 3000));
        assert_int_equal(event.answer->kind, PEERAGE_MISS);
        size_t at = (size_t)((char(*)[64])event.token - keys);
        assert_true(at < 200 && !seen[at]);
        seen[at] = true;
    }
    assert_true(nodes_stat(nodes[0], "dials") == dials);
    assert_true(nodes_stat(nodes[0], "asks_by_loops") - asks == 200);
    expect_silence();
}

/* The leave to load comes at once or as an event; the question gets its answer as well. */
static void the_asker_of_a_load_is_answered_too(void **state)
{
    struct peerage_event event;
    struct peerage_answer a;
    char key[64];
    int one, two;

    (void)state;
    nodes_key_owned_by(nodes[0], "own load", key);
    uint64_t load_id = ask_for_load(key, &one);
    assert_int_equal(ask(key, &two, &a), PEERAGE_PENDING);
    expect_silence();
    nodes_finish(nodes[0], load_id, "loaded");
    expect_answer(&one, PEERAGE_VALUE, &event);
    assert_true(nodes_is(event.answer, "loaded"));
    expect_answer(&two, PEERAGE_VALUE, &event);
    assert_true(nodes_is(event.answer, "loaded"));
    expect_silence();
}

static void a_permit_is_run_by_a_task_and_its_value_sent(void **state)
{
    struct peerage_event event;
    struct peerage_answer a;
    struct asker elsewhere;
    char key[64];
    int one, two;

    (void)state;
    nodes_key_owned_by(nodes[1], "permit", key);
    assert_int_equal(ask(key, &one, &a), PEERAGE_PENDING);
    assert_int_equal(ask(key, &two, &a), PEERAGE_PENDING);
    expect_answer(&one, PEERAGE_LOAD, &event);
    uint64_t load_id = event.answer->load_id;
    asker_start(&elsewhere, nodes[1], key, PEERAGE_LOADS);
    nodes_sleep_ms(50);
    nodes_finish(nodes[0], load_id, "by permit");
    expect_answer(&one, PEERAGE_VALUE, &event);
    assert_true(nodes_is(event.answer, "by permit"));
    expect_answer(&two, PEERAGE_VALUE, &event);
    assert_true(nodes_is(event.answer, "by permit"));
    asker_join(&elsewhere);
    assert_true(nodes_is(&elsewhere.answer, "by permit"));
}

static void who_leaves_is_not_told_and_others_are(void **state)
{
    struct peerage_event event;
    struct peerage_answer a;
    char key[64];
    int one, two, three;

    (void)state;
    nodes_key_owned_by(nodes[0], "leave", key);
    uint64_t load_id = ask_for_load(key, &one);
    assert_int_equal(ask(key, &two, &a), PEERAGE_PENDING);
    assert_int_equal(peerage_port_leave(port, &one), 1);
    assert_int_equal(peerage_port_leave(port, &one), 0);
    nodes_finish(nodes[0], load_id, "for two");
    expect_answer(&two, PEERAGE_VALUE, &event);
    assert_true(nodes_is(event.answer, "for two"));
    assert_int_equal(peerage_port_leave(port, &two), 0);

    /* the leader of a query to the owner leaves: it goes on for the other */
    nodes_key_owned_by(nodes[1], "leave leader", key);
    struct asker holder;
    asker_start(&holder, nodes[1], key, PEERAGE_LOADS);
    asker_join(&holder);
    assert_int_equal(ask(key, &one, &a), PEERAGE_PENDING);
    assert_int_equal(ask(key, &three, &a), PEERAGE_PENDING);
    expect_silence();
    double requests = nodes_stat(nodes[0], "requests_sent");
    assert_int_equal(peerage_port_leave(port, &one), 1);
    nodes_finish(nodes[1], holder.answer.load_id, "for three");
    expect_answer(&three, PEERAGE_VALUE, &event);
    assert_true(nodes_is(event.answer, "for three"));
    assert_true(nodes_stat(nodes[0], "requests_sent") == requests);
    expect_silence();
}

/* Nobody waits any more: the task is told, and may stop. */
static void a_load_nobody_waits_for_is_cancelled(void **state)
{
    struct peerage_event event;
    char key[64];
    int one;

    (void)state;
    nodes_key_owned_by(nodes[0], "cancelled", key);
    uint64_t load_id = ask_for_load(key, &one);
    assert_int_equal(peerage_port_leave(port, &one), 1);
    assert_true(next_event(&event, 1000));
    assert_int_equal(event.kind, PEERAGE_EVENT_CANCEL);
    assert_true(event.load_id == load_id);
    peerage_lose(nodes[0], load_id);
    nodes_finish(nodes[0], ask_for_load(key, &one), "anew");
    expect_answer(&one, PEERAGE_VALUE, &event);
    assert_true(nodes_is(event.answer, "anew"));
}

static void patience_ends_on_a_port_too(void **state)
{
    struct peerage_event event;
    struct peerage_answer a;
    char key[64];
    int one, two;

    (void)state;
    nodes_key_owned_by(nodes[0], "impatient", key);
    uint64_t load_id = ask_for_load(key, &one);
    long long began = nodes_now_ms();
    assert_int_equal(ask_with(port, key, PEERAGE_LOADS, 200, NULL, &two, &a), PEERAGE_PENDING);
    expect_answer(&two, PEERAGE_TROUBLE, &event);
    assert_int_equal(event.answer->error, PEERAGE_E_TIMEOUT);
    assert_in_range(nodes_now_ms() - began, 195, 400);
    nodes_finish(nodes[0], load_id, "late");
    expect_answer(&one, PEERAGE_VALUE, &event);
    peerage_blob_free(event.answer->blob);
    expect_silence();
}

/* An async loader that is registered runs on the start loop, for remote askers too. */
static void registered_async_loads_come_as_events(void **state)
{
    struct peerage_event event;
    struct asker remote;
    char key[64];

    (void)state;
    assert_int_equal(peerage_register(nodes[0], "async", 5, 1), 0);
    peerage_start_port(nodes[0], port);
    nodes_key_owned_by(nodes[0], "async", key);
    memset(&remote, 0, sizeof remote);
    /* the remote node's question names the loader: from a thread there */
    struct peerage_answer a;
    peerage_port *theirs;
    assert_int_equal(peerage_port_new(nodes[1], &theirs), 0);
    assert_int_equal(ask_with(theirs, key, PEERAGE_LOADS, 0, "async", &a, &a), PEERAGE_PENDING);
    bool there = false;
    for (int i = 0; i < 2000 && !there; i++) {
        struct pollfd fd = {.fd = peerage_port_fd(theirs), .events = POLLIN};
        if (poll(&fd, 1, 1) > 0)
            peerage_port_run(theirs);
        there = next_event(&event, 0);
    }
    assert_true(there);
    assert_int_equal(event.kind, PEERAGE_EVENT_LOAD);
    assert_int_equal(event.load.loader_bytes, 5);
    assert_memory_equal(event.load.loader, "async", 5);
    assert_memory_equal(event.load.key, key, strlen(key));
    nodes_finish(nodes[0], event.load.load_id, "async value");
    peerage_load_free(&event.load);
    for (int i = 0; i < 200; i++) {
        struct pollfd fd = {.fd = peerage_port_fd(theirs), .events = POLLIN};
        if (poll(&fd, 1, 10) > 0)
            peerage_port_run(theirs);
        if (peerage_port_next(theirs, &event))
            break;
    }
    assert_ptr_equal(event.token, &a);
    assert_int_equal(event.answer->kind, PEERAGE_VALUE);
    assert_true(nodes_is(event.answer, "async value"));
    peerage_port_gone(theirs, NULL, NULL);
    peerage_start_port(nodes[0], NULL);
}

/* Above 256 KiB the loop thread verifies; the answer is whole, and others behind it on the
 * same connection come as well. */
static void large_answers_arrive_whole(void **state)
{
    static const size_t sizes[] = {256 << 10, (256 << 10) + 1, 300000, 7 << 20};
    struct peerage_event event;
    struct peerage_answer a;
    char keys[4][64], small[64];

    (void)state;
    nodes_key_owned_by(nodes[1], "small", small);
    nodes_finish(nodes[1], nodes_ask(nodes[1], small, PEERAGE_LOADS).load_id, "small");
    for (int i = 0; i < 4; i++) {
        char prefix[32], *value = malloc(sizes[i]);
        snprintf(prefix, sizeof prefix, "large %d", i);
        nodes_key_owned_by(nodes[1], prefix, keys[i]);
        a = nodes_ask(nodes[1], keys[i], PEERAGE_LOADS);
        assert_int_equal(a.kind, PEERAGE_LOAD);
        memset(value, 'a' + i, sizes[i]);
        struct peerage_item item = {.at = value, .bytes = sizes[i], .ttl_ms = 60000};
        assert_int_equal(peerage_finish(nodes[1], a.load_id, &item, 1), 0);
        free(value);
    }
    double verified = nodes_stat(nodes[0], "verified_for_loops");
    for (int i = 0; i < 4; i++)
        assert_int_equal(ask(keys[i], keys[i], &a), PEERAGE_PENDING);
    assert_int_equal(ask(small, small, &a), PEERAGE_PENDING);
    for (int i = 0; i < 4; i++) {
        expect_answer(keys[i], PEERAGE_VALUE, &event);
        assert_int_equal(event.answer->bytes, sizes[i]);
        const char *at = event.answer->at;
        for (size_t b = 0; b < sizes[i]; b += 4093)
            assert_int_equal(at[b], 'a' + i);
        peerage_blob_free(event.answer->blob);
    }
    expect_answer(small, PEERAGE_VALUE, &event);
    assert_true(nodes_is(event.answer, "small"));
    assert_true(nodes_stat(nodes[0], "verified_for_loops") - verified == 3);

    /* a loop that goes in the middle of one */
    nodes_key_owned_by(nodes[1], "large gone", keys[0]);
    a = nodes_ask(nodes[1], keys[0], PEERAGE_LOADS);
    char *value = calloc(1, 7 << 20);
    struct peerage_item item = {.at = value, .bytes = 7 << 20, .ttl_ms = 60000};
    assert_int_equal(peerage_finish(nodes[1], a.load_id, &item, 1), 0);
    free(value);
    assert_int_equal(ask(keys[0], keys[0], &a), PEERAGE_PENDING);
    for (int i = 0; i < 20; i++) {
        struct pollfd fd = {.fd = peerage_port_fd(port), .events = POLLIN};
        poll(&fd, 1, 1);
        peerage_port_run(port);
    }
}

static void a_change_reports_to_its_token(void **state)
{
    struct peerage_event event;
    char key[64];
    int token;
    struct peerage_ask name = {.ttl_ms = 60000};
    struct peerage_item item = {.at = "set", .bytes = 3, .ttl_ms = 60000};

    (void)state;
    nodes_key_owned_by(nodes[1], "change", key);
    name.key = key;
    name.key_bytes = strlen(key);
    assert_int_equal(peerage_port_change(port, &name, &item, 0, &token), 0);
    assert_true(next_event(&event, 3000));
    assert_int_equal(event.kind, PEERAGE_EVENT_REPORT);
    assert_ptr_equal(event.token, &token);
    assert_int_equal(event.error, 0);
    assert_int_equal(event.report.acknowledged_count, COUNT);
    assert_int_equal(event.report.unreached_count, 0);
    peerage_report_free(&event.report);
    struct peerage_answer a = nodes_ask(nodes[1], key, 0);
    assert_true(nodes_is(&a, "set"));
}

static void count_token(void *token, void *argument)
{
    (void)token;
    ++*(int *)argument;
}

/* A loop that is closed with questions, a load and a permit open: others go on. */
static void a_port_that_goes_gives_everything_back(void **state)
{
    struct asker waiter;
    struct peerage_event event;
    struct peerage_answer a;
    char own[64], far[64];
    int tokens[3], gone = 0;

    (void)state;
    nodes_key_owned_by(nodes[0], "gone own", own);
    nodes_key_owned_by(nodes[1], "gone far", far);
    ask_for_load(own, &tokens[0]);
    assert_int_equal(ask(far, &tokens[1], &a), PEERAGE_PENDING);
    expect_answer(&tokens[1], PEERAGE_LOAD, &event);
    assert_int_equal(ask(far, &tokens[2], &a), PEERAGE_PENDING);
    memset(&waiter, 0, sizeof waiter);
    waiter.node = nodes[1];
    waiter.flags = PEERAGE_LOADS;
    waiter.loads = "from the other node";
    snprintf(waiter.key, sizeof waiter.key, "%s", far);
    asker_run(&waiter);
    nodes_sleep_ms(100);
    peerage_port_gone(port, count_token, &gone);
    port = NULL;
    assert_int_equal(gone, 3);
    asker_join(&waiter);
    assert_int_equal(waiter.answer.kind, PEERAGE_LOAD);
    assert_true(waiter.took_ms < 2000);
    a = nodes_ask_or_load(nodes[0], own, "again");
    assert_int_equal(a.kind, PEERAGE_LOAD);
}

/* A load that a question was to run and had not heard of when its node was closed goes back; after
 * that nothing is loaded any more. */
static void a_closed_node_has_no_loads_for_its_port(void **state)
{
    struct peerage_options o;
    struct peerage_event event;
    struct peerage_answer a;
    peerage *alone;
    int before, after;

    (void)state;
    nodes_options(&o);
    nodes_cluster(&alone, 1, &o);
    assert_int_equal(peerage_port_new(alone, &port), 0);
    assert_int_equal(ask("before", &before, &a), PEERAGE_PENDING);
    peerage_close(alone, 0);
    assert_int_equal(ask("after", &after, &a), PEERAGE_TROUBLE);
    assert_int_equal(a.error, PEERAGE_E_CLOSED);
    bool told = false;
    while (next_event(&event, 100)) {
        if (event.kind != PEERAGE_EVENT_ANSWER || event.answer->kind == PEERAGE_LOAD)
            continue;           /* the load, and that nobody waits for it */
        assert_ptr_equal(event.token, &before);
        assert_int_equal(event.answer->kind, PEERAGE_TROUBLE);
        assert_int_equal(event.answer->error, PEERAGE_E_CLOSED);
        told = true;
    }
    assert_true(told);
    peerage_port_gone(port, NULL, NULL);
    port = NULL;
    peerage_free(alone);
}

int main(int argc, char **argv)
{
#define ON_PORT(test) cmocka_unit_test_setup_teardown(test, make_port, free_port)
    const struct CMUnitTest tests[] = {
        ON_PORT(a_hit_is_answered_at_once),
        ON_PORT(many_questions_share_one_connection),
        ON_PORT(the_asker_of_a_load_is_answered_too),
        ON_PORT(a_permit_is_run_by_a_task_and_its_value_sent),
        ON_PORT(who_leaves_is_not_told_and_others_are),
        ON_PORT(a_load_nobody_waits_for_is_cancelled),
        ON_PORT(patience_ends_on_a_port_too),
        ON_PORT(registered_async_loads_come_as_events),
        ON_PORT(large_answers_arrive_whole),
        ON_PORT(a_change_reports_to_its_token),
        ON_PORT(a_port_that_goes_gives_everything_back),
        cmocka_unit_test(a_closed_node_has_no_loads_for_its_port),
    };

    nodes_child_main(argc, argv);
    return cmocka_run_group_tests_name("port", tests, make_cluster, free_cluster);
}
