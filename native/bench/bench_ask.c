/* The price of an answer: a local hit, and an owner's hit asked by a blocked thread and by an
 * event loop's port, at 1 KB and 56 KB, authenticated and encrypted. The owner is a
 * process of its own, so the floor to compare with is a loopback round trip.
 *
 *     make bench                          all of it
 *     build/bench/bench_ask floor         a bare ping-pong of the same bytes, hashed once
 *     build/bench/bench_ask 1000 0 sync   one row: bytes, encrypted, and
 *                                         sync | async | pipelined | local
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include <time.h>
#include <unistd.h>

#include "peerage.h"

#define KEYS 256
#define WARM 2000

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
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

static peerage *node(int port, bool encrypted, uint64_t cache_bytes)
{
    struct peerage_options o;
    char line[PEERAGE_LINE_MAX];
    peerage *p;

    peerage_options_default(&o);
    o.enabled = 1;
    o.secret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    o.label = "bench";
    o.listen = o.advertise = "127.0.0.1";
    o.port = port;
    o.encryption = encrypted;
    o.heir = 0;
    o.cache_bytes = cache_bytes;
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
    peerage *p = node(port, encrypted, 256u << 20);
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
    char byte;
    if (read(0, &byte, 1) >= 0) {
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

#define LOOPS 50
#define DEEP 16

/* 50 event loops with 16 questions under way each, as 50 busy workers would have. */
static double pipelined(peerage *p, char keys[KEYS][16], int count)
{
    peerage_port *ports[LOOPS];
    struct pollfd fds[LOOPS];
    struct peerage_event event;
    struct peerage_answer a;
    int asked = 0, answered = 0;
    double began = now_us();

    for (int i = 0; i < LOOPS; i++) {
        if (peerage_port_new(p, &ports[i]) < 0)
            exit(1);
        fds[i] = (struct pollfd){.fd = peerage_port_fd(ports[i]), .events = POLLIN};
        for (int k = 0; k < DEEP; k++, asked++) {
            struct peerage_ask ask = {.key = keys[asked % KEYS], .ttl_ms = 600000};
            ask.key_bytes = strlen(ask.key);
            peerage_port_ask(ports[i], &ask, keys[asked % KEYS], &a);
            answered += a.kind != PEERAGE_PENDING;
            peerage_blob_free(a.kind == PEERAGE_VALUE ? a.blob : NULL);
        }
    }
    while (answered < count) {
        poll(fds, LOOPS, 100);
        for (int i = 0; i < LOOPS; i++) {
            if (!fds[i].revents)
                continue;
            peerage_port_run(ports[i]);
            while (peerage_port_next(ports[i], &event)) {
                answered++;
                peerage_blob_free(event.answer->blob);
            }
        }
        while (asked < answered + LOOPS * DEEP / 2 && asked < count) {
            for (int k = 0; k < DEEP; k++, asked++) {
                struct peerage_ask ask = {.key = keys[asked % KEYS], .ttl_ms = 600000};
                ask.key_bytes = strlen(ask.key);
                peerage_port_ask(ports[asked / DEEP % LOOPS], &ask, keys, &a);
                answered += a.kind != PEERAGE_PENDING;
                peerage_blob_free(a.kind == PEERAGE_VALUE ? a.blob : NULL);
            }
        }
    }
    began = now_us() - began;
    for (int i = 0; i < LOOPS; i++)
        peerage_port_gone(ports[i], NULL, NULL);
    return began;
}

static void bench_hits(size_t bytes, bool encrypted, const char *how, int base)
{
    static char keys[KEYS][16];
    static double us[200000];
    int count = bytes > 10000 ? 20000 : 50000;
    /* so small a cache that the copies are gone before their key is asked for again */
    peerage *p = node(base, encrypted, bytes * KEYS / 4 + 65536);
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
        double took_us = pipelined(p, keys, count), hits = 0;
        struct peerage_stat stats[256];
        int found = peerage_stats(p, stats, 256);
        for (int i = 0; i < found; i++) {
            if (strcmp(stats[i].name, "requests_sent") == 0)
                hits = stats[i].value;
        }
        if (write(o.in, "s", 1) != 1 || read(o.out, &cpu, sizeof cpu) != sizeof cpu)
            exit(1);
        printf("owner_cpu_%s_pipelined                owner CPU %4.1f us a hit, %.0f hits/s\n",
               bytes > 10000 ? "56k" : "1k", cpu / hits, hits / took_us * 1e6);
        peerage_free(p);
        close(o.in);
        waitpid(o.pid, NULL, 0);
        return;
    }
    if (async && peerage_port_new(p, &port) < 0)
        exit(1);
    for (int i = -WARM; i < count; i++) {
        const char *key = keys[(i + WARM) % KEYS];
        double began = now_us();
        int right = async ? ask_async(p, port, key) : ask_sync(p, key);
        if (!right) {
            fprintf(stderr, "an answer that was no owner's hit\n");
            exit(1);
        }
        if (i >= 0)
            us[i] = now_us() - began;
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

/* ---- the floor: what the kernel and one SHA-256 take for the same bytes ------------------- */

static void read_all(int fd, unsigned char *to, size_t bytes)
{
    while (bytes) {
        ssize_t n = read(fd, to, bytes);
        if (n <= 0)
            exit(0);
        to += n;
        bytes -= (size_t)n;
    }
}

static void bench_floor(size_t bytes)
{
    static double us[50000];
    static unsigned char in[1 << 17], digest[32];
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t at_bytes = sizeof at;
    int count = 20000, one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    char name[64];

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener, (struct sockaddr *)&at, sizeof at);
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&at, &at_bytes);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int fd = accept(listener, NULL, NULL);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        for (;;) {
            read_all(fd, in, 180);
            if (write(fd, in, bytes + 160) < 0)
                _exit(0);
        }
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) < 0)
        exit(1);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int i = -WARM; i < count; i++) {
        double began = now_us();
        if (write(fd, in, 180) != 180)
            exit(1);
        read_all(fd, in, bytes + 160);
        EVP_Q_digest(NULL, "SHA256", NULL, in, bytes, digest, NULL);
        if (i >= 0)
            us[i] = now_us() - began;
    }
    snprintf(name, sizeof name, "floor_%s", bytes > 10000 ? "56k" : "1k");
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
    for (int s = 0; s < 2; s++)
        bench_floor(sizes[s]);
    if (argc == 2)
        return 0;
    for (int s = 0; s < 2; s++) {
        bench_local(sizes[s]);
        bench_hits(sizes[s], false, "sync", base);
        bench_hits(sizes[s], true, "sync", base);
        bench_hits(sizes[s], false, "async", base);
        bench_hits(sizes[s], false, "pipelined", base);
    }
    return 0;
}
