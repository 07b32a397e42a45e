/* Addresses and sockets of the system: conversion, opening, binding.
 * Every descriptor is non-blocking, CLOEXEC and kept for fork (fork.h). */
#ifndef PEERAGE_SHELL_SOCKETS_H
#define PEERAGE_SHELL_SOCKETS_H

#include <sys/socket.h>

#include "core/addr.h"

/* For a socket of this family (AF_INET or AF_INET6); returns the length, 0 when the
 * address is not expressible in the family. */
socklen_t sockets_from_addr(const struct addr *, int family, struct sockaddr_storage *out);
bool sockets_to_addr(const struct sockaddr_storage *, struct addr *out);

/* The family a socket bound to `listen` has. */
int sockets_family(const struct addr *listen);

/* UDP and TCP on the same port of `listen`, the first free for both from `port` on,
 * `range` of them; "in use" at bind or at listen means the next (rules M7, M11).
 * SO_REUSEADDR on TCP only: two workers could share a UDP port without knowing.
 * Returns 0, or ERR_FULL when the whole range is taken, or ERR_SYSTEM (see errno). */
int sockets_bind_pair(const struct addr *listen, uint16_t port, unsigned range, int *udp, int *tcp,
                      uint16_t *bound);
/* Both on some ephemeral port (an observer). */
int sockets_bind_any(const struct addr *listen, int *udp, int *tcp, uint16_t *bound);

/* A non-blocking TCP connect under way to addr; -1: failed at once. */
int sockets_connect(const struct addr *);
/* What became of it: 0 connected, else an errno. */
int sockets_connect_result(int fd);
/* Its close, when it comes, is a reset: nothing waits in the system for a peer that does not
 * read. */
void sockets_reset(int fd);
/* The next accepted connection and its peer (of a Unix socket: all zero); -1 with errno. */
int sockets_accept(int listener, struct addr *peer);

/* Between processes of one host and one user (rule W9): a Unix socket, a stream as TCP's is, at
 * less than half the cost to the system. Its path is /tmp/peerage-UID/NETWORK-ADDRESS: a folder
 * that only this user can enter, the network namespace, and the address that peers know the
 * node by. -1: it can't be; peers then come over TCP. */
int sockets_listen_unix(const struct addr *known_as);
/* Before the listener is closed. */
void sockets_unlink_unix(const struct addr *known_as);
/* Connected to whoever listens there; -1: nobody does, and TCP is the way. */
int sockets_connect_unix(const struct addr *known_as);

/* The address the kernel would send from towards `to`; false without a route. */
bool sockets_source_towards(const struct addr *to, struct addr *out);
/* All addresses of this host's interfaces; returns how many (at most `room`). */
size_t sockets_own_hosts(struct addr *out, size_t room);

#endif
