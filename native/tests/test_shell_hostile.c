/* What must not hurt: a killed owner, another node on a dead one's port, another secret,
 * mode or label, strangers on the socket. Real processes are killed with SIGKILL. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/shell_nodes.h"

static struct peerage_options options;

/* This process's node and one to be killed, which know each other. */
static peerage *with_child(struct child *c)
{
    nodes_options(&options);
    peerage *p = nodes_start(&options);
    child_start(c, options.port, false);
    nodes_await(&p, 1, 2);
    return p;
}

/* The owner was killed: its port refuses, and the question is answered at once. */
static void a_killed_owner_costs_its_askers_nothing(void **state)
{
    struct child c;
    struct peerage_answer a;
    char keys[8][64];

    (void)state;
    peerage *p = with_child(&c);
    for (int i = 0; i < 8; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "killed %d", i);
        nodes_key_of(p, c.address, prefix, keys[i]);
    }
    a = nodes_ask_or_load(p, keys[0], "first");    /* a pooled connection is there */
    assert_int_equal(a.kind, PEERAGE_LOAD);
    child_kill(&c);
    for (int i = 1; i < 8; i++) {
        long long began = nodes_now_ms();
        a = nodes_ask_or_load(p, keys[i], "own");
        assert_int_equal(a.kind, PEERAGE_LOAD);
        assert_true(nodes_now_ms() - began < 250);
    }
    /* membership finds out by itself */
    nodes_await(&p, 1, 1);
    peerage_free(p);
}

/* A holder of the permit that is killed: the next who waits loads. */
static void a_killed_holder_gives_its_permit_back(void **state)
{
    struct child c;
    struct asker waiter;
    char key[64], line[96];

    (void)state;
    peerage *p = with_child(&c);
    nodes_key_owned_by(p, "holder", key);
    snprintf(line, sizeof line, "hang %s", key);
    child_say(&c, line);
    child_expect(&c, "loading");
    memset(&waiter, 0, sizeof waiter);
    waiter.node = p;
    waiter.flags = PEERAGE_LOADS;
    waiter.loads = "mine";
    snprintf(waiter.key, sizeof waiter.key, "%s", key);
    asker_run(&waiter);
    nodes_sleep_ms(200);
    child_kill(&c);
    asker_join(&waiter);
    assert_int_equal(waiter.answer.kind, PEERAGE_LOAD);
    assert_in_range(waiter.took_ms, 190, 1500);
    peerage_free(p);
}

/* The owner accepted a load and is killed: its connection's end is the news. */
static void an_owner_killed_in_a_load_is_replaced(void **state)
{
    struct child c;
    struct asker waiter;
    char key[64], line[96];

    (void)state;
    peerage *p = with_child(&c);
    nodes_key_of(p, c.address, "in a load", key);
    snprintf(line, sizeof line, "hang %s", key);
    child_say(&c, line);
    child_expect(&c, "loading");
    memset(&waiter, 0, sizeof waiter);
    waiter.node = p;
    waiter.flags = PEERAGE_LOADS;
    waiter.loads = "mine";
    snprintf(waiter.key, sizeof waiter.key, "%s", key);
    asker_run(&waiter);
    nodes_sleep_ms(700);       /* beyond the budget: it waits because of the acceptance */
    child_kill(&c);
    asker_join(&waiter);
    assert_int_equal(waiter.answer.kind, PEERAGE_LOAD);
    assert_in_range(waiter.took_ms, 690, 2000);
    peerage_free(p);
}

static int connect_to(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static int listen_at(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* Whoever connects gets this challenge. */
struct challenger {
    pthread_t thread;
    int fd;
    unsigned char challenge[40];
};

static void *challenge_one(void *argument)
{
    struct challenger *c = argument;
    int fd = accept(c->fd, NULL, NULL);
    char byte;

    if (fd < 0 || write(fd, c->challenge, sizeof c->challenge) < 0)
        return NULL;
    while (read(fd, &byte, 1) > 0)
        ;
    close(fd);
    return NULL;
}

/* After a kill the replacement sits on the dead node's port: the id in its challenge says
 * so, and the asker goes on at once (W6). The challenge is this cluster's, but for the id. */
static void a_stranger_on_the_port_is_noticed_at_once(void **state)
{
    struct challenger stranger;
    struct child c;
    struct peerage_answer a;
    char key[64];

    (void)state;
    peerage *p = with_child(&c);
    nodes_key_of(p, c.address, "stranger", key);
    int port = atoi(strrchr(c.address, ':') + 1), fd = connect_to(options.port);
    assert_int_equal(recv(fd, stranger.challenge, 40, MSG_WAITALL), 40);
    close(fd);
    stranger.challenge[11] ^= 1;        /* the last byte of the id */
    child_kill(&c);
    stranger.fd = listen_at(port);
    assert_int_equal(pthread_create(&stranger.thread, NULL, challenge_one, &stranger), 0);
    long long began = nodes_now_ms();
    a = nodes_ask_or_load(p, key, "own");
    assert_int_equal(a.kind, PEERAGE_LOAD);
    assert_true(nodes_now_ms() - began < 150);
    assert_true(nodes_stat(p, "strangers") >= 1);
    pthread_join(stranger.thread, NULL);
    close(stranger.fd);
    peerage_free(p);
}

/* A node started anew on the port of one that was killed is a member at once, not only when
 * its predecessor has been declared dead. */
static void a_new_start_replaces_the_killed_one(void **state)
{
    struct child c, replacement;
    struct peerage_member before[2], after[2];
    char key[64];

    (void)state;
    peerage *p = with_child(&c);
    assert_int_equal(peerage_members(p, before, 2), 2);
    int at = before[0].self ? 1 : 0;
    child_kill(&c);
    child_start(&replacement, options.port, false);
    assert_string_equal(replacement.address, c.address);
    long long until = nodes_now_ms() + 1500;
    do {
        nodes_sleep_ms(10);
        assert_int_equal(peerage_members(p, after, 2), 2);
    } while (before[at].node_id == after[at].node_id && nodes_now_ms() < until);
    assert_true(before[at].node_id != after[at].node_id);
    nodes_await(&p, 1, 2);
    nodes_key_of(p, replacement.address, "new start", key);
    assert_int_equal(nodes_ask_or_load(p, key, "fine").kind, PEERAGE_LOAD);
    child_kill(&replacement);
    peerage_free(p);
}

static void expect_never_joined(struct peerage_options *other, const char *counter)
{
    peerage *p, *q;
    struct peerage_member m[4];

    nodes_options(&options);
    p = nodes_start(&options);
    other->port = options.port;
    q = nodes_start(other);
    nodes_sleep_ms(600);
    assert_int_equal(peerage_members(p, m, 4), 1);
    assert_int_equal(peerage_members(q, m, 4), 1);
    assert_true(nodes_stat(p, counter) + nodes_stat(q, counter) >= 1);
    peerage_free(q);
    peerage_free(p);
}

static void another_secret_label_or_mode_is_counted_and_never_joins(void **state)
{
    struct peerage_options other;

    (void)state;
    nodes_options(&other);
    other.secret = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";
    expect_never_joined(&other, "refused_tag");
    nodes_options(&other);
    other.label = "another";
    expect_never_joined(&other, "refused_label");
    nodes_options(&other);
    other.encryption = 1;
    expect_never_joined(&other, "refused_mode");
}

/* A warning names what was refused, so that a wrong secret does not look like being alone. */
static void a_refusal_is_logged_once_in_a_while(void **state)
{
    struct peerage_options other;
    struct peerage_notice notice;
    int lines = 0;

    (void)state;
    nodes_options(&options);
    nodes_options(&other);
    other.port = options.port;
    other.secret = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";
    peerage *p = nodes_start(&options), *q = nodes_start(&other);
    nodes_sleep_ms(500);
    while (peerage_attend(p, 0, &notice) == 1)
        lines += notice.kind == PEERAGE_NOTICE_LOG && strstr(notice.line, "another secret");
    assert_int_equal(lines, 1);
    assert_true(nodes_stat(p, "refused_tag") > 1);
    peerage_free(q);
    peerage_free(p);
}

/* When the other side closes, in ms; -1: not within `ms`. Reads what comes. */
static long long closed_after(int fd, int ms)
{
    long long began = nodes_now_ms();
    char bytes[4096];

    while (nodes_now_ms() - began < ms) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 50) > 0 && read(fd, bytes, sizeof bytes) <= 0)
            return nodes_now_ms() - began;
    }
    return -1;
}

static void garbage_closes_its_connection_and_silence_too(void **state)
{
    char garbage[4096];

    (void)state;
    nodes_options(&options);
    peerage *p = nodes_start(&options);
    memset(garbage, 'x', sizeof garbage);
    int loud = connect_to(options.port), silent = connect_to(options.port);
    int half = connect_to(options.port);
    assert_true(write(loud, garbage, sizeof garbage) > 0);
    assert_in_range(closed_after(loud, 1000), 0, 500);
    assert_true(write(half, "PG", 2) == 2);
    assert_in_range(closed_after(silent, 5000), 1000, 4000);
    assert_in_range(closed_after(half, 5000), 0, 4000);
    close(loud);
    close(silent);
    close(half);
    /* an HTTP client, and a flood of both kinds: the node goes on */
    for (int i = 0; i < 50; i++) {
        int fd = connect_to(options.port);
        assert_true(write(fd, "GET / HTTP/1.1\r\n\r\n", 18) == 18);
        close(fd);
    }
    assert_true(nodes_stat(p, "refused_garbage") >= 1);
    peerage *q = nodes_start(&options);
    peerage *both[] = {p, q};
    nodes_await(both, 2, 2);
    peerage_free(q);
    peerage_free(p);
}

/* Connections that have proven nothing are few, in all and per address; the oldest made room. */
static void unproven_connections_are_bounded(void **state)
{
    int fds[200], open = 0;

    (void)state;
    nodes_options(&options);
    peerage *p = nodes_start(&options);
    for (int i = 0; i < 200; i++)
        fds[i] = connect_to(options.port);
    nodes_sleep_ms(200);
    for (int i = 0; i < 200; i++) {
        char challenge[64];
        errno = 0;
        while (recv(fds[i], challenge, sizeof challenge, MSG_DONTWAIT) > 0)
            ;
        open += errno == EAGAIN || errno == EWOULDBLOCK;
    }
    assert_in_range(open, 1, 64);
    assert_true(nodes_stat(p, "connections_in") <= 64);
    assert_true(nodes_stat(p, "connections_refused_full") >= 100);
    for (int i = 0; i < 200; i++)
        close(fds[i]);
    peerage_free(p);
}

static void outside_the_blocks_nothing_is_read(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    char byte;

    (void)state;
    nodes_options(&options);
    options.listen = "0.0.0.0";
    options.allow_cidr = "10.0.0.0/8";
    peerage *p = nodes_start(&options);
    /* this host's own addresses pass always; 127.0.0.9 is none of an interface's */
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 8);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((uint16_t)options.port);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_true(recv(fd, &byte, 1, 0) <= 0);       /* not even a challenge */
    assert_true(nodes_stat(p, "connections_refused_cidr") == 1);
    close(fd);
    fd = connect_to(options.port);
    assert_true(recv(fd, &byte, 1, 0) == 1);
    close(fd);
    peerage_free(p);
}

static void encrypted_nodes_do_the_same(void **state)
{
    struct peerage_answer a;
    peerage *nodes[2];
    char key[64], *big = malloc(300000);

    (void)state;
    nodes_options(&options);
    options.encryption = 1;
    nodes_cluster(nodes, 2, &options);
    memset(big, 'e', 299999);
    big[299999] = 0;
    nodes_key_owned_by(nodes[1], "sealed", key);
    assert_int_equal(nodes_ask_or_load(nodes[0], key, big).kind, PEERAGE_LOAD);
    nodes_sleep_ms(100);
    a = nodes_ask(nodes[1], key, 0);
    assert_true(nodes_is(&a, big));
    nodes_key_owned_by(nodes[1], "sealed too", key);
    assert_int_equal(nodes_ask_or_load(nodes[1], key, "small").kind, PEERAGE_LOAD);
    a = nodes_ask(nodes[0], key, 0);
    assert_true(nodes_is(&a, "small"));
    free(big);
    peerage_free(nodes[0]);
    peerage_free(nodes[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_owner_costs_its_askers_nothing),
        cmocka_unit_test(a_killed_holder_gives_its_permit_back),
        cmocka_unit_test(an_owner_killed_in_a_load_is_replaced),
        cmocka_unit_test(a_stranger_on_the_port_is_noticed_at_once),
        cmocka_unit_test(a_new_start_replaces_the_killed_one),
        cmocka_unit_test(another_secret_label_or_mode_is_counted_and_never_joins),
        cmocka_unit_test(a_refusal_is_logged_once_in_a_while),
        cmocka_unit_test(garbage_closes_its_connection_and_silence_too),
        cmocka_unit_test(unproven_connections_are_bounded),
        cmocka_unit_test(outside_the_blocks_nothing_is_read),
        cmocka_unit_test(encrypted_nodes_do_the_same),
    };

    signal(SIGPIPE, SIG_IGN);
    nodes_child_main(argc, argv);
    return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
