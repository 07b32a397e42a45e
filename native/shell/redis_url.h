/* REDIS_URL, taken apart: redis://user:password@host:port/db, rediss://..., unix:///path?db=0.
 * Neither user nor password ever stand in a line. */
#ifndef PEERAGE_SHELL_REDIS_URL_H
#define PEERAGE_SHELL_REDIS_URL_H

#include <stdbool.h>
#include <stdint.h>

struct redis_url {
    bool tls;
    char path[108];             /* a Unix socket's; then host is empty */
    char host[254];
    uint16_t port;
    unsigned db;
    char user[256], password[512];      /* empty: none */
    char where[300];            /* for lines: "host:port" or the path */
};

/* NULL, or what it takes, as a constant text. */
const char *redis_url_read(struct redis_url *, const char *url);

#endif
