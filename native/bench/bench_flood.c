/* Many connections that ask one server for keys as fast as it answers: a node, Redis or
 * memcached, all by the same client, so that the servers' processor time can be compared.
 * scripts/bench.py runs it (owner_cpu_...) and reads that time from the outside.
 *
 *     bench_flood HITS CONNECTIONS DEEP VALUE_BYTES peerage ADDRESS SECRET LABEL <keys
 *     bench_flood HITS CONNECTIONS DEEP VALUE_BYTES redis|memcached ADDRESS <keys
 *
 * ADDRESS is a TCP one, or a Unix socket's: /its/path or @its abstract name.
 * DEEP requests leave in one write, and the next ones when all are answered. The client
 * checks the tag of every head, and one value in SAMPLE against its digest: its own hashing
 * of all of them would only make the server wait. Without arguments it does nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <sodium.h>

#include "bench/bench.h"
#include "core/message.h"
#include "shell/clock.h"
#include "shell/sockets.h"
#include "shell/stream.h"

#define KEYS_MAX 65536
#define CLIENTS_MAX 256
#define DEEP_MAX 64
#define SAMPLE 16
#define ROOM (256u << 10)

static char keys[KEYS_MAX][64];
static size_t key_count, value_bytes;
static unsigned deep;
static size_t asked;
static unsigned long long checked;

struct client {
    int fd;
    struct stream *stream;      /* a node's */
    bool memcached;
    unsigned waiting;
    size_t body;                /* bytes of the present answer that are still to come; 0: a line */
    size_t have;
    char in[512];               /* an unfinished line */
};

static void fail(const char *why)
{
    fprintf(stderr, "bench_flood: %s\n", why);
    exit(1);
}

static const char *next_key(void)
{
    return keys[asked++ % key_count];
}

static int connect_to(const char *address)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct addr tcp;

    if (addr_parse(address, &tcp))
        return sockets_connect(&tcp);
    size_t bytes = strlen(address);
    if (bytes >= sizeof at.sun_path || !strchr("@/", address[0]))
        fail("not an address");
    memcpy(at.sun_path, address, bytes);
    if (address[0] == '@')
        at.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bytes += offsetof(struct sockaddr_un, sun_path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, (socklen_t)bytes) < 0)
        fail("nobody listens there");
    return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -1 : fd;
}

/* A node. */

static struct stream *prove(int fd, const struct seal *seal, uint64_t self_id)
{
    static const struct addr whoever;
    struct stream *c = stream_new(fd, &whoever, seal, self_id, false);
    struct message m, hello = {.kind = MESSAGE_HELLO, .request_id = 1};
    struct blob *value;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, 5000);
        if (!c || stream_fill(c) < 0)
            fail("the node hung up");
        enum stream_next next;
        while ((next = stream_next(c, clock_wall_ms(), &m, &value)) != STREAM_MORE) {
            if (next == STREAM_CHALLENGED && stream_queue(c, &hello, NULL, clock_wall_ms()) == 0)
                stream_flush(c);
            else if (next == STREAM_FRAME && m.kind == MESSAGE_WELCOME)
                return c;
            else
                fail("the node is of another cluster");
        }
    }
}

static void ask_node(struct client *k)
{
    for (unsigned i = 0; i < deep; i++) {
        struct message m = {.kind = MESSAGE_ASK, .request_id = k->stream->next_request_id++,
                            .ttl_ms = 600000, .budget_ms = 250};
        m.key = span_text(next_key());
        if (stream_queue(k->stream, &m, NULL, clock_wall_ms()) < 0)
            fail("no memory");
    }
    if (stream_flush(k->stream) < 0)
        fail("the node hung up");
}

static unsigned read_node(struct client *k)
{
    struct message m;
    struct blob *value;
    unsigned answered = 0;

    do {
        if (stream_fill(k->stream) < 0)
            fail("the node hung up");
        for (;;) {
            enum stream_next next = stream_next(k->stream, clock_wall_ms(), &m, &value);
            if (next == STREAM_MORE && stream_is_unverified(k->stream)) {
                /* left to us by verify_above */
                if (k->stream->message.request_id % SAMPLE == 0) {
                    stream_verify(k->stream);
                    checked++;
                } else {
                    k->stream->verified = true;
                    k->stream->value_verdict = VERDICT_OK;
                }
                continue;
            }
            if (next == STREAM_MORE)
                break;
            if (next != STREAM_FRAME || m.kind != MESSAGE_VALUE || m.value_bytes != value_bytes)
                fail("an answer that was no hit");
            blob_unref(value);
            answered++;
        }
    } while (!k->stream->drained);
    return answered;
}

/* Redis and memcached. */

static void ask_text(struct client *k)
{
    char out[DEEP_MAX * 128];
    size_t bytes = 0;

    for (unsigned i = 0; i < deep; i++) {
        const char *key = next_key();
        size_t room = sizeof out - bytes;
        int n = k->memcached ? snprintf(out + bytes, room, "get %s\r\n", key)
                             : snprintf(out + bytes, room, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n",
                                        strlen(key), key);
        bytes += (size_t)n;
    }
    for (size_t at = 0; at < bytes;) {
        ssize_t n = send(k->fd, out + at, bytes - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            fail("the server hung up");
        at += n > 0 ? (size_t)n : 0;
    }
}

/* The length of an answer's body with what follows it, from its first line. */
static size_t body_of(const struct client *k, const char *line)
{
    const char *number = line + 1;

    if (k->memcached) {
        if (strncmp(line, "VALUE ", 6) != 0)
            fail("memcached has it not");
        number = strrchr(line, ' ');
    } else if (line[0] != '$' || line[1] == '-') {
        fail("Redis has it not");
    }
    size_t bytes = (size_t)strtoul(number, NULL, 10);
    if (bytes != value_bytes)
        fail("a value of another length");
    return bytes + (k->memcached ? strlen("\r\nEND\r\n") : strlen("\r\n"));
}

static unsigned read_text(struct client *k)
{
    static char in[ROOM];
    unsigned answered = 0;
    ssize_t n = recv(k->fd, in, sizeof in, 0);

    if (n <= 0)
        fail("the server hung up");
    for (char *at = in, *end = in + n; at < end;) {
        if (k->body) {
            size_t step = k->body < (size_t)(end - at) ? k->body : (size_t)(end - at);
            k->body -= step;
            at += step;
            answered += k->body == 0;
            continue;
        }
        if (k->have == sizeof k->in - 1)
            fail("a line too long");
        k->in[k->have++] = *at++;
        if (k->in[k->have - 1] != '\n')
            continue;
        k->in[k->have] = 0;
        k->have = 0;
        k->body = body_of(k, k->in);
    }
    return answered;
}

/* All. */

static double now_s(void)
{
    return (double)now_ns() / 1e9;
}

static void read_keys(void)
{
    while (key_count < KEYS_MAX && fgets(keys[key_count], sizeof keys[0], stdin)) {
        keys[key_count][strcspn(keys[key_count], "\n")] = 0;
        if (keys[key_count][0])
            key_count++;
    }
    if (!key_count)
        fail("no keys");
}

int main(int count, char **arguments)
{
    static struct client clients[CLIENTS_MAX];
    static struct pollfd fds[CLIENTS_MAX];
    size_t hits, answered = 0;
    unsigned connections;
    struct seal seal;
    uint64_t self_id;

    if (count < 7) {
        puts("driven by scripts/bench.py --only owner_cpu");
        return 0;
    }
    hits = strtoul(arguments[1], NULL, 10);
    connections = (unsigned)strtoul(arguments[2], NULL, 10);
    deep = (unsigned)strtoul(arguments[3], NULL, 10);
    value_bytes = strtoul(arguments[4], NULL, 10);
    bool node = strcmp(arguments[5], "peerage") == 0;
    if (sodium_init() < 0 || connections < 1 || connections > CLIENTS_MAX || deep < 1 ||
        deep > DEEP_MAX || (node && count < 9) ||
        getentropy(&self_id, sizeof self_id) < 0)
        fail("see the top of bench_flood.c");
    if (node && seal_init(&seal, span_text(arguments[7]), span_text(arguments[8]), FRAME_HMAC))
        fail("not a secret");
    read_keys();
    for (unsigned i = 0; i < connections; i++) {
        struct client *k = &clients[i];
        k->fd = connect_to(arguments[6]);
        k->memcached = strcmp(arguments[5], "memcached") == 0;
        fds[i] = (struct pollfd){.fd = k->fd, .events = POLLOUT};
        if (k->fd < 0 || poll(&fds[i], 1, 5000) != 1)
            fail("no connection");
        fds[i].events = POLLIN;
        if (node) {
            k->stream = prove(k->fd, &seal, self_id | 1);
            k->stream->verify_above = 0;
        }
    }
    double began = now_s();
    for (unsigned i = 0; i < connections; i++) {
        (node ? ask_node : ask_text)(&clients[i]);
        clients[i].waiting = deep;
    }
    while (answered < hits) {
        if (poll(fds, connections, 10000) < 1)
            fail("nothing came for ten seconds");
        for (unsigned i = 0; i < connections; i++) {
            if (!fds[i].revents)
                continue;
            unsigned got = (node ? read_node : read_text)(&clients[i]);
            answered += got;
            clients[i].waiting -= got;
            if (clients[i].waiting == 0) {
                (node ? ask_node : ask_text)(&clients[i]);
                clients[i].waiting = deep;
            }
        }
    }
    printf("{\"hits\": %zu, \"hits_per_s\": %.0f, \"checked\": %llu}\n", answered,
           (double)answered / (now_s() - began), checked);
    return 0;
}
