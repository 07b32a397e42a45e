/* A node's life: settings, start, the port it finds, what it says, close, fork. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/shell_nodes.h"

/* Settings. */

static void expect_line(struct peerage_options *o, const char *name, const char *got,
                        const char *takes)
{
    char line[PEERAGE_LINE_MAX];
    peerage *p = NULL;

    assert_int_equal(peerage_new(o, &p, line), PEERAGE_E_SETTING);
    assert_null(p);
    if (strncmp(line, name, strlen(name)) != 0 || !strstr(line, got) || !strstr(line, takes))
        fail_msg("the line reads: %s", line);
    assert_null(strchr(line, '\n'));
    if (o->secret && strlen(o->secret) > 8)
        assert_null(strstr(line, o->secret));
}

static void a_wrong_setting_is_one_line(void **state)
{
    static const char short_secret[] =
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeef";
    struct {
        const char *peers, *line_has;
    } wrong_peers[] = {
        {"10.0.0.1:70000", "10.0.0.1:70000"}, {"host_:x", "host_:x"}, {"-a.b", "-a.b"},
        {"10.0.0", "10.0.0"},                 {"a..b", "a..b"},       {"[::1", "[::1"},
        {"a b", "a b"},                       {"10.0.0.1:0", "10.0.0.1:0"},
    };
    struct peerage_options o, right;

    (void)state;
    nodes_options(&right);
    o = right;
    o.secret = NULL;
    expect_line(&o, "PEER_SECRET", "nothing", "64 hex");
    o.secret = short_secret;
    expect_line(&o, "PEER_SECRET", "63 characters", "64 hex");
    o = right;
    o.port = 70000;
    expect_line(&o, "PEER_PORT:", "70000", "1 to 65535");
    o = right;
    o.port = 65530;
    expect_line(&o, "PEER_PORT_RANGE", "16", "65535");
    for (size_t i = 0; i < sizeof wrong_peers / sizeof wrong_peers[0]; i++) {
        o = right;
        o.peers = wrong_peers[i].peers;
        expect_line(&o, "PEERS", wrong_peers[i].line_has, "host:port");
    }
    o = right;
    o.allow_cidr = "10.0.0.0/8,10.0.0.1/8";
    expect_line(&o, "PEER_ALLOW_CIDR", "10.0.0.1/8", "host bits");
    o = right;
    o.timeout_s = 0;
    expect_line(&o, "PEER_TIMEOUT", "0", "seconds");
    o.timeout_s = -1;
    expect_line(&o, "PEER_TIMEOUT", "-1", "seconds");
    o = right;
    o.listen = "nowhere";
    expect_line(&o, "PEER_LISTEN", "nowhere", "0.0.0.0");
    o = right;
    o.cache_bytes = 10;
    expect_line(&o, "PEER_CACHE_BYTES", "10", "bytes from");
}

static void right_ones_are_taken(void **state)
{
    static const char *const peers[] = {
        "10.0.0.1", "10.0.0.1:7946", "[fd00::1]:7946", "::1", "peers.internal:7946",
        "a-b.example, 10.0.0.2 ,,",
    };
    struct peerage_options o;

    (void)state;
    for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++) {
        nodes_options(&o);
        o.peers = peers[i];
        peerage_free(nodes_new(&o));
    }
}

/* An advertised address outside the allowed blocks names both variables (M10). */
static void an_address_outside_the_blocks_stops_the_start(void **state)
{
    struct peerage_options o;
    char line[PEERAGE_LINE_MAX];

    (void)state;
    nodes_options(&o);
    o.advertise = "8.8.8.8";
    peerage *p = nodes_new(&o);
    assert_int_equal(peerage_start(p, line), PEERAGE_E_SETTING);
    assert_non_null(strstr(line, "PEER_ADVERTISE_ADDR"));
    assert_non_null(strstr(line, "PEER_ALLOW_CIDR"));
    assert_non_null(strstr(line, "8.8.8.8"));
    peerage_free(p);
}

/* Off. */

static int threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int count = 0;

    assert_non_null(d);
    while (readdir(d))
        count++;
    closedir(d);
    return count - 2;
}

/* The layer off: no thread, no socket, and still one load for all who ask at once. */
static void off_it_coalesces_within_the_process(void **state)
{
    struct asker askers[8];
    struct peerage_options o;
    char line[PEERAGE_LINE_MAX];
    int loads = 0, before = threads();

    (void)state;
    nodes_options(&o);
    o.enabled = 0;
    o.secret = NULL;
    peerage *p = nodes_new(&o);
    assert_int_equal(peerage_start(p, line), 0);
    assert_int_equal(threads(), before);
    assert_int_equal(peerage_members(p, NULL, 0), 0);
    for (int i = 0; i < 8; i++) {
        memset(&askers[i], 0, sizeof askers[i]);
        askers[i].node = p;
        askers[i].flags = PEERAGE_LOADS;
        askers[i].loads = "alone";
        askers[i].load_ms = 100;
        snprintf(askers[i].key, sizeof askers[i].key, "off");
        asker_run(&askers[i]);
    }
    for (int i = 0; i < 8; i++) {
        asker_join(&askers[i]);
        if (askers[i].answer.kind == PEERAGE_LOAD)
            loads++;
        else
            assert_true(nodes_is(&askers[i].answer, "alone"));
    }
    assert_int_equal(loads, 1);
    struct peerage_answer a;
    assert_int_equal(peerage_get(p, "off", 3, &a), 1);
    assert_true(nodes_is(&a, "alone"));

    /* a holder that never comes back holds nobody for longer than the load's time */
    struct peerage_ask ask = {.key = "hung", .key_bytes = 4, .ttl_ms = 1000,
                              .load_timeout_ms = 300, .flags = PEERAGE_LOADS};
    peerage_ask(p, &ask, &a, NULL, NULL);
    assert_int_equal(a.kind, PEERAGE_LOAD);
    long long began = nodes_now_ms();
    peerage_ask(p, &ask, &a, NULL, NULL);
    assert_int_equal(a.kind, PEERAGE_LOAD);
    assert_in_range(nodes_now_ms() - began, 250, 1500);
    peerage_free(p);
}

/* A hit without the lock, beside a thread that sets. */

#define SETS 3000

struct setter {
    peerage *p;
    atomic_int set;         /* the value that stands there now, or an older one */
};

static void *set_all(void *argument)
{
    struct setter *s = argument;
    struct peerage_ask name = {.key = "k", .key_bytes = 1};

    for (int n = 1; n <= SETS; n++) {
        struct peerage_item item = {.key = "k", .key_bytes = 1, .at = &n, .bytes = sizeof n,
                                    .value_type = PEERAGE_BYTES, .ttl_ms = 60000};
        if (peerage_change(s->p, &name, &item, 0, NULL) < 0)
            break;
        atomic_store(&s->set, n);
        if (n % 50 == 0)
            nodes_sleep_ms(1);      /* a while without a change */
    }
    return NULL;
}

static void a_hit_again_never_gives_what_was_replaced_before_it(void **state)
{
    struct peerage_options o;
    struct peerage_answer a;
    struct setter s = {.set = 0};
    uint64_t generation = 0, until_ms = 0;
    int found = 0, again = 0;
    pthread_t thread;
    char line[PEERAGE_LINE_MAX];

    (void)state;
    nodes_options(&o);
    o.enabled = 0;
    o.secret = NULL;
    s.p = nodes_new(&o);
    assert_int_equal(peerage_start(s.p, line), 0);
    assert_int_equal(pthread_create(&thread, NULL, set_all, &s), 0);
    while (found < SETS) {
        int before = atomic_load(&s.set);
        if (until_ms && peerage_hit_again(s.p, generation, until_ms)) {
            assert_true(found >= before);
            again++;
        } else if (peerage_get_borrowed(s.p, "k", 1, &a) == 1) {
            memcpy(&found, a.at, sizeof found);
            assert_true(found >= before);
            generation = a.generation;
            until_ms = a.until_ms;
            peerage_blob_free(a.blob);
        }
    }
    pthread_join(thread, NULL);
    assert_true(peerage_hit_again(s.p, generation, until_ms));
    assert_false(peerage_hit_again(s.p, generation, 1));        /* its time is over */
    assert_true(again > 0);
    peerage_free(s.p);
}

/* What it says, and its port. */

static bool hears(peerage *p, int kind, const char *text, int ms)
{
    struct peerage_notice notice;
    long long until = nodes_now_ms() + ms;

    while (nodes_now_ms() < until) {
        if (peerage_attend(p, 50, &notice) == 1 && notice.kind == kind &&
            strstr(notice.line, text))
            return true;
    }
    return false;
}

static void it_says_who_it_is_and_who_its_peers_are(void **state)
{
    struct peerage_options o;
    char first[56], line[128];
    struct peerage_notice notice;

    (void)state;
    nodes_options(&o);
    peerage *a = nodes_start(&o);
    peerage_address(a, first);
    snprintf(line, sizeof line, "127.0.0.1:%d", o.port);
    assert_string_equal(first, line);
    snprintf(line, sizeof line, "Peer layer on: this node is 127.0.0.1:%d", o.port);
    assert_true(hears(a, PEERAGE_NOTICE_LOG, line, 1000));
    peerage *b = nodes_start(&o);
    snprintf(line, sizeof line, "Peers: 127.0.0.1:%d", o.port + 1);
    assert_true(hears(a, PEERAGE_NOTICE_MEMBERS, line, 5000));
    peerage_close(b, 0);
    assert_true(hears(a, PEERAGE_NOTICE_MEMBERS, "Peers: none", 3000));
    peerage_free(b);
    peerage_close(a, 0);
    while (peerage_attend(a, 0, &notice) == 1)
        ;
    assert_int_equal(peerage_attend(a, 1000, &notice), PEERAGE_E_CLOSED);
    peerage_free(a);
}

static int hold_port(int type, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, type, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    if (type == SOCK_STREAM)
        assert_int_equal(listen(fd, 1), 0);
    return fd;
}

/* The first port free for both UDP and TCP (M7). */
static void it_takes_the_first_port_free_for_both(void **state)
{
    struct peerage_options o;
    char address[56], expected[56];

    (void)state;
    nodes_options(&o);
    int udp = hold_port(SOCK_DGRAM, o.port), tcp = hold_port(SOCK_STREAM, o.port + 1);
    peerage *p = nodes_start(&o);
    peerage_address(p, address);
    snprintf(expected, sizeof expected, "127.0.0.1:%d", o.port + 2);
    assert_string_equal(address, expected);
    peerage_free(p);
    close(udp);
    close(tcp);
}

/* No port free: it joins as an observer, asks owners, owns nothing; once a port is free it
 * is a member like any other (M7). */
static void without_a_port_it_observes_until_one_is_free(void **state)
{
    struct peerage_options o;
    struct peerage_member m[4];
    struct peerage_answer a;
    char key[64];

    (void)state;
    nodes_options(&o);
    o.port_range = 1;
    peerage *owner = nodes_start(&o);
    nodes_await(&owner, 1, 1);
    char list[56];
    peerage_address(owner, list);
    struct peerage_options late = o;
    late.port_range = 2;
    int held = hold_port(SOCK_DGRAM, o.port + 1);
    peerage *observer = nodes_start(&late);
    assert_true(hears(observer, PEERAGE_NOTICE_LOG, "is free", 1000));
    long long until = nodes_now_ms() + 5000;
    while (peerage_members(observer, m, 4) < 2 && nodes_now_ms() < until)
        nodes_sleep_ms(20);
    assert_int_equal(peerage_members(observer, m, 4), 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(m[i].owns, !m[i].self);
    nodes_key_of(observer, list, "observed", key);
    nodes_ask_or_load(owner, key, "seen");
    a = nodes_ask(observer, key, 0);
    assert_int_equal(a.tier, PEERAGE_TIER_OWNER);
    assert_true(nodes_is(&a, "seen"));
    close(held);
    peerage *both[] = {owner, observer};
    nodes_await(both, 2, 2);
    peerage_free(observer);
    peerage_free(owner);
}

/* Close. */

static void close_wakes_everybody_who_waits(void **state)
{
    struct peerage_options o;
    struct asker askers[3];
    struct peerage_answer a;
    char own[64], far[64];
    peerage *nodes[2];

    (void)state;
    nodes_options(&o);
    nodes_cluster(nodes, 2, &o);
    nodes_key_owned_by(nodes[0], "close own", own);
    nodes_key_owned_by(nodes[1], "close far", far);
    nodes_ask_or_load(nodes[0], "kept", "kept");
    a = nodes_ask(nodes[0], own, PEERAGE_LOADS);
    assert_int_equal(a.kind, PEERAGE_LOAD);
    uint64_t load_id = a.load_id;
    assert_int_equal(nodes_ask(nodes[1], far, PEERAGE_LOADS).kind, PEERAGE_LOAD);
    asker_start(&askers[0], nodes[0], own, PEERAGE_LOADS);      /* waits in a flight */
    asker_start(&askers[1], nodes[0], far, PEERAGE_LOADS);      /* drives a query */
    nodes_sleep_ms(150);
    long long began = nodes_now_ms();
    peerage_close(nodes[0], 0);
    for (int i = 0; i < 2; i++) {
        asker_join(&askers[i]);
        assert_int_equal(askers[i].answer.kind, PEERAGE_TROUBLE);
        assert_int_equal(askers[i].answer.error, PEERAGE_E_CLOSED);
    }
    assert_true(nodes_now_ms() - began < 1000);
    assert_int_equal(peerage_state(nodes[0]), PEERAGE_CLOSED);
    /* what comes too late is fine, hits go on, and questions are told */
    nodes_finish(nodes[0], load_id, "late");
    assert_int_equal(peerage_get(nodes[0], "kept", 4, &a), 1);
    assert_true(nodes_is(&a, "kept"));
    a = nodes_ask(nodes[0], "new", PEERAGE_LOADS);
    assert_int_equal(a.error, PEERAGE_E_CLOSED);
    struct peerage_load load;
    assert_int_equal(peerage_take(nodes[0], 1000, &load), PEERAGE_E_CLOSED);
    peerage_close(nodes[0], 1000);
    /* the other one sees it leave at once */
    struct peerage_member m[2];
    long long until = nodes_now_ms() + 2000;
    while (peerage_members(nodes[1], m, 2) != 1 && nodes_now_ms() < until)
        nodes_sleep_ms(10);
    assert_int_equal(peerage_members(nodes[1], m, 2), 1);
    peerage_free(nodes[0]);
    peerage_free(nodes[1]);
}

static void *close_slowly(void *p)
{
    peerage_close(p, 3000);
    return NULL;
}

/* Draining: the node's own flights land before it goes (O8). */
static void a_drain_lets_flights_land(void **state)
{
    struct peerage_options o;
    peerage *nodes[2];
    struct peerage_answer a;
    pthread_t closer;
    char key[64];

    (void)state;
    nodes_options(&o);
    nodes_cluster(nodes, 2, &o);
    nodes_key_owned_by(nodes[0], "drain", key);
    a = nodes_ask(nodes[0], key, PEERAGE_LOADS);
    assert_int_equal(a.kind, PEERAGE_LOAD);
    long long began = nodes_now_ms();
    pthread_create(&closer, NULL, close_slowly, nodes[0]);
    nodes_sleep_ms(300);
    assert_int_equal(peerage_state(nodes[0]), PEERAGE_DRAINING);
    struct peerage_member m;
    uint64_t score;
    assert_int_equal(peerage_owner(nodes[1], key, strlen(key), &m, &score, 1), 1);
    assert_true(m.self);
    nodes_finish(nodes[0], a.load_id, "landed");
    pthread_join(closer, NULL);
    assert_in_range(nodes_now_ms() - began, 290, 2000);
    peerage_free(nodes[0]);
    peerage_free(nodes[1]);
}

static void starting_and_stopping_many_times_leaks_nothing(void **state)
{
    struct peerage_options o;
    int before = 0, fds = 0;

    (void)state;
    nodes_options(&o);
    for (int i = 0; i < 3; i++) {
        peerage *p = nodes_start(&o);
        char line[PEERAGE_LINE_MAX];
        assert_int_equal(peerage_start(p, line), 0);
        peerage_free(p);
        DIR *d = opendir("/proc/self/fd");
        fds = 0;
        while (readdir(d))
            fds++;
        closedir(d);
        if (i == 0)
            before = fds;
    }
    assert_int_equal(fds, before);
    peerage_free(NULL);
    peerage *never = nodes_new(&o);
    peerage_close(never, 100);
    char line[PEERAGE_LINE_MAX];
    assert_int_equal(peerage_start(never, line), PEERAGE_E_CLOSED);
    peerage_free(never);
}

/* Fork. */

static int sockets_open(void)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;

    while ((entry = readdir(d))) {
        char path[300], to[128];
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t n = readlink(path, to, sizeof to - 1);
        to[n > 0 ? n : 0] = 0;
        count += strncmp(to, "socket:", 7) == 0 || strncmp(to, "anon_inode:", 11) == 0;
    }
    closedir(d);
    return count;
}

/* In the child: 0 when all is as it should be, else which line is not. */
static int child_is_right(peerage *inherited, peerage_port *port, const struct peerage_options *o,
                          int sockets_before)
{
    struct peerage_answer a;
    struct peerage_member m[4];
    char line[PEERAGE_LINE_MAX];
    peerage *own;

    if (sockets_open() != sockets_before)
        return __LINE__;
    if (peerage_get(inherited, "k", 1, &a) != PEERAGE_E_FORKED)
        return __LINE__;
    a = nodes_ask(inherited, "k", PEERAGE_LOADS);
    if (a.error != PEERAGE_E_FORKED)
        return __LINE__;
    peerage_port_run(port);
    peerage_port_gone(port, NULL, NULL);
    peerage_close(inherited, 1000);
    peerage_forget(inherited);
#ifdef __SANITIZE_THREAD__
    return 0;           /* TSan ends a child of threads that starts a thread */
#endif
    if (peerage_new(o, &own, line) < 0 || peerage_start(own, line) < 0)
        return __LINE__;
    for (int i = 0; i < 500 && peerage_members(own, m, 4) < 2; i++)
        nodes_sleep_ms(10);
    if (peerage_members(own, m, 4) != 2)
        return __LINE__;
    peerage_free(own);
    return 0;
}

static void a_forked_child_is_a_node_of_its_own(void **state)
{
    struct peerage_options o;
    struct peerage_answer a;
    peerage_port *port;
    int status, sockets_before = sockets_open();

    (void)state;
    nodes_options(&o);
    peerage *p = nodes_start(&o);
    nodes_await(&p, 1, 1);
    assert_int_equal(peerage_port_new(p, &port), 0);
    nodes_ask_or_load(p, "k", "v");
    unsigned before = peerage_fork_count;
    pid_t child = fork();
    if (child == 0)
        _exit(child_is_right(p, port, &o, sockets_before) % 256);
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(peerage_fork_count, before);
    /* the parent hears and answers on: the child has not touched its epoll sets */
    assert_int_equal(peerage_get(p, "k", 1, &a), 1);
    assert_true(nodes_is(&a, "v"));
    peerage *other = nodes_start(&o);
    peerage *both[] = {p, other};
    nodes_await(both, 2, 2);
    char key[64];
    nodes_key_owned_by(p, "after fork", key);
    nodes_ask_or_load(p, key, "still here");
    a = nodes_ask(other, key, 0);
    assert_true(nodes_is(&a, "still here"));
    peerage_port_gone(port, NULL, NULL);
    peerage_free(other);
    peerage_free(p);
}

/* A helper that its application forked keeps no port open for a node that was killed. */
static void a_killed_node_refuses_although_its_helper_lives(void **state)
{
    struct child c;
    struct sockaddr_in at = {.sin_family = AF_INET};
    int port = nodes_base_port(), helper;
    char line[64];

    (void)state;
    child_start(&c, port, false);
    child_say(&c, "fork");
    ssize_t n = read(c.out, line, sizeof line - 1);
    assert_true(n > 0);
    line[n] = 0;
    assert_int_equal(sscanf(line, "forked %d", &helper), 1);
    child_kill(&c);
    assert_int_equal(kill(helper, 0), 0);
    at.sin_port = htons((uint16_t)port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(fd);
    kill(helper, SIGKILL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_setting_is_one_line),
        cmocka_unit_test(right_ones_are_taken),
        cmocka_unit_test(an_address_outside_the_blocks_stops_the_start),
        cmocka_unit_test(off_it_coalesces_within_the_process),
        cmocka_unit_test(a_hit_again_never_gives_what_was_replaced_before_it),
        cmocka_unit_test(it_says_who_it_is_and_who_its_peers_are),
        cmocka_unit_test(it_takes_the_first_port_free_for_both),
        cmocka_unit_test(without_a_port_it_observes_until_one_is_free),
        cmocka_unit_test(close_wakes_everybody_who_waits),
        cmocka_unit_test(a_drain_lets_flights_land),
        cmocka_unit_test(starting_and_stopping_many_times_leaks_nothing),
        cmocka_unit_test(a_forked_child_is_a_node_of_its_own),
        cmocka_unit_test(a_killed_node_refuses_although_its_helper_lives),
    };

    nodes_child_main(argc, argv);
    return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
