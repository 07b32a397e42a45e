/* Nodes and a real redis-server, many threads at once: what the Python tests show, here so
 * that the sanitizers see it too. Skipped where there is no redis-server. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/shell_nodes.h"

#define UP 2

static pid_t server;
static char url[64];

static bool start_server(void)
{
    static char port[16];

    if (!port[0])
        snprintf(port, sizeof port, "%d", nodes_base_port() + 15);
    snprintf(url, sizeof url, "redis://127.0.0.1:%s/0", port);
    server = fork();
    if (server == 0) {
        /* and nothing of it keeps a pipe of ours open if a test fails */
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(126);
        execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
               "--dir", "/tmp", (char *)NULL);
        _exit(127);
    }
    nodes_sleep_ms(300);
    int status;
    return waitpid(server, &status, WNOHANG) == 0;
}

static void kill_server(void)
{
    if (server <= 0)
        return;
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    server = 0;
}

static peerage *new_node(void)
{
    struct peerage_options o;

    nodes_options(&o);
    o.enabled = 0;
    o.redis_url = url;
    return nodes_start(&o);
}

static void await_stat(peerage *p, const char *name, double least)
{
    long long until_ms = nodes_now_ms() + 15000;

    while (nodes_stat(p, name) < least && nodes_now_ms() < until_ms)
        nodes_sleep_ms(10);
    assert_true(nodes_stat(p, name) >= least);
}

static void await_state(peerage *p, int state)
{
    long long until_ms = nodes_now_ms() + 15000;

    while ((int)nodes_stat(p, "redis_state") != state && nodes_now_ms() < until_ms)
        nodes_sleep_ms(10);
    assert_int_equal(nodes_stat(p, "redis_state"), state);
}

/* Two nodes, eight threads, one key: one of them loads. */
static void test_one_load(void **state)
{
    struct asker askers[8];
    peerage *nodes[2];
    int loads = 0;

    (void)state;
    if (!start_server())
        skip();
    for (int i = 0; i < 2; i++) {
        nodes[i] = new_node();
        await_state(nodes[i], UP);
    }
    memset(askers, 0, sizeof askers);
    for (int i = 0; i < 8; i++) {
        askers[i].node = nodes[i % 2];
        snprintf(askers[i].key, sizeof askers[i].key, "raced");
        askers[i].flags = PEERAGE_LOADS;
        askers[i].loads = "made once";
        askers[i].load_ms = 100;
        asker_run(&askers[i]);
    }
    for (int i = 0; i < 8; i++) {
        asker_join(&askers[i]);
        loads += askers[i].answer.kind == PEERAGE_LOAD;
        if (askers[i].answer.kind != PEERAGE_LOAD)
            assert_true(nodes_is(&askers[i].answer, "made once"));
    }
    assert_int_equal(loads, 1);
    assert_int_equal(nodes_stats_of(nodes, 2, "redis_leases"), 1);
    for (int i = 0; i < 2; i++)
        peerage_free(nodes[i]);
    kill_server();
}

/* The server goes and comes back while threads ask: every one has its answer. */
static void test_outages(void **state)
{
    struct asker askers[4];
    char name[32];

    (void)state;
    if (!start_server())
        skip();
    peerage *p = new_node();
    await_state(p, UP);
    for (int round = 0; round < 12; round++) {
        memset(askers, 0, sizeof askers);
        snprintf(name, sizeof name, "key%d", round);
        for (int i = 0; i < 4; i++) {
            askers[i].node = p;
            snprintf(askers[i].key, sizeof askers[i].key, "%s", name);
            askers[i].flags = PEERAGE_LOADS;
            askers[i].loads = "value";
            askers[i].load_ms = 10;
            asker_run(&askers[i]);
        }
        if (round % 4 == 0)
            kill_server();
        if (round % 4 == 2)
            assert_true(start_server());
        for (int i = 0; i < 4; i++) {
            asker_join(&askers[i]);
            assert_true(askers[i].answer.kind == PEERAGE_LOAD ||
                        nodes_is(&askers[i].answer, "value"));
        }
    }
    await_state(p, UP);
    peerage_free(p);
    kill_server();
}

/* Closed while its threads wait for somebody else's lease. */
static void test_close_while_waiting(void **state)
{
    struct asker holder, waiter;

    (void)state;
    if (!start_server())
        skip();
    peerage *first = new_node(), *second = new_node();
    await_state(first, UP);
    await_state(second, UP);
    memset(&holder, 0, sizeof holder);
    holder.node = first;
    snprintf(holder.key, sizeof holder.key, "held");
    holder.flags = PEERAGE_LOADS;
    holder.loads = "late";
    holder.load_ms = 1500;
    waiter = holder;
    waiter.node = second;
    asker_run(&holder);
    await_stat(first, "redis_leases", 1);
    asker_run(&waiter);
    await_stat(second, "redis_waits", 1);
    peerage_close(second, 0);
    asker_join(&waiter);
    /* the leave to load, where Redis was let go before its thread was sent home */
    if (waiter.answer.kind != PEERAGE_LOAD) {
        assert_int_equal(waiter.answer.kind, PEERAGE_TROUBLE);
        assert_int_equal(waiter.answer.error, PEERAGE_E_CLOSED);
    }
    asker_join(&holder);
    peerage_free(second);
    peerage_free(first);
    kill_server();
}

/* Nobody there at all: an explicit start of a peer node says so, names no password, and the
 * same node starts when there is one. */
static void test_start_without(void **state)
{
    char line[PEERAGE_LINE_MAX], with_password[96];
    struct peerage_options o;

    (void)state;
    nodes_options(&o);
    snprintf(with_password, sizeof with_password, "redis://u:hidden@127.0.0.1:%d/0",
             nodes_base_port() + 15);
    o.redis_url = with_password;
    peerage *p = nodes_new(&o);
    assert_int_equal(peerage_start(p, line), PEERAGE_E_UNREACHABLE);
    assert_non_null(strstr(line, "REDIS_URL"));
    assert_non_null(strstr(line, "127.0.0.1"));
    assert_null(strstr(line, "hidden"));
    assert_int_equal(peerage_state(p), PEERAGE_NEW);
    assert_int_equal(peerage_start_quietly(p, line), 0);
    assert_int_equal(nodes_stat(p, "members"), 1);
    peerage_free(p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_load),
        cmocka_unit_test(test_outages),
        cmocka_unit_test(test_close_while_waiting),
        cmocka_unit_test(test_start_without),
    };

    nodes_child_main(argc, argv);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kill_server();
    return failed;
}
