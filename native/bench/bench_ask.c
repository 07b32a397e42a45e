/* The price of an answer: a local hit, and an owner's hit asked by a blocked thread and by an
 * event loop's port, at 1 KB and 56 KB, authenticated and encrypted. The owner is a
 * process of its own, so the floor to compare with is a round trip over a Unix socket.
 *
 *     make bench                          all of it
 *     build/bench/bench_ask floor         a bare ping-pong of the same bytes, hashed once
 *     build/bench/bench_ask 1000 0 sync   one row: bytes, encrypted, and
 *                                         sync | asleep | async | pipelined | local
 *
 * "asleep" is sync that sleeps at once (spin_us 0). The floor is shown both ways too.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "core/message.h"
#include "peerage.h"
#include "shell/clock.h"
#include "shell/shell.h"
#include "shell/sockets.h"
#include "shell/stream.h"

#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define KEYS 256
#define WARM 2000

static double now_us(void)
{
    return (double)now_ns() / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_row(const char *name, double *us, int count)
{
    qsort(us, (size_t)count, sizeof *us, compare);
    printf("%-34s median %7.1f us   p99 %7.1f us\n", name, us[count / 2], us[count * 99 / 100]);
}

static peerage *node(int port, bool encrypted, uint64_t cache_bytes, bool asleep)
{
    struct peerage_options o;
    char line[PEERAGE_LINE_MAX];
    peerage *p;

    peerage_options_default(&o);
    o.enabled = 1;
    o.secret = SECRET;
    o.label = "bench";
    o.listen = o.advertise = "127.0.0.1";
    o.port = port;
    o.encryption = encrypted;
    o.heir = 0;
    o.cache_bytes = cache_bytes;
    if (asleep)
        o.spin_us = 0;
    if (peerage_new(&o, &p, line) < 0 || peerage_start(p, line) < 0) {
        fprintf(stderr, "%s\n", line);
        exit(1);
    }
    return p;
}

static void await_two(peerage *p)
{
    struct peerage_member m[2];

    while (peerage_members(p, m, 2) != 2 || !m[0].owns || !m[1].owns || m[0].warming ||
           m[1].warming)
        usleep(10000);
}

/* Keys that the owner owns, the same list in both processes. */
static void find_keys(peerage *p, bool self, char keys[KEYS][16])
{
    struct peerage_member m;
    uint64_t score;
    int found = 0;

    for (int i = 0; found < KEYS; i++) {
        snprintf(keys[found], 16, "k%d", i);
        peerage_owner(p, keys[found], strlen(keys[found]), &m, &score, 1);
        found += !!m.self == self;
    }
}

static void own(int port, size_t bytes, bool encrypted)
{
    static char keys[KEYS][16];
    peerage *p = node(port, encrypted, 256u << 20, false);
    char *value = malloc(bytes);

    await_two(p);
    find_keys(p, true, keys);
    memset(value, 'v', bytes);
    for (int i = 0; i < KEYS; i++) {
        struct peerage_ask ask = {.key = keys[i], .key_bytes = strlen(keys[i]),
                                  .ttl_ms = 600000, .flags = PEERAGE_LOADS};
        struct peerage_item item = {.at = value, .bytes = bytes, .ttl_ms = 600000};
        struct peerage_answer a;
        peerage_ask(p, &ask, &a, NULL, NULL);
        if (a.kind == PEERAGE_LOAD)
            peerage_finish(p, a.load_id, &item, 1);
    }
    if (write(1, "r", 1) != 1)
        exit(1);
    for (char byte; read(0, &byte, 1) == 1;) {
        struct rusage used;
        getrusage(RUSAGE_SELF, &used);
        double us = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
                    (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
        if (write(1, &us, sizeof us) != sizeof us)
            exit(1);
    }
    peerage_free(p);
    exit(0);
}

struct owner {
    pid_t pid;
    int in, out;
};

static struct owner start_owner(int port, size_t bytes, bool encrypted)
{
    struct owner o;
    int in[2], out[2];
    char texts[3][32];

    if (pipe(in) < 0 || pipe(out) < 0)
        exit(1);
    o.pid = fork();
    if (o.pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        snprintf(texts[0], 32, "%d", port);
        snprintf(texts[1], 32, "%zu", bytes);
        snprintf(texts[2], 32, "%d", encrypted);
        execl("/proc/self/exe", "bench_ask", "--own", texts[0], texts[1], texts[2], (char *)0);
        _exit(1);
    }
    close(in[0]);
    close(out[1]);
    o.in = in[1];
    o.out = out[0];
    return o;
}

static int ask_sync(peerage *p, const char *key)
{
    struct peerage_ask ask = {.key = key, .key_bytes = strlen(key), .ttl_ms = 600000};
    struct peerage_answer a;

    peerage_ask(p, &ask, &a, NULL, NULL);
    peerage_blob_free(a.blob);
    return a.kind == PEERAGE_VALUE && a.tier != PEERAGE_TIER_LOCAL;
}

static int ask_async(peerage *p, peerage_port *port, const char *key)
{
    struct peerage_ask ask = {.key = key, .key_bytes = strlen(key), .ttl_ms = 600000};
    struct peerage_answer a;
    struct peerage_event event;

    (void)p;
    peerage_port_ask(port, &ask, &ask, &a);
    if (a.kind != PEERAGE_PENDING)
        return 0;
    while (!peerage_port_next(port, &event)) {
        struct pollfd fd = {.fd = peerage_port_fd(port), .events = POLLIN};
        poll(&fd, 1, -1);
        peerage_port_run(port);
    }
    peerage_blob_free(event.answer->blob);
    return event.answer->kind == PEERAGE_VALUE;
}

#define CONNECTIONS 50
#define DEEP 16

static struct stream *connect_proven(const struct addr *to, const struct seal *seal,
                                     uint64_t self_id)
{
    struct stream *c = stream_new(sockets_connect_unix(to), to, seal, self_id, false);
    struct message m, hello = {.kind = MESSAGE_HELLO, .request_id = 1};
    struct blob *value;

    for (;;) {
        struct pollfd fd = {.fd = c->fd, .events = POLLIN};
        poll(&fd, 1, -1);
        if (stream_fill(c) < 0)
            exit(1);
        enum stream_next next;
        while ((next = stream_next(c, clock_wall_ms(), &m, &value)) != STREAM_MORE) {
            if (next == STREAM_CHALLENGED && stream_queue(c, &hello, NULL, clock_wall_ms()) == 0)
                stream_flush(c);
            else if (next == STREAM_FRAME && m.kind == MESSAGE_WELCOME)
                return c;
            else
                exit(1);
        }
    }
}

static void send_batch(struct stream *c, char keys[KEYS][16], int *asked)
{
    for (int k = 0; k < DEEP; k++, ++*asked) {
        const char *key = keys[*asked % KEYS];
        struct message m = {.kind = MESSAGE_ASK, .request_id = c->next_request_id++,
                            .key = span_text(key), .ttl_ms = 600000, .budget_ms = 250};
        if (stream_queue(c, &m, NULL, clock_wall_ms()) < 0)
            exit(1);
    }
    stream_flush(c);
}

/* Answers that are there; those of a whole batch let the next one go. */
static int read_batch(struct stream *c)
{
    struct message m;
    struct blob *value;
    int answered = 0;

    do {
        if (stream_fill(c) < 0)
            exit(1);
        enum stream_next next;
        while ((next = stream_next(c, clock_wall_ms(), &m, &value)) != STREAM_MORE) {
            if (next != STREAM_FRAME || m.kind != MESSAGE_VALUE)
                exit(1);
            blob_unref(value);
            answered++;
        }
    } while (!c->drained);
    return answered;
}

/* A client as redis-benchmark is one: 50 connections, 16 requests in each write, every
 * answer verified. Returns hits a second. */
static double pipelined(peerage *p, const char *owner, char keys[KEYS][16], int count)
{
    static struct stream *c[CONNECTIONS];
    struct pollfd fds[CONNECTIONS];
    int waiting[CONNECTIONS], asked = 0, answered = 0;
    struct seal seal;
    struct addr to;

    if (seal_init(&seal, span_text(SECRET), span_text("bench"), FRAME_HMAC) ||
        !addr_parse(owner, &to))
        exit(1);
    for (int i = 0; i < CONNECTIONS; i++) {
        c[i] = connect_proven(&to, &seal, p->node_id);
        fds[i] = (struct pollfd){.fd = c[i]->fd, .events = POLLIN};
    }
    double began = now_us();
    for (int i = 0; i < CONNECTIONS; i++) {
        send_batch(c[i], keys, &asked);
        waiting[i] = DEEP;
    }
    while (answered < count) {
        poll(fds, CONNECTIONS, -1);
        for (int i = 0; i < CONNECTIONS; i++) {
            if (!fds[i].revents)
                continue;
            int got = read_batch(c[i]);
            answered += got;
            waiting[i] -= got;
            if (waiting[i] == 0) {
                send_batch(c[i], keys, &asked);
                waiting[i] = DEEP;
            }
        }
    }
    return answered / (now_us() - began) * 1e6;
}

static void bench_hits(size_t bytes, bool encrypted, const char *how, int base)
{
    static char keys[KEYS][16];
    static double us[200000];
    int count = bytes > 10000 ? 20000 : 50000;
    /* so small a cache that few copies are there still when their key is asked for again */
    peerage *p = node(base, encrypted, bytes * KEYS / 16 + 65536, strcmp(how, "asleep") == 0);
    struct owner o = start_owner(base, bytes, encrypted);
    peerage_port *port = NULL;
    char byte, name[64];
    double cpu;

    await_two(p);
    find_keys(p, false, keys);
    if (read(o.out, &byte, 1) != 1)
        exit(1);
    bool async = strcmp(how, "async") == 0;
    if (strcmp(how, "pipelined") == 0) {
        struct peerage_member m;
        uint64_t score;
        double before, hits_per_s;
        peerage_owner(p, keys[0], strlen(keys[0]), &m, &score, 1);
        count *= 4;
        if (write(o.in, "s", 1) != 1 || read(o.out, &before, sizeof before) != sizeof before)
            exit(1);
        hits_per_s = pipelined(p, m.address, keys, count);
        if (write(o.in, "s", 1) != 1 || read(o.out, &cpu, sizeof cpu) != sizeof cpu)
            exit(1);
        printf("owner_cpu_%s_pipelined              owner CPU %4.1f us a hit, %.0f hits/s\n",
               bytes > 10000 ? "56k" : "1k", (cpu - before) / count, hits_per_s);
        peerage_free(p);
        close(o.in);
        waitpid(o.pid, NULL, 0);
        return;
    }
    if (async && peerage_port_new(p, &port) < 0)
        exit(1);
    int local = 0;
    for (int i = -WARM, asked = 0; i < count; asked++) {
        const char *key = keys[asked % KEYS];
        double began = now_us();
        if (!(async ? ask_async(p, port, key) : ask_sync(p, key))) {
            if (++local > asked / 2 + KEYS) {
                fprintf(stderr, "most answers are no owner's hits\n");
                exit(1);
            }
            continue;           /* the store kept its copy */
        }
        if (i >= 0)
            us[i] = now_us() - began;
        i++;
    }
    snprintf(name, sizeof name, "owner_hit_%s_%s%s", how, bytes > 10000 ? "56k" : "1k",
             encrypted ? "_encrypted" : "");
    print_row(name, us, count);
    if (write(o.in, "s", 1) != 1 || read(o.out, &cpu, sizeof cpu) != sizeof cpu)
        exit(1);
    printf("%-34s owner CPU %4.1f us a hit\n", "", cpu / (count + WARM));
    if (port)
        peerage_port_gone(port, NULL, NULL);
    peerage_free(p);
    close(o.in);
    waitpid(o.pid, NULL, 0);
}

static void bench_local(size_t bytes)
{
    struct peerage_options o;
    struct peerage_item item = {.bytes = bytes, .ttl_ms = 600000, .at = calloc(1, bytes)};
    struct peerage_ask ask = {.key = "durov", .key_bytes = 5, .ttl_ms = 600000,
                              .flags = PEERAGE_LOADS};
    struct peerage_answer a;
    char line[PEERAGE_LINE_MAX];
    peerage *p;

    peerage_options_default(&o);
    if (peerage_new(&o, &p, line) < 0)
        exit(1);
    peerage_ask(p, &ask, &a, NULL, NULL);
    peerage_finish(p, a.load_id, &item, 1);
    double began = now_us();
    for (int i = 0; i < 5000000; i++) {
        if (peerage_get(p, "durov", 5, &a) != 1)
            exit(1);
        peerage_blob_free(a.blob);
    }
    printf("%-34s %5.1f ns\n", bytes > 1024 ? "local_hit_56k" : "local_hit_1k",
           (now_us() - began) / 5000);
    free((void *)(uintptr_t)item.at);
    peerage_free(p);
}

/* The floor: what the kernel and one SHA-256 take for the same bytes, the way ours go: over a
 * Unix socket; asleep until the answer comes, or looking for it all the time. */

static void read_all(int fd, unsigned char *to, size_t bytes, bool looking)
{
    while (bytes) {
        ssize_t n = recv(fd, to, bytes, looking ? MSG_DONTWAIT : 0);
        if (looking && n < 0 && errno == EAGAIN)
            continue;
        if (n <= 0)
            exit(0);
        to += n;
        bytes -= (size_t)n;
    }
}

static void bench_floor(size_t bytes, bool looking)
{
    static double us[50000];
    static unsigned char in[1 << 17], digest[32];
    int count = 20000, ends[2];
    char name[64];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
        exit(1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        for (;;) {
            read_all(ends[1], in, 180, false);
            if (write(ends[1], in, bytes + 160) < 0)
                _exit(0);
        }
    }
    int fd = ends[0];
    close(ends[1]);
    for (int i = -WARM; i < count; i++) {
        double began = now_us();
        if (write(fd, in, 180) != 180)
            exit(1);
        read_all(fd, in, bytes + 160, looking);
        EVP_Q_digest(NULL, "SHA256", NULL, in, bytes, digest, NULL);
        if (i >= 0)
            us[i] = now_us() - began;
    }
    snprintf(name, sizeof name, "floor_%s%s", bytes > 10000 ? "56k" : "1k",
             looking ? "_looking" : "");
    print_row(name, us, count);
    close(fd);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1000, 56000};
    int base = 9000 + (int)(getpid() % 900) * 16;

    if (argc == 5 && strcmp(argv[1], "--own") == 0)
        own(atoi(argv[2]), (size_t)atol(argv[3]), atoi(argv[4]));
    if (argc == 4) {
        if (strcmp(argv[3], "local") == 0)
            bench_local((size_t)atol(argv[1]));
        else
            bench_hits((size_t)atol(argv[1]), atoi(argv[2]), argv[3], base);
        return 0;
    }
    for (int s = 0; s < 4; s++)
        bench_floor(sizes[s / 2], s % 2);
    if (argc == 2)
        return 0;
    for (int s = 0; s < 2; s++) {
        bench_local(sizes[s]);
        bench_hits(sizes[s], false, "sync", base);
        bench_hits(sizes[s], false, "asleep", base);
        bench_hits(sizes[s], true, "sync", base);
        bench_hits(sizes[s], false, "async", base);
        bench_hits(sizes[s], false, "pipelined", base);
    }
    return 0;
}
