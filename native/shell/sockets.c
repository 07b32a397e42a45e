/* The socket calls that differ between systems or need care (see sockets.h). */
#include "shell/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/err.h"
#include "shell/fork.h"

#define BACKLOG 512
#define UDP_BUFFER_BYTES (1 << 20)  /* a gossip burst while the loop thread was kept waiting */
#define EPHEMERAL_TRIES 64
#define FOLDER_MAX 64
#define UNIX_BUFFER_BYTES (1 << 20) /* more values of a usual size than wait at a time; the system
                                       may cut it to net.core.wmem_max */

socklen_t sockets_from_addr(const struct addr *a, int family, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)out;
        if (!addr_is_v4(a) && !addr_is_zero(a))
            return 0;
        in->sin_family = AF_INET;
        in->sin_port = htons(a->port);
        memcpy(&in->sin_addr, a->ip + 12, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(a->port);
    memcpy(&in6->sin6_addr, a->ip, 16);
    return sizeof *in6;
}

bool sockets_to_addr(const struct sockaddr_storage *from, struct addr *out)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        memcpy(out->ip, mapped, 12);
        memcpy(out->ip + 12, &in->sin_addr, 4);
        out->port = ntohs(in->sin_port);
        return true;
    }
    if (from->ss_family != AF_INET6)
        return false;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
    memcpy(out->ip, &in6->sin6_addr, 16);
    out->port = ntohs(in6->sin6_port);
    return true;
}

int sockets_family(const struct addr *listen)
{
    return addr_is_v4(listen) ? AF_INET : AF_INET6;
}

#ifdef __linux__
static int open_socket(int family, int type)
{
    fork_hold();
    int fd = fork_keep(socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    fork_release();
    return fd;
}

static int accept_one(int listener, struct sockaddr_storage *from, socklen_t *bytes)
{
    return accept4(listener, (struct sockaddr *)from, bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
}
#else
static int set_flags(int fd)
{
    if (fd >= 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    return fd;
}

static int open_socket(int family, int type)
{
    fork_hold();
    int fd = fork_keep(set_flags(socket(family, type, 0)));
    fork_release();
    return fd;
}

static int accept_one(int listener, struct sockaddr_storage *from, socklen_t *bytes)
{
    return set_flags(accept(listener, (struct sockaddr *)from, bytes));
}
#endif

static void set_int(int fd, int level, int option, int value)
{
    /* None of these decides whether the node works. */
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

/* A dead host's connections end by themselves, instead of filling the table for ever. */
static void set_tcp(int fd)
{
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef __linux__
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
#endif
}

static int bind_one(int type, const struct addr *listen_at, uint16_t port)
{
    struct addr at = *listen_at;
    struct sockaddr_storage to;
    int family = sockets_family(listen_at);
    int fd = open_socket(family, type);

    if (fd < 0)
        return -1;
    if (family == AF_INET6)
        set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (type == SOCK_STREAM)
        set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    else
        set_int(fd, SOL_SOCKET, SO_RCVBUF, UDP_BUFFER_BYTES);
    at.port = port;
    socklen_t bytes = sockets_from_addr(&at, family, &to);
    if (bind(fd, (struct sockaddr *)&to, bytes) < 0 ||
        (type == SOCK_STREAM && listen(fd, BACKLOG) < 0)) {
        fork_close(fd);
        return -1;
    }
    return fd;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    struct addr a;

    if (getsockname(fd, (struct sockaddr *)&at, &bytes) < 0 || !sockets_to_addr(&at, &a))
        return 0;
    return a.port;
}

/* 1 both bound; 0 taken; -1 another error. TCP first: it is what another node, or a
 * stranger's server, is likely to hold. */
static int bind_both(const struct addr *listen_at, uint16_t port, int *udp, int *tcp)
{
    *udp = -1;
    *tcp = bind_one(SOCK_STREAM, listen_at, port);
    if (*tcp >= 0)
        *udp = bind_one(SOCK_DGRAM, listen_at, port ? port : port_of(*tcp));
    if (*udp >= 0)
        return 1;
    int why = errno;
    fork_close(*tcp);
    *tcp = -1;
    errno = why;
    return why == EADDRINUSE ? 0 : -1;
}

int sockets_bind_pair(const struct addr *listen_at, uint16_t port, unsigned range, int *udp,
                      int *tcp, uint16_t *bound)
{
    for (unsigned i = 0; i < range && port + i <= UINT16_MAX; i++) {
        int rc = bind_both(listen_at, (uint16_t)(port + i), udp, tcp);
        if (rc < 0)
            return ERR_SYSTEM;
        if (rc > 0) {
            *bound = (uint16_t)(port + i);
            return 0;
        }
    }
    return ERR_FULL;
}

int sockets_bind_any(const struct addr *listen_at, int *udp, int *tcp, uint16_t *bound)
{
    for (int i = 0; i < EPHEMERAL_TRIES; i++) {
        int rc = bind_both(listen_at, 0, udp, tcp);
        if (rc < 0)
            return ERR_SYSTEM;
        if (rc > 0) {
            *bound = port_of(*tcp);
            return 0;
        }
    }
    return ERR_FULL;
}

int sockets_connect(const struct addr *to)
{
    struct sockaddr_storage at;
    int family = addr_is_v4(to) ? AF_INET : AF_INET6;
    int fd = open_socket(family, SOCK_STREAM);

    if (fd < 0)
        return -1;
    set_tcp(fd);
    socklen_t bytes = sockets_from_addr(to, family, &at);
    if (connect(fd, (struct sockaddr *)&at, bytes) < 0 && errno != EINPROGRESS && errno != EINTR) {
        fork_close(fd);
        return -1;
    }
    return fd;
}

int sockets_connect_result(int fd)
{
    int error = 0;
    socklen_t bytes = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0)
        return errno;
    return error;
}

void sockets_reset(int fd)
{
    struct linger at_once = {.l_onoff = 1};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

int sockets_accept(int listener, struct addr *peer)
{
    struct sockaddr_storage from = {0};
    socklen_t bytes = sizeof from;

    fork_hold();
    int fd = fork_keep(accept_one(listener, &from, &bytes));
    fork_release();
    if (fd < 0)
        return -1;
    if (from.ss_family == AF_UNIX) {
        *peer = (struct addr){0};
        set_int(fd, SOL_SOCKET, SO_SNDBUF, UNIX_BUFFER_BYTES);
        return fd;
    }
    if (!sockets_to_addr(&from, peer)) {
        fork_close(fd);
        errno = EAFNOSUPPORT;
        return -1;
    }
    set_tcp(fd);
    return fd;
}

/* The network namespace, where there are such: an address means something in one only. 0: not
 * known. */
static unsigned long long network(void)
{
#ifdef __linux__
    struct stat at;

    return stat("/proc/self/ns/net", &at) == 0 ? (unsigned long long)at.st_ino : 0;
#else
    return 1;
#endif
}

/* In a folder that nobody else can enter. Under an abstract name, or in a folder of all, whoever
 * connects can send a descriptor along whose close waits for as long as he likes (a TCP socket
 * that lingers), and our thread would be the one that closes it. */
static const char *own_folder(char out[FOLDER_MAX])
{
    snprintf(out, FOLDER_MAX, "/tmp/peerage-%lu", (unsigned long)geteuid());
    return out;
}

static bool unix_address(const struct addr *known_as, struct sockaddr_un *out)
{
    char folder[FOLDER_MAX], text[ADDR_TEXT_MAX];
    unsigned long long where = network();
    struct stat found;

    if (!where || lstat(own_folder(folder), &found) < 0 || !S_ISDIR(found.st_mode) ||
        found.st_uid != geteuid() || found.st_mode & 077)
        return false;
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    int bytes = snprintf(out->sun_path, sizeof out->sun_path, "%s/%llu-%s", folder, where,
                         addr_format(known_as, text));
    return bytes > 0 && (size_t)bytes < sizeof out->sun_path;
}

/* What is left there by a node that was killed gives way: this node has the address now. */
int sockets_listen_unix(const struct addr *known_as)
{
    char folder[FOLDER_MAX];
    struct sockaddr_un at;

    (void)mkdir(own_folder(folder), 0700);     /* or it is there; it is looked at either way */
    if (!unix_address(known_as, &at))
        return -1;
    int fd = open_socket(AF_UNIX, SOCK_STREAM);
    if (fd < 0)
        return -1;
    unlink(at.sun_path);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, BACKLOG) < 0) {
        fork_close(fd);
        return -1;
    }
    return fd;
}

void sockets_unlink_unix(const struct addr *known_as)
{
    struct sockaddr_un at;

    if (unix_address(known_as, &at))
        unlink(at.sun_path);
}

int sockets_connect_unix(const struct addr *known_as)
{
    struct sockaddr_un to;

    if (!unix_address(known_as, &to))
        return -1;
    int fd = open_socket(AF_UNIX, SOCK_STREAM);
    if (fd < 0)
        return -1;
    /* Never under way: it succeeds at once, or a full backlog refuses it. */
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        fork_close(fd);
        return -1;
    }
    set_int(fd, SOL_SOCKET, SO_SNDBUF, UNIX_BUFFER_BYTES);
    return fd;
}

/* A connected UDP socket sends nothing, and knows its route. */
bool sockets_source_towards(const struct addr *to, struct addr *out)
{
    struct sockaddr_storage at;
    int family = addr_is_v4(to) ? AF_INET : AF_INET6;
    struct addr target = *to;
    bool found = false;
    int fd = open_socket(family, SOCK_DGRAM);

    if (fd < 0)
        return false;
    if (target.port == 0)
        target.port = 9;
    socklen_t bytes = sockets_from_addr(&target, family, &at);
    if (connect(fd, (struct sockaddr *)&at, bytes) == 0) {
        bytes = sizeof at;
        found = getsockname(fd, (struct sockaddr *)&at, &bytes) == 0 && sockets_to_addr(&at, out);
        out->port = 0;
    }
    fork_close(fd);
    return found && !addr_is_zero(out);
}

size_t sockets_own_hosts(struct addr *out, size_t room)
{
    struct ifaddrs *all;
    size_t count = 0;

    if (getifaddrs(&all) < 0)
        return 0;
    for (struct ifaddrs *i = all; i && count < room; i = i->ifa_next) {
        struct sockaddr_storage at;
        if (!i->ifa_addr)
            continue;
        memset(&at, 0, sizeof at);
        if (i->ifa_addr->sa_family == AF_INET)
            memcpy(&at, i->ifa_addr, sizeof(struct sockaddr_in));
        else if (i->ifa_addr->sa_family == AF_INET6)
            memcpy(&at, i->ifa_addr, sizeof(struct sockaddr_in6));
        else
            continue;
        if (sockets_to_addr(&at, &out[count])) {
            out[count].port = 0;
            count++;
        }
    }
    freeifaddrs(all);
    return count;
}
