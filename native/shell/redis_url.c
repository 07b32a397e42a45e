/* Reading REDIS_URL (see redis_url.h). */
#include "shell/redis_url.h"

#include <stdio.h>
#include <string.h>

#define TAKES "redis://[user:password@]host[:port][/db], rediss://... or unix:///path"

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decoded into `out`; false: too long, or no such code. */
static bool decode(const char *at, size_t bytes, char *out, size_t room)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++) {
        char c = at[i];
        if (c == '%') {
            if (i + 2 >= bytes || hex(at[i + 1]) < 0 || hex(at[i + 2]) < 0)
                return false;
            c = (char)(hex(at[i + 1]) << 4 | hex(at[i + 2]));
            i += 2;
        }
        if (c == 0 || n + 1 >= room)
            return false;
        out[n++] = c;
    }
    out[n] = 0;
    return true;
}

static bool number(const char *at, size_t bytes, unsigned most, unsigned *out)
{
    *out = 0;
    if (bytes == 0 || bytes > 5)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] < '0' || at[i] > '9')
            return false;
        *out = *out * 10 + (unsigned)(at[i] - '0');
    }
    return *out <= most;
}

static bool userinfo(struct redis_url *u, const char *at, size_t bytes)
{
    const char *colon = memchr(at, ':', bytes);
    size_t user = colon ? (size_t)(colon - at) : bytes;

    if (!colon)     /* redis://password@host, as some write it */
        return decode(at, bytes, u->password, sizeof u->password);
    return decode(at, user, u->user, sizeof u->user) &&
           decode(colon + 1, bytes - user - 1, u->password, sizeof u->password);
}

static bool query(struct redis_url *u, const char *at)
{
    if (!*at)
        return true;
    if (strncmp(at, "db=", 3) != 0)
        return false;
    return number(at + 3, strlen(at + 3), 65535, &u->db);
}

static bool host_port(struct redis_url *u, const char *at, size_t bytes)
{
    const char *end = at + bytes, *colon = NULL;
    unsigned port = 6379;

    if (bytes && *at == '[') {
        const char *close = memchr(at, ']', bytes);
        if (!close)
            return false;
        if (close + 1 < end && close[1] != ':')
            return false;
        colon = close + 1 < end ? close + 1 : NULL;
        if (!decode(at + 1, (size_t)(close - at - 1), u->host, sizeof u->host))
            return false;
    } else {
        colon = memchr(at, ':', bytes);
        if (!decode(at, colon ? (size_t)(colon - at) : bytes, u->host, sizeof u->host))
            return false;
    }
    if (colon && (!number(colon + 1, (size_t)(end - colon - 1), UINT16_MAX, &port) || port == 0))
        return false;
    if (!u->host[0])
        memcpy(u->host, "localhost", sizeof "localhost");
    u->port = (uint16_t)port;
    snprintf(u->where, sizeof u->where, strchr(u->host, ':') ? "[%s]:%u" : "%s:%u", u->host, port);
    return true;
}

static bool tcp(struct redis_url *u, const char *at)
{
    const char *question = strchr(at, '?');
    const char *end = question ? question : at + strlen(at);
    const char *slash = memchr(at, '/', (size_t)(end - at));
    const char *authority_end = slash ? slash : end, *user_end = NULL;

    for (const char *c = at; c < authority_end; c++) {
        if (*c == '@')
            user_end = c;
    }
    if (user_end && !userinfo(u, at, (size_t)(user_end - at)))
        return false;
    at = user_end ? user_end + 1 : at;
    if (!host_port(u, at, (size_t)(authority_end - at)))
        return false;
    if (slash && slash + 1 < end && !number(slash + 1, (size_t)(end - slash - 1), 65535, &u->db))
        return false;
    return !question || query(u, question + 1);
}

static bool local(struct redis_url *u, const char *at)
{
    const char *question = strchr(at, '?');
    const char *end = question ? question : at + strlen(at);
    const char *slash = memchr(at, '/', (size_t)(end - at));

    if (!slash)
        return false;
    if (slash > at && (slash[-1] != '@' || !userinfo(u, at, (size_t)(slash - at - 1))))
        return false;
    if (!decode(slash, (size_t)(end - slash), u->path, sizeof u->path))
        return false;
    snprintf(u->where, sizeof u->where, "%s", u->path);
    return !question || query(u, question + 1);
}

const char *redis_url_read(struct redis_url *u, const char *url)
{
    bool read = false;

    memset(u, 0, sizeof *u);
    if (strncmp(url, "redis://", 8) == 0) {
        read = tcp(u, url + 8);
    } else if (strncmp(url, "rediss://", 9) == 0) {
        u->tls = true;
        read = tcp(u, url + 9);
    } else if (strncmp(url, "unix://", 7) == 0) {
        read = local(u, url + 7);
    }
    return read ? NULL : TAKES;
}
