/* Nodes for tests (see shell_nodes.h). */
#include "tests/shell_nodes.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PORTS 16                /* of one block */
#define BLOCKS 1400
#define FIRST_PORT 10000

static char secret[65];
static char label[32];

static void make_run(void)
{
    unsigned char bytes[32];

    if (secret[0])
        return;
    if (getenv("PEERAGE_TEST_SECRET")) {
        snprintf(secret, sizeof secret, "%s", getenv("PEERAGE_TEST_SECRET"));
        snprintf(label, sizeof label, "%s", getenv("PEERAGE_TEST_LABEL"));
        return;
    }
    assert_int_equal(getentropy(bytes, sizeof bytes), 0);
    for (int i = 0; i < 32; i++)
        snprintf(secret + 2 * i, 3, "%02x", bytes[i]);
    snprintf(label, sizeof label, "test-%d", (int)getpid());
    setenv("PEERAGE_TEST_SECRET", secret, 1);
    setenv("PEERAGE_TEST_LABEL", label, 1);
}

static bool bindable(int type, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, type, 0);
    bool free = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;

    close(fd);
    return free;
}

static bool all_bindable(int base)
{
    for (int port = base; port < base + PORTS; port++) {
        if (!bindable(SOCK_DGRAM, port) || !bindable(SOCK_STREAM, port))
            return false;
    }
    return true;
}

/* A block of ports at random, below the ephemeral ones, that nobody has: other checkouts run
 * their tests at the same time. */
int nodes_base_port(void)
{
    static bool given[BLOCKS];
    unsigned block;

    do {
        assert_int_equal(getentropy(&block, sizeof block), 0);
        block %= BLOCKS;
    } while (given[block] || !all_bindable(FIRST_PORT + (int)block * PORTS));
    given[block] = true;
    return FIRST_PORT + (int)block * PORTS;
}

void nodes_options(struct peerage_options *o)
{
    make_run();
    peerage_options_default(o);
    o->enabled = 1;
    o->secret = secret;
    o->label = label;
    o->listen = o->advertise = "127.0.0.1";
    o->port = nodes_base_port();
}

peerage *nodes_new(const struct peerage_options *o)
{
    char line[PEERAGE_LINE_MAX];
    peerage *p = NULL;

    if (peerage_new(o, &p, line) < 0)
        fail_msg("%s", line);
    return p;
}

peerage *nodes_start(const struct peerage_options *o)
{
    char line[PEERAGE_LINE_MAX];
    peerage *p = nodes_new(o);

    if (peerage_start(p, line) < 0)
        fail_msg("%s", line);
    return p;
}

long long nodes_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void nodes_sleep_ms(int ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

    while (nanosleep(&t, &t) < 0)
        ;
}

static bool sees(const peerage *p, int members)
{
    struct peerage_member m[NODES_MAX];
    int found = peerage_members(p, m, NODES_MAX);

    if (found != members)
        return false;
    for (int i = 0; i < found; i++) {
        if (!m[i].owns || m[i].warming)
            return false;
    }
    return true;
}

void nodes_await(peerage **nodes, int count, int members)
{
    long long until = nodes_now_ms() + 20000;

    for (int i = 0; i < count; i++) {
        while (!sees(nodes[i], members)) {
            if (nodes_now_ms() > until)
                fail_msg("node %d does not see %d members", i, members);
            nodes_sleep_ms(10);
        }
    }
}

static void *start_one(void *argument)
{
    void **both = argument;
    char line[PEERAGE_LINE_MAX];

    return peerage_start(both[0], line) < 0 ? both : NULL;
}

void nodes_cluster(peerage **nodes, int count, const struct peerage_options *o)
{
    pthread_t threads[NODES_MAX];
    void *bad;

    for (int i = 0; i < count; i++) {
        nodes[i] = nodes_new(o);
        assert_int_equal(pthread_create(&threads[i], NULL, start_one, &nodes[i]), 0);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    nodes_await(nodes, count, count);
}

double nodes_stat(const peerage *p, const char *name)
{
    struct peerage_stat stats[256];
    int count = peerage_stats(p, stats, 256);

    assert_in_range(count, 1, 256);
    for (int i = 0; i < count; i++) {
        if (strcmp(stats[i].name, name) == 0)
            return stats[i].value;
    }
    fail_msg("no counter %s", name);
    return 0;
}

double nodes_stats_of(peerage **nodes, int count, const char *name)
{
    double sum = 0;

    for (int i = 0; i < count; i++)
        sum += nodes_stat(nodes[i], name);
    return sum;
}

void nodes_key_of(const peerage *seen_by, const char *owner_address, const char *prefix,
                  char out[64])
{
    struct peerage_member m;
    uint64_t score;

    for (int i = 0; i < 10000; i++) {
        snprintf(out, 64, "%s-%d", prefix, i);
        if (peerage_owner(seen_by, out, strlen(out), &m, &score, 1) == 1 &&
            strcmp(m.address, owner_address) == 0)
            return;
    }
    fail_msg("no key for %s", owner_address);
}

void nodes_key_owned_by(const peerage *owner, const char *prefix, char out[64])
{
    char address[56];

    peerage_address(owner, address);
    nodes_key_of(owner, address, prefix, out);
}

static struct peerage_ask question(const char *key, unsigned flags)
{
    return (struct peerage_ask){
        .key = key, .key_bytes = strlen(key), .ttl_ms = 60000, .flags = flags};
}

struct peerage_answer nodes_ask(peerage *p, const char *key, unsigned flags)
{
    struct peerage_ask ask = question(key, flags);
    struct peerage_answer answer;

    peerage_ask(p, &ask, &answer, NULL, NULL);
    return answer;
}

void nodes_finish(peerage *p, unsigned long long load_id, const char *value)
{
    struct peerage_item item = {.at = value, .bytes = strlen(value), .ttl_ms = 60000};

    assert_int_equal(peerage_finish(p, load_id, &item, 1), 0);
}

struct peerage_answer nodes_ask_or_load(peerage *p, const char *key, const char *value)
{
    struct peerage_answer answer = nodes_ask(p, key, PEERAGE_LOADS);

    if (answer.kind == PEERAGE_LOAD)
        nodes_finish(p, answer.load_id, value);
    return answer;
}

bool nodes_is(const struct peerage_answer *a, const char *value)
{
    bool same = (a->kind == PEERAGE_VALUE || a->kind == PEERAGE_FAILED) &&
                a->bytes == strlen(value) && memcmp(a->at, value, a->bytes) == 0;

    if (!same)
        print_message("answer kind %d, error %s, %zu bytes\n", a->kind,
                      peerage_error_text(a->error), a->bytes);
    peerage_blob_free(a->blob);
    return same;
}

static void *ask_in_thread(void *argument)
{
    struct asker *a = argument;
    struct peerage_ask ask = question(a->key, a->flags);
    long long began = nodes_now_ms();

    ask.timeout_ms = a->timeout_ms;
    peerage_ask(a->node, &ask, &a->answer, a->interrupted, a->argument);
    if (a->answer.kind == PEERAGE_LOAD && a->loads) {
        nodes_sleep_ms(a->load_ms);
        nodes_finish(a->node, a->answer.load_id, a->loads);
    }
    a->took_ms = nodes_now_ms() - began;
    return NULL;
}

void asker_run(struct asker *a)
{
    assert_int_equal(pthread_create(&a->thread, NULL, ask_in_thread, a), 0);
}

void asker_start(struct asker *a, peerage *p, const char *key, unsigned flags)
{
    memset(a, 0, sizeof *a);
    a->node = p;
    a->flags = flags;
    snprintf(a->key, sizeof a->key, "%s", key);
    asker_run(a);
}

void asker_join(struct asker *a)
{
    pthread_join(a->thread, NULL);
}

/* Processes to be killed. */

/* Says its address, then does as it is told, a word a line:
 *   fork     a helper process that only lives on; says "forked PID"
 *   put K    keep K in its store as if loaded; says "put"
 *   hang K   take the leave to load K, and never come back; says "loading" */
static void obey(peerage *p)
{
    char word[256];

    while (fgets(word, sizeof word, stdin)) {
        word[strcspn(word, "\n")] = 0;
        if (strcmp(word, "fork") == 0) {
            pid_t helper = fork();
            if (helper == 0) {
                /* said by the helper: fork() returns in the parent before the handlers of
                 * the child have run */
                dprintf(1, "forked %d\n", (int)getpid());
                close(0);
                close(1);
                sleep(30);
                _exit(0);
            }
        } else if (strncmp(word, "put ", 4) == 0) {
            struct peerage_ask ask = question(word + 4, PEERAGE_LOADS);
            struct peerage_item item = {.at = "from the child", .bytes = 14, .ttl_ms = 60000};
            struct peerage_answer a;
            peerage_ask(p, &ask, &a, NULL, NULL);
            if (a.kind == PEERAGE_LOAD)
                peerage_finish(p, a.load_id, &item, 1);
            printf("put\n");
        } else if (strncmp(word, "hang ", 5) == 0) {
            struct peerage_ask ask = question(word + 5, PEERAGE_LOADS);
            struct peerage_answer a;
            peerage_ask(p, &ask, &a, NULL, NULL);
            printf("loading\n");
        }
        fflush(stdout);
    }
}

void nodes_child_main(int argc, char **argv)
{
    struct peerage_options o;
    char line[PEERAGE_LINE_MAX], address[56];
    peerage *p;

    if (getenv("TEST_FILTER"))
        cmocka_set_test_filter(getenv("TEST_FILTER"));
    if (argc < 4 || strcmp(argv[1], "--node") != 0)
        return;
    make_run();
    nodes_options(&o);
    o.port = atoi(argv[2]);
    o.encryption = atoi(argv[3]);
    if (peerage_new(&o, &p, line) < 0 || peerage_start(p, line) < 0) {
        printf("%s\n", line);
        exit(1);
    }
    peerage_address(p, address);
    printf("%s\n", address);
    fflush(stdout);
    obey(p);
    peerage_free(p);
    exit(0);
}

static void read_line(int fd, char *out, size_t room)
{
    size_t at = 0;

    while (at + 1 < room && read(fd, out + at, 1) == 1 && out[at] != '\n')
        at++;
    out[at] = 0;
}

void child_start(struct child *c, int port, bool encryption)
{
    int in[2], out[2];
    char port_text[16];

    make_run();
    snprintf(port_text, sizeof port_text, "%d", port);
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execl("/proc/self/exe", "node", "--node", port_text, encryption ? "1" : "0", (char *)0);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    c->in = in[1];
    c->out = out[0];
    read_line(c->out, c->address, sizeof c->address);
    if (strncmp(c->address, "127.0.0.1:", 10) != 0)
        fail_msg("the child says: %s", c->address);
}

void child_say(struct child *c, const char *word)
{
    dprintf(c->in, "%s\n", word);
}

void child_expect(struct child *c, const char *word)
{
    char line[256];

    read_line(c->out, line, sizeof line);
    if (strncmp(line, word, strlen(word)) != 0)
        fail_msg("the child says %s, not %s", line, word);
}

void child_kill(struct child *c)
{
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    close(c->in);
    close(c->out);
}
