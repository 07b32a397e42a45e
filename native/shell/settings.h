/* Options -> checked settings. A wrong one becomes one line: the variable, what it got, what
 * it takes; never a part of the secret. Nothing is opened and nobody is resolved here. */
#ifndef PEERAGE_SHELL_SETTINGS_H
#define PEERAGE_SHELL_SETTINGS_H

#include "core/addr.h"
#include "core/limits.h"
#include "core/seal.h"
#include "peerage.h"
#include "shell/redis_url.h"

#define REDIS_PREFIX_BYTES_MAX 129u
#define HOST_BYTES_MAX 254u     /* a DNS name and its zero */

/* One entry of PEERS. */
struct peer_seed {
    char host[HOST_BYTES_MAX];  /* a name, or "" when addr is numeric */
    struct addr addr;
    uint16_t port;              /* 0: the whole port range */
};

struct settings {
    bool enabled, heir, coordinate, observer, encryption, unix_sockets;
    bool allow_written;         /* PEER_ALLOW_CIDR was given (M10) */
    bool advertise_given;
    bool redis_given;           /* and `redis` read */
    bool sealed;                /* `seal` is there to be wiped */
    uint16_t port;
    unsigned port_range;
    struct addr listen, advertise;
    struct cidr allowed[CIDRS_MAX];
    unsigned allowed_count;
    struct peer_seed seeds[SEEDS_MAX];
    unsigned seed_count;
    char label[256];
    uint32_t timeout_ms, load_timeout_ms, spin_us;
    size_t cache_bytes;
    struct seal seal;           /* if enabled, or values in Redis are to be encrypted;
                                   settings_deinit wipes it */
    struct redis_url redis;
    char redis_prefix[REDIS_PREFIX_BYTES_MAX];
};

/* 0 or ERR_SETTING with the line. */
int settings_read(struct settings *, const struct peerage_options *, char line[PEERAGE_LINE_MAX]);
void settings_deinit(struct settings *);

/* Which address to tell others (rules M9, M10): the given one; else the source address of
 * the default route, or towards the first numeric entry of PEERS; else loopback. `said`
 * gets a line for the log, or stays empty. 0 or ERR_SETTING with the line. */
int settings_advertise(const struct settings *, struct addr *out, char said[PEERAGE_LINE_MAX],
                       char line[PEERAGE_LINE_MAX]);

/* A source may talk to us: inside the allowed blocks, or one of the host's own. */
bool settings_allow(const struct settings *, const struct addr *own_hosts, size_t own_count,
                    const struct addr *);

#endif
