/* What the kernel alone takes for a hit: a server that answers each request it reads with the
 * same bytes, in Redis' protocol, so that bench_flood can ask it. No look-up, no seal, no
 * expiry: one recv and one send a batch, one epoll_wait a turn, as the others have them.
 * scripts/bench.py reads its processor time from the outside (owner_cpu_..., "bare").
 *
 *     bench_bare VALUE_BYTES          says its port, serves until its input ends; there, and
 *                                     under the abstract name "peerage bare PORT"
 *
 * Without arguments it does nothing.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define DEEP_MAX 64
#define IN_BYTES 8192

static char *answers;           /* DEEP_MAX of them, one after the other */
static size_t answer_bytes;

static void prepare(size_t value_bytes)
{
    char head[32];
    size_t head_bytes = (size_t)snprintf(head, sizeof head, "$%zu\r\n", value_bytes);

    answer_bytes = head_bytes + value_bytes + 2;
    answers = malloc(DEEP_MAX * answer_bytes);
    if (!answers)
        exit(1);
    memset(answers, 'v', DEEP_MAX * answer_bytes);
    for (char *at = answers; at < answers + DEEP_MAX * answer_bytes; at += answer_bytes) {
        memcpy(at, head, head_bytes);
        memcpy(at + answer_bytes - 2, "\r\n", 2);
    }
}

/* Requests are counted by how they begin: no key of the bench has a '*'. */
static void answer(int fd)
{
    char in[IN_BYTES];
    ssize_t n = recv(fd, in, sizeof in, 0);
    size_t requests = 0;

    if (n <= 0) {
        close(fd);
        return;
    }
    for (ssize_t i = 0; i < n; i++)
        requests += in[i] == '*';
    for (size_t at = 0, bytes = requests * answer_bytes; at < bytes;) {
        ssize_t sent = send(fd, answers + at, bytes - at, MSG_NOSIGNAL);
        if (sent <= 0) {        /* the client has what it wanted */
            close(fd);
            return;
        }
        at += (size_t)sent;
    }
}

static void watch(int epoll, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0)
        exit(1);
}

struct listeners {
    int tcp, near;
};

static bool listen_both(struct listeners *l)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof at;

    l->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    l->near = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(l->tcp, (struct sockaddr *)&at, sizeof at) < 0 || listen(l->tcp, 128) < 0 ||
        getsockname(l->tcp, (struct sockaddr *)&at, &bytes) < 0)
        return false;
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "peerage bare %u",
                          ntohs(at.sin_port));
    bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(l->near, (struct sockaddr *)&name, bytes) < 0 || listen(l->near, 128) < 0)
        return false;
    printf("%u\n", ntohs(at.sin_port));
    fflush(stdout);
    return true;
}

static void accept_on(int epoll, int listener)
{
    int on = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);    /* if it is TCP */
    watch(epoll, fd);
}

int main(int count, char **arguments)
{
    struct epoll_event events[EVENTS_MAX];
    struct listeners listeners;
    int epoll = epoll_create1(EPOLL_CLOEXEC);

    if (count < 2) {
        puts("driven by scripts/bench.py --only owner_cpu");
        return 0;
    }
    prepare(strtoul(arguments[1], NULL, 10));
    if (!listen_both(&listeners))
        return 1;
    watch(epoll, listeners.tcp);
    watch(epoll, listeners.near);
    watch(epoll, STDIN_FILENO);
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == STDIN_FILENO)
                return 0;
            if (fd == listeners.tcp || fd == listeners.near)
                accept_on(epoll, fd);
            else
                answer(fd);
        }
    }
}
