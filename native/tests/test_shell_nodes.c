/* Nodes of one process over real loopback sockets: they find each other, ask, coalesce, hand
 * out permits, pass errors on; a closed node wakes its waiters. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/mem.h"
#include "tests/shell_nodes.h"

#define COUNT 3

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

static void all_agree_on_owner_and_coordinator(void **state)
{
    struct peerage_member first[3], m[3];
    uint64_t scores[3], more[3];

    (void)state;
    for (int k = 0; k < 50; k++) {
        char channel[16];
        snprintf(channel, sizeof channel, "c%d", k);
        assert_int_equal(peerage_owner(nodes[0], channel, strlen(channel), first, scores, 3), 3);
        assert_true(scores[0] >= scores[1] && scores[1] >= scores[2]);
        for (int i = 1; i < COUNT; i++) {
            assert_int_equal(peerage_owner(nodes[i], channel, strlen(channel), m, more, 3), 3);
            for (int r = 0; r < 3; r++) {
                assert_string_equal(m[r].address, first[r].address);
                assert_true(more[r] == scores[r]);
            }
        }
    }
    assert_int_equal(peerage_coordinator(nodes[0], &first[0]), 1);
    for (int i = 1; i < COUNT; i++) {
        assert_int_equal(peerage_coordinator(nodes[i], &m[0]), 1);
        assert_string_equal(m[0].address, first[0].address);
    }
    /* the lowest address, and the nodes of one host differ by their port alone */
    assert_int_equal(peerage_members(nodes[0], m, 3), 3);
    assert_string_equal(m[0].address, first[0].address);
}

static void one_miss_that_becomes_a_load_costs_one_request(void **state)
{
    char key[64];
    struct peerage_answer a;

    (void)state;
    nodes_key_owned_by(nodes[1], "one", key);
    double requests = nodes_stats_of(nodes, COUNT, "requests_sent");
    double asks = nodes_stat(nodes[0], "asks_by_threads");
    a = nodes_ask_or_load(nodes[0], key, "the value");
    assert_int_equal(a.kind, PEERAGE_LOAD);
    assert_true(nodes_stats_of(nodes, COUNT, "requests_sent") - requests == 1);
    assert_true(nodes_stat(nodes[0], "asks_by_threads") - asks == 1);
    /* the owner has it now, natively */
    nodes_sleep_ms(50);
    a = nodes_ask(nodes[1], key, PEERAGE_LOADS);
    assert_int_equal(a.tier, PEERAGE_TIER_LOCAL);
    assert_true(nodes_is(&a, "the value"));
    assert_true(nodes_stats_of(nodes, COUNT, "requests_sent") - requests == 1);
}

static void an_owners_hit_is_kept_by_its_asker(void **state)
{
    struct peerage_answer a;
    char key[64], heir[56];
    int asker = 0;

    (void)state;
    nodes_key_owned_by(nodes[1], "hit", key);
    assert_int_equal(nodes_ask_or_load(nodes[1], key, "a hit").kind, PEERAGE_LOAD);
    /* the heir was given a copy; the third node has none */
    struct peerage_member ranks[2];
    uint64_t scores[2];
    assert_int_equal(peerage_owner(nodes[0], key, strlen(key), ranks, scores, 2), 2);
    peerage_address(nodes[0], heir);
    if (strcmp(heir, ranks[1].address) == 0)
        asker = 2;
    double requests = nodes_stat(nodes[asker], "requests_sent");
    a = nodes_ask(nodes[asker], key, PEERAGE_LOADS);
    assert_int_equal(a.tier, PEERAGE_TIER_OWNER);
    assert_true(a.ttl_ms > 58000 && a.ttl_ms <= 60000);
    assert_true(nodes_is(&a, "a hit"));
    assert_true(nodes_stat(nodes[asker], "requests_sent") - requests == 1);
    a = nodes_ask(nodes[asker], key, PEERAGE_LOADS);
    assert_int_equal(a.tier, PEERAGE_TIER_LOCAL);
    assert_true(nodes_is(&a, "a hit"));
    assert_true(nodes_stat(nodes[asker], "requests_sent") - requests == 1);
}

static void a_question_without_a_loader_is_a_miss(void **state)
{
    char key[64];

    (void)state;
    nodes_key_owned_by(nodes[1], "nobody", key);
    assert_int_equal(nodes_ask(nodes[0], key, 0).kind, PEERAGE_MISS);
    assert_int_equal(nodes_ask(nodes[1], key, 0).kind, PEERAGE_MISS);
    assert_int_equal(nodes_ask(nodes[1], key, PEERAGE_NO_WAIT).kind, PEERAGE_MISS);
}

/* 24 askers on three nodes, none of whose functions is registered: one gets the permit. */
static void closures_everywhere_load_once(void **state)
{
    struct asker askers[24];
    char key[64];
    int loads = 0;

    (void)state;
    nodes_key_owned_by(nodes[1], "many", key);
    for (int i = 0; i < 24; i++) {
        memset(&askers[i], 0, sizeof askers[i]);
        askers[i].node = nodes[i % COUNT];
        askers[i].flags = PEERAGE_LOADS;
        askers[i].loads = "many's value";
        askers[i].load_ms = 300;
        snprintf(askers[i].key, sizeof askers[i].key, "%s", key);
        asker_run(&askers[i]);
    }
    for (int i = 0; i < 24; i++) {
        asker_join(&askers[i]);
        if (askers[i].answer.kind == PEERAGE_LOAD)
            loads++;
        else
            assert_true(nodes_is(&askers[i].answer, "many's value"));
    }
    assert_int_equal(loads, 1);
}

struct pool {
    pthread_t thread;
    peerage *node;
    int taken;
    const char *value;
    const char *error;
    int load_ms;
    bool stop;
};

static void *run_loads(void *argument)
{
    struct pool *pool = argument;
    struct peerage_load load;

    while (!__atomic_load_n(&pool->stop, __ATOMIC_ACQUIRE)) {
        int rc = peerage_take(pool->node, 100, &load);
        if (rc < 0)
            break;
        if (rc == 0)
            continue;
        pool->taken++;
        nodes_sleep_ms(pool->load_ms);
        if (pool->error)
            peerage_fail(pool->node, load.load_id, pool->error, strlen(pool->error), 0);
        else
            nodes_finish(pool->node, load.load_id, pool->value);
        peerage_load_free(&load);
    }
    return NULL;
}

static void pool_start(struct pool *pool)
{
    assert_int_equal(pthread_create(&pool->thread, NULL, run_loads, pool), 0);
}

static void pool_stop(struct pool *pool)
{
    __atomic_store_n(&pool->stop, true, __ATOMIC_RELEASE);
    pthread_join(pool->thread, NULL);
}

static struct peerage_answer ask_registered(peerage *p, const char *key)
{
    struct peerage_ask ask = {.key = key, .key_bytes = strlen(key), .ttl_ms = 60000,
                              .loader = "pages", .loader_bytes = 5, .flags = PEERAGE_LOADS};
    struct peerage_answer answer;

    peerage_ask(p, &ask, &answer, NULL, NULL);
    return answer;
}

static void a_registered_loader_runs_at_the_owner(void **state)
{
    struct pool pool = {.node = nodes[1], .value = "made by the owner", .load_ms = 400};
    struct peerage_answer a;
    char key[64];

    (void)state;
    nodes_key_owned_by(nodes[1], "registered", key);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(peerage_register(nodes[i], "pages", 5, 0), 0);
    pool_start(&pool);
    /* It takes longer than the 250 ms budget: an accepted load is waited for. */
    a = ask_registered(nodes[0], key);
    assert_int_equal(a.tier, PEERAGE_TIER_LOAD);
    assert_true(nodes_is(&a, "made by the owner"));
    a = ask_registered(nodes[2], key);
    assert_true(nodes_is(&a, "made by the owner"));
    pool_stop(&pool);
    assert_int_equal(pool.taken, 1);
}

/* Errors reach everybody, and the next call loads afresh. */
static void a_loaders_error_goes_to_all_who_wait(void **state)
{
    struct pool pool = {.node = nodes[1], .error = "{\"type\":\"NotFound\"}", .load_ms = 200};
    struct asker askers[4];
    char key[64];

    (void)state;
    nodes_key_owned_by(nodes[1], "fails", key);
    peerage_register(nodes[1], "pages", 5, 0);
    pool_start(&pool);
    struct peerage_answer a = ask_registered(nodes[0], key);
    assert_int_equal(a.kind, PEERAGE_FAILED);
    assert_int_equal(a.value_type, PEERAGE_ERROR);
    assert_true(nodes_is(&a, pool.error));
    a = ask_registered(nodes[2], key);
    assert_int_equal(a.kind, PEERAGE_FAILED);
    peerage_blob_free(a.blob);
    pool_stop(&pool);
    assert_int_equal(pool.taken, 2);

    /* the same by permit */
    nodes_key_owned_by(nodes[1], "permit fails", key);
    asker_start(&askers[0], nodes[0], key, PEERAGE_LOADS);
    nodes_sleep_ms(100);
    for (int i = 1; i < 4; i++)
        asker_start(&askers[i], nodes[i % COUNT], key, PEERAGE_LOADS);
    asker_join(&askers[0]);
    assert_int_equal(askers[0].answer.kind, PEERAGE_LOAD);
    nodes_sleep_ms(100);
    peerage_fail(nodes[0], askers[0].answer.load_id, "broken", 6, 0);
    for (int i = 1; i < 4; i++) {
        asker_join(&askers[i]);
        assert_int_equal(askers[i].answer.kind, PEERAGE_FAILED);
        assert_true(nodes_is(&askers[i].answer, "broken"));
    }
}

/* A permit given back (its holder was cancelled) goes to the next who waits. */
static void a_lost_load_is_anothers(void **state)
{
    struct asker first, second;
    char key[64];

    (void)state;
    nodes_key_owned_by(nodes[1], "lost", key);
    asker_start(&first, nodes[0], key, PEERAGE_LOADS);
    asker_join(&first);
    assert_int_equal(first.answer.kind, PEERAGE_LOAD);
    memset(&second, 0, sizeof second);
    second.node = nodes[2];
    second.flags = PEERAGE_LOADS;
    second.loads = "second";
    snprintf(second.key, sizeof second.key, "%s", key);
    asker_run(&second);
    nodes_sleep_ms(150);
    assert_int_equal(peerage_lose(nodes[0], first.answer.load_id), 0);
    asker_join(&second);
    assert_int_equal(second.answer.kind, PEERAGE_LOAD);
    assert_true(second.took_ms < 2000);
    nodes_sleep_ms(50);
    struct peerage_answer a = nodes_ask(nodes[1], key, PEERAGE_LOADS);
    assert_true(nodes_is(&a, "second"));
}

static void values_of_every_size_arrive_whole(void **state)
{
    static const size_t sizes[] = {0, 1, 1000, 1024, 1025, 8191, 8192, 56000, 262145, 7 << 20};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char prefix[32], key[64];
        unsigned char *value = malloc(sizes[i] + 1);
        assert_non_null(value);
        for (size_t b = 0; b < sizes[i]; b++)
            value[b] = (unsigned char)(b * 31 + i);
        snprintf(prefix, sizeof prefix, "size-%zu", sizes[i]);
        nodes_key_owned_by(nodes[1], prefix, key);
        struct peerage_answer a = nodes_ask(nodes[0], key, PEERAGE_LOADS);
        assert_int_equal(a.kind, PEERAGE_LOAD);
        struct peerage_item item = {.at = value, .bytes = sizes[i], .ttl_ms = 60000};
        assert_int_equal(peerage_finish(nodes[0], a.load_id, &item, 1), 0);
        /* the owner's copy came by permit; the third node's comes from the owner */
        for (int n = 1; n < COUNT; n++) {
            long long until = nodes_now_ms() + 5000;
            do {
                a = nodes_ask(nodes[n], key, 0);
            } while (a.kind == PEERAGE_MISS && nodes_now_ms() < until);
            if (a.kind != PEERAGE_VALUE)
                fail_msg("%zu bytes: node %d has none", sizes[i], n);
            assert_int_equal(a.bytes, sizes[i]);
            assert_memory_equal(a.at, value, sizes[i]);
            peerage_blob_free(a.blob);
        }
        free(value);
    }
}

static void what_exceeds_a_bound_gets_a_clear_error(void **state)
{
    struct peerage_answer a;
    char key[64], *big = calloc(1, 9 << 20);
    char long_key[1100];

    (void)state;
    assert_non_null(big);
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = 0;
    a = nodes_ask(nodes[0], long_key, PEERAGE_LOADS);
    assert_int_equal(a.kind, PEERAGE_TROUBLE);
    assert_int_equal(a.error, PEERAGE_E_TOO_BIG);

    nodes_key_owned_by(nodes[1], "too big", key);
    a = nodes_ask(nodes[0], key, PEERAGE_LOADS);
    assert_int_equal(a.kind, PEERAGE_LOAD);
    struct peerage_item item = {.at = big, .bytes = 9 << 20, .ttl_ms = 60000};
    assert_int_equal(peerage_finish(nodes[0], a.load_id, &item, 1), PEERAGE_E_TOO_BIG);
    nodes_sleep_ms(50);
    assert_int_equal(nodes_ask(nodes[1], key, 0).kind, PEERAGE_MISS);
    free(big);
}

/* One load brings further entries of its channel; they travel along. */
static void further_entries_travel_with_the_page(void **state)
{
    struct peerage_item items[2] = {
        {.at = "page", .bytes = 4, .ttl_ms = 60000},
        {.key = "also:body", .key_bytes = 9, .at = "body", .bytes = 4, .ttl_ms = 60000},
    };
    char channel[64];
    struct peerage_ask ask = {.key = "also:page", .key_bytes = 9, .ttl_ms = 60000,
                              .flags = PEERAGE_LOADS};
    struct peerage_answer a;

    (void)state;
    nodes_key_owned_by(nodes[1], "also", channel);
    ask.channel = channel;
    ask.channel_bytes = strlen(channel);
    peerage_ask(nodes[0], &ask, &a, NULL, NULL);
    assert_int_equal(a.kind, PEERAGE_LOAD);
    assert_int_equal(peerage_finish(nodes[0], a.load_id, items, 2), 0);
    assert_int_equal(peerage_get(nodes[0], "also:body", 9, &a), 1);
    assert_true(nodes_is(&a, "body"));
    nodes_sleep_ms(50);
    assert_int_equal(peerage_get(nodes[1], "also:body", 9, &a), 1);
    assert_true(nodes_is(&a, "body"));
}

static void a_load_that_asks_for_its_own_key_is_told(void **state)
{
    char key[64];
    struct peerage_answer a, inner;

    (void)state;
    nodes_key_owned_by(nodes[1], "recursive", key);
    for (int n = 0; n < 2; n++) {      /* by permit, and at its owner */
        a = nodes_ask(nodes[n], key, PEERAGE_LOADS);
        assert_int_equal(a.kind, PEERAGE_LOAD);
        assert_int_equal(a.chain_count, 1);
        struct peerage_ask ask = {.key = key, .key_bytes = strlen(key), .ttl_ms = 1000,
                                  .flags = PEERAGE_LOADS, .chain = a.chain,
                                  .chain_count = a.chain_count};
        peerage_ask(nodes[n], &ask, &inner, NULL, NULL);
        assert_int_equal(inner.kind, PEERAGE_TROUBLE);
        assert_int_equal(inner.error, PEERAGE_E_RECURSIVE);
        peerage_lose(nodes[n], a.load_id);
        nodes_sleep_ms(50);
    }
}

static void set_and_delete_say_who_acknowledged(void **state)
{
    char key[64];
    struct peerage_ask name = {.ttl_ms = 60000};
    struct peerage_item item = {.at = "set", .bytes = 3, .ttl_ms = 60000};
    struct peerage_report report;
    struct peerage_answer a;

    (void)state;
    nodes_key_owned_by(nodes[1], "set", key);
    name.key = key;
    name.key_bytes = strlen(key);
    assert_int_equal(peerage_change(nodes[0], &name, &item, 0, &report), 0);
    assert_int_equal(report.acknowledged_count, COUNT);
    assert_int_equal(report.unreached_count, 0);
    peerage_report_free(&report);
    for (int n = 0; n < COUNT; n++) {
        a = nodes_ask(nodes[n], key, 0);
        assert_true(nodes_is(&a, "set"));
    }
    assert_int_equal(peerage_change(nodes[2], &name, NULL, 0, &report), 0);
    assert_int_equal(report.acknowledged_count, COUNT);
    peerage_report_free(&report);
    for (int n = 0; n < COUNT; n++)
        assert_int_equal(nodes_ask(nodes[n], key, 0).kind, PEERAGE_MISS);
}

static void patience_ends_by_itself(void **state)
{
    struct asker holder, waiter;
    char key[64];

    (void)state;
    nodes_key_owned_by(nodes[1], "patience", key);
    asker_start(&holder, nodes[0], key, PEERAGE_LOADS);
    asker_join(&holder);
    assert_int_equal(holder.answer.kind, PEERAGE_LOAD);
    for (int n = 0; n < COUNT; n++) {
        memset(&waiter, 0, sizeof waiter);
        waiter.node = nodes[n];
        waiter.flags = PEERAGE_LOADS;
        waiter.timeout_ms = 300;
        snprintf(waiter.key, sizeof waiter.key, "%s", key);
        asker_run(&waiter);
        asker_join(&waiter);
        assert_int_equal(waiter.answer.kind, PEERAGE_TROUBLE);
        assert_int_equal(waiter.answer.error, PEERAGE_E_TIMEOUT);
        assert_in_range(waiter.took_ms, 290, 600);
    }
    nodes_finish(nodes[0], holder.answer.load_id, "late");
    struct peerage_answer a = nodes_ask(nodes[0], key, 0);
    assert_true(nodes_is(&a, "late"));
}

static atomic_int signals;

static void note_signal(int signal)
{
    (void)signal;
    signals++;
}

static int stop_at(void *argument)
{
    return signals >= *(int *)argument;
}

/* A signal cuts the poll; the callback decides whether the question goes on (Ctrl-C). */
static void a_signal_reaches_a_waiting_thread(void **state)
{
    struct sigaction action = {.sa_handler = note_signal};
    struct asker holder, waiter;
    char key[64];
    int second = 2;

    (void)state;
    sigaction(SIGUSR1, &action, NULL);
    nodes_key_owned_by(nodes[1], "signal", key);
    asker_start(&holder, nodes[1], key, PEERAGE_LOADS);
    asker_join(&holder);
    for (int n = 0; n < 2; n++) {      /* driving its query, and waiting in a flight */
        signals = 0;
        memset(&waiter, 0, sizeof waiter);
        waiter.node = nodes[n];
        waiter.flags = PEERAGE_LOADS;
        waiter.interrupted = stop_at;
        waiter.argument = &second;
        snprintf(waiter.key, sizeof waiter.key, "%s", key);
        asker_run(&waiter);
        nodes_sleep_ms(150);
        pthread_kill(waiter.thread, SIGUSR1);
        nodes_sleep_ms(100);
        pthread_kill(waiter.thread, SIGUSR1);
        asker_join(&waiter);
        assert_int_equal(waiter.answer.kind, PEERAGE_TROUBLE);
        assert_int_equal(waiter.answer.error, PEERAGE_E_INTERRUPTED);
        assert_in_range(waiter.took_ms, 240, 600);
    }
    peerage_lose(nodes[1], holder.answer.load_id);
}

/* It cuts no poll while the thread looks for the answer (W10), so it is asked for before the
 * thread sleeps. */
static void a_signal_while_a_thread_looks_is_not_slept_over(void **state)
{
    struct asker holder, waiter = {.node = nodes[0], .flags = PEERAGE_LOADS, .timeout_ms = 50};
    int came_before = 0;

    (void)state;
    nodes_key_owned_by(nodes[1], "looking", waiter.key);
    asker_start(&holder, nodes[1], waiter.key, PEERAGE_LOADS);
    asker_join(&holder);
    signals = 0;
    waiter.interrupted = stop_at;
    waiter.argument = &came_before;
    for (int n = 0; n < 5; n++) {      /* over connections that had looked in vain, it sleeps */
        asker_run(&waiter);
        asker_join(&waiter);
        assert_int_equal(waiter.answer.kind, PEERAGE_TROUBLE);
        if (waiter.answer.error != PEERAGE_E_TIMEOUT)
            break;
    }
    assert_int_equal(waiter.answer.error, PEERAGE_E_INTERRUPTED);
    peerage_lose(nodes[1], holder.answer.load_id);
}

static int take_long(void *argument)
{
    (void)argument;
    nodes_sleep_ms(300);
    return 0;
}

/* What a handler takes counts against the patience of who asks. */
static void a_handler_while_a_thread_looks_delays_no_deadline(void **state)
{
    struct asker holder, waiter = {.node = nodes[0], .flags = PEERAGE_LOADS, .timeout_ms = 250};

    (void)state;
    nodes_key_owned_by(nodes[1], "handling", waiter.key);
    asker_start(&holder, nodes[1], waiter.key, PEERAGE_LOADS);
    asker_join(&holder);
    waiter.interrupted = take_long;
    for (int n = 0; n < 5; n++) {
        asker_run(&waiter);
        asker_join(&waiter);
        assert_int_equal(waiter.answer.error, PEERAGE_E_TIMEOUT);
        assert_in_range(waiter.took_ms, 240, 450);
    }
    peerage_lose(nodes[1], holder.answer.load_id);
}

/* Whichever allocation fails, in whichever thread: the question is answered in time, if only
 * by an error, and everything works afterwards. */
static void an_allocation_that_fails_hangs_nobody(void **state)
{
    struct peerage_answer a;
    peerage_port *port;
    int troubles = 0;

    (void)state;
    assert_int_equal(peerage_port_new(nodes[0], &port), 0);
    for (int n = 0; n < 120; n++) {
        char prefix[32], key[64];
        snprintf(prefix, sizeof prefix, "memory %d", n);
        nodes_key_owned_by(nodes[n % 2], prefix, key);
        long long began = nodes_now_ms();
        struct peerage_ask ask = {.key = key, .key_bytes = strlen(key), .ttl_ms = 60000,
                                  .timeout_ms = 2000, .flags = PEERAGE_LOADS};
        mem_fail_after(n / 2);
        if (n % 4 < 2) {
            peerage_ask(nodes[0], &ask, &a, NULL, NULL);
        } else {
            peerage_port_ask(port, &ask, &a, &a);
            struct peerage_event event;
            for (int i = 0; a.kind == PEERAGE_PENDING && i < 3000; i++) {
                struct pollfd fd = {.fd = peerage_port_fd(port), .events = POLLIN};
                if (poll(&fd, 1, 1) > 0)
                    peerage_port_run(port);
                /* an earlier question's load may be told that nobody waits for it */
                if (peerage_port_next(port, &event) && event.kind == PEERAGE_EVENT_ANSWER)
                    a = *event.answer;
            }
        }
        assert_int_not_equal(a.kind, PEERAGE_PENDING);
        troubles += a.kind == PEERAGE_TROUBLE;
        if (a.kind == PEERAGE_LOAD) {
            struct peerage_item item = {.at = "v", .bytes = 1, .ttl_ms = 60000};
            peerage_finish(nodes[0], a.load_id, &item, 1);
        } else if (a.kind == PEERAGE_VALUE) {
            peerage_blob_free(a.blob);
        }
        mem_fail_after(-1);
        assert_true(nodes_now_ms() - began < 2600);
    }
    peerage_port_gone(port, NULL, NULL);
    assert_true(troubles > 0);      /* some did fail */
    char key[64];
    nodes_key_owned_by(nodes[1], "memory is back", key);
    nodes_await(nodes, COUNT, COUNT);
    a = nodes_ask_or_load(nodes[0], key, "fine");
    assert_true(a.kind == PEERAGE_LOAD);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_agree_on_owner_and_coordinator),
        cmocka_unit_test(one_miss_that_becomes_a_load_costs_one_request),
        cmocka_unit_test(an_owners_hit_is_kept_by_its_asker),
        cmocka_unit_test(a_question_without_a_loader_is_a_miss),
        cmocka_unit_test(closures_everywhere_load_once),
        cmocka_unit_test(a_registered_loader_runs_at_the_owner),
        cmocka_unit_test(a_loaders_error_goes_to_all_who_wait),
        cmocka_unit_test(a_lost_load_is_anothers),
        cmocka_unit_test(values_of_every_size_arrive_whole),
        cmocka_unit_test(what_exceeds_a_bound_gets_a_clear_error),
        cmocka_unit_test(further_entries_travel_with_the_page),
        cmocka_unit_test(a_load_that_asks_for_its_own_key_is_told),
        cmocka_unit_test(set_and_delete_say_who_acknowledged),
        cmocka_unit_test(patience_ends_by_itself),
        cmocka_unit_test(a_signal_reaches_a_waiting_thread),
        cmocka_unit_test(a_signal_while_a_thread_looks_is_not_slept_over),
        cmocka_unit_test(a_handler_while_a_thread_looks_delays_no_deadline),
        cmocka_unit_test(an_allocation_that_fails_hangs_nobody),
    };

    nodes_child_main(argc, argv);
    return cmocka_run_group_tests_name("nodes", tests, make_cluster, free_cluster);
}
