/* Checking what a node was given (see settings.h). */
#include "shell/settings.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/err.h"
#include "core/mem.h"
#include "shell/sockets.h"

#define CACHE_BYTES_MIN 65536u
#define SPIN_US_MAX 200         /* more helps nobody, and costs where processors are short */
#define SHOWN_BYTES_MAX 60      /* of a wrong value, in a line */

static const char allowed_default[] =
    "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,127.0.0.0/8,::1,fc00::/7,fe80::/10";

__attribute__((format(printf, 2, 3)))
static int wrong(char line[PEERAGE_LINE_MAX], const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, PEERAGE_LINE_MAX, format, arguments);
    va_end(arguments);
    return ERR_SETTING;
}

/* The beginning of a wrong value, which may hold anything, as one line of UTF-8: no sequence
 * is cut in the middle. */
static const char *show(const char *got, char out[4 * SHOWN_BYTES_MAX + 1])
{
    size_t bytes = strnlen(got, SHOWN_BYTES_MAX + 1), used = 0;

    if (bytes > SHOWN_BYTES_MAX)
        for (bytes--; bytes && ((uint8_t)got[bytes] & 0xc0) == 0x80; bytes--)
            ;
    for (size_t i = 0; i < bytes; i++) {
        bool control = (uint8_t)got[i] < ' ' || got[i] == 0x7f;
        used += (size_t)sprintf(out + used, control ? "\\x%02x" : "%c", (uint8_t)got[i]);
    }
    out[used] = 0;
    return out;
}

static int wrong_text(char line[PEERAGE_LINE_MAX], const char *name, const char *got,
                      const char *takes)
{
    char shown[4 * SHOWN_BYTES_MAX + 1];

    return wrong(line, "%s: got \"%s\"%s, takes %s", name, show(got, shown),
                 strlen(got) > SHOWN_BYTES_MAX ? "..." : "", takes);
}

/* The next item of a comma-separated list, blanks around it cut; false at the end.
 * Too long an item is given cut: it will not parse. */
static bool next_item(const char **list, char *out, size_t room)
{
    const char *at = *list;

    while (*at == ',' || *at == ' ' || *at == '\t')
        at++;
    if (!*at)
        return false;
    size_t bytes = strcspn(at, ",");
    *list = at + bytes;
    while (bytes && (at[bytes - 1] == ' ' || at[bytes - 1] == '\t'))
        bytes--;
    if (bytes >= room)
        bytes = room - 1;
    memcpy(out, at, bytes);
    out[bytes] = 0;
    return true;
}

static bool read_port(const char *text, uint16_t *out)
{
    unsigned value = 0;

    if (!*text || strlen(text) > 5)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (unsigned)(*text - '0');
    }
    *out = (uint16_t)value;
    return value >= 1 && value <= UINT16_MAX;
}

static bool is_name(const char *text)
{
    size_t label = 0;
    bool letters = false;

    if (!*text || strlen(text) >= HOST_BYTES_MAX)
        return false;
    for (const char *c = text; *c; c++) {
        bool alpha = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
        bool digit = *c >= '0' && *c <= '9';
        if (*c == '.') {
            if (!label || c[-1] == '-')
                return false;
            label = 0;
            continue;
        }
        if (!(alpha || digit || (*c == '-' && label)) || ++label > 63)
            return false;
        letters |= alpha;
    }
    /* "10.0.0" is a typing error, not a name */
    return letters && text[strlen(text) - 1] != '-';
}

static bool read_seed(const char *text, struct peer_seed *out)
{
    char host[HOST_BYTES_MAX + 8];

    memset(out, 0, sizeof *out);
    if (addr_parse(text, &out->addr)) {
        out->port = out->addr.port;
        /* "1.2.3.4:0" would read as a bare address */
        size_t bytes = strlen(text);
        return out->port || bytes < 2 || text[bytes - 1] != '0' || text[bytes - 2] != ':' ||
               strchr(text, ':') != text + bytes - 2;
    }
    snprintf(host, sizeof host, "%s", text);
    char *colon = strrchr(host, ':');
    if (colon) {
        if (!read_port(colon + 1, &out->port))
            return false;
        *colon = 0;
    }
    if (!is_name(host))
        return false;
    memcpy(out->host, host, strlen(host) + 1);
    return true;
}

static int read_seeds(struct settings *s, const char *list, char line[PEERAGE_LINE_MAX])
{
    char item[HOST_BYTES_MAX + 8];

    while (next_item(&list, item, sizeof item)) {
        /* one place is the own host's range, one is for what Redis knows */
        if (s->seed_count >= SEEDS_MAX - 2)
            return wrong(line, "PEERS: got more than %u entries, takes at most that many",
                         SEEDS_MAX - 2);
        if (!read_seed(item, &s->seeds[s->seed_count]))
            return wrong_text(line, "PEERS", item,
                              "addresses: host:port, [v6]:port, a bare address or a name");
        s->seed_count++;
    }
    return 0;
}

static int read_cidrs(struct settings *s, const char *list, char line[PEERAGE_LINE_MAX])
{
    char item[64], shown[4 * SHOWN_BYTES_MAX + 1];

    s->allow_written = list && *list;
    if (!s->allow_written)
        list = allowed_default;
    while (next_item(&list, item, sizeof item)) {
        if (s->allowed_count >= CIDRS_MAX)
            return wrong(line, "PEER_ALLOW_CIDR: got more than %u blocks, takes at most that many",
                         CIDRS_MAX);
        const char *why = cidr_parse(item, &s->allowed[s->allowed_count]);
        if (why)
            return wrong(line, "PEER_ALLOW_CIDR: got \"%s\" (%s), takes blocks such as 10.0.0.0/8",
                         show(item, shown), why);
        s->allowed_count++;
    }
    return 0;
}

static int read_seconds(double got, double max, const char *name, uint32_t *out_ms,
                        char line[PEERAGE_LINE_MAX])
{
    /* written so that NaN fails too */
    if (!(got >= 0.001 && got <= max))
        return wrong(line, "%s: got %g, takes seconds from 0.001 to %g", name, got, max);
    *out_ms = (uint32_t)(got * 1000 + 0.5);
    return 0;
}

static int read_numbers(struct settings *s, const struct peerage_options *o,
                        char line[PEERAGE_LINE_MAX])
{
    if (o->port < 1 || o->port > UINT16_MAX)
        return wrong(line, "PEER_PORT: got %d, takes a port from 1 to 65535", o->port);
    if (o->port_range < 1 || o->port_range > 1024)
        return wrong(line, "PEER_PORT_RANGE: got %d, takes a number from 1 to 1024", o->port_range);
    if (o->port + o->port_range - 1 > UINT16_MAX)
        return wrong(line, "PEER_PORT_RANGE: got %d ports from %d up, takes a range that ends at "
                     "65535 or before", o->port_range, o->port);
    s->port = (uint16_t)o->port;
    s->port_range = (unsigned)o->port_range;
    if (o->cache_bytes < CACHE_BYTES_MIN || o->cache_bytes > SIZE_MAX / 4)
        return wrong(line, "PEER_CACHE_BYTES: got %llu, takes bytes from %u up",
                     (unsigned long long)o->cache_bytes, CACHE_BYTES_MIN);
    s->cache_bytes = (size_t)o->cache_bytes;
    if (o->spin_us < 0 || o->spin_us > SPIN_US_MAX)
        return wrong(line, "PEER_SPIN_US: got %d, takes microseconds from 0 to %d", o->spin_us,
                     SPIN_US_MAX);
    s->spin_us = (uint32_t)o->spin_us;
    int rc = read_seconds(o->timeout_s, 60, "PEER_TIMEOUT", &s->timeout_ms, line);
    return rc ? rc : read_seconds(o->load_timeout_s, 3600, "PEER_LOAD_TIMEOUT",
                                  &s->load_timeout_ms, line);
}

static int read_listen(struct settings *s, const char *text, char line[PEERAGE_LINE_MAX])
{
    if (!addr_parse(text, &s->listen) || s->listen.port)
        return wrong_text(line, "PEER_LISTEN", text, "an address without a port, such as 0.0.0.0");
    return 0;
}

static int read_advertise(struct settings *s, const char *text, char line[PEERAGE_LINE_MAX])
{
    if (!text || !*text)
        return 0;
    if (!addr_parse(text, &s->advertise) || s->advertise.port || addr_is_zero(&s->advertise))
        return wrong_text(line, "PEER_ADVERTISE_ADDR", text,
                          "an address that others reach, without a port");
    if (addr_is_v4(&s->listen) && !addr_is_v4(&s->advertise))
        return wrong_text(line, "PEER_ADVERTISE_ADDR", text,
                          "an IPv4 address where PEER_LISTEN is one (PEER_LISTEN=:: hears both)");
    s->advertise_given = true;
    return 0;
}

/* What it got is never shown: a password may be in it. */
static int read_redis(struct settings *s, const struct peerage_options *o,
                      char line[PEERAGE_LINE_MAX])
{
    const char *prefix = o->redis_prefix ? o->redis_prefix : "";

    s->redis_given = o->redis_url && *o->redis_url;
    if (!s->redis_given)
        return 0;
    const char *takes = redis_url_read(&s->redis, o->redis_url);
    if (takes)
        return wrong(line, "REDIS_URL: got something else (not shown), takes %s", takes);
    if (!*prefix || strlen(prefix) >= sizeof s->redis_prefix)
        return wrong_text(line, "PEER_REDIS_PREFIX", prefix, "1 to 128 characters");
    memcpy(s->redis_prefix, prefix, strlen(prefix) + 1);
    return 0;
}

int settings_read(struct settings *s, const struct peerage_options *o, char line[PEERAGE_LINE_MAX])
{
    int rc;

    memset(s, 0, sizeof *s);
    s->enabled = o->enabled;
    s->heir = o->heir;
    s->coordinate = o->coordinate;
    s->observer = o->observer;
    s->encryption = o->encryption;
    s->unix_sockets = o->unix_sockets;
    if (strlen(o->label) == 0 || strlen(o->label) >= sizeof s->label)
        return wrong_text(line, "PEER_LABEL", o->label, "1 to 255 characters");
    memcpy(s->label, o->label, strlen(o->label) + 1);
    if ((rc = read_numbers(s, o, line)) || (rc = read_listen(s, o->listen, line)) ||
        (rc = read_advertise(s, o->advertise, line)) ||
        (rc = read_cidrs(s, o->allow_cidr, line)) ||
        (rc = read_seeds(s, o->peers ? o->peers : "", line)) || (rc = read_redis(s, o, line)))
        return rc;
    if (!s->enabled && !(s->redis_given && s->encryption))
        return 0;
    if (!o->secret || !*o->secret)
        return wrong(line, "PEER_SECRET: got nothing, takes 64 hex characters "
                     "(openssl rand -hex 32)");
    const char *why = seal_init(&s->seal, span_text(o->secret), span_text(s->label),
                                s->encryption ? FRAME_AEAD : FRAME_HMAC);
    if (why)
        return wrong(line, "PEER_SECRET: got %zu characters (%s), takes 64 hex characters "
                     "(openssl rand -hex 32), or two such as new,old", strlen(o->secret), why);
    s->sealed = true;
    return 0;
}

void settings_deinit(struct settings *s)
{
    if (s->sealed)
        seal_deinit(&s->seal);
    mem_wipe(s, sizeof *s);
}

/* The address to advertise. */

static bool inside(const struct settings *s, const struct addr *a)
{
    for (unsigned i = 0; i < s->allowed_count; i++) {
        if (cidr_contains(&s->allowed[i], a))
            return true;
    }
    return false;
}

bool settings_allow(const struct settings *s, const struct addr *own_hosts, size_t own_count,
                    const struct addr *a)
{
    if (inside(s, a))
        return true;
    for (size_t i = 0; i < own_count; i++) {
        if (addr_same_host(&own_hosts[i], a))
            return true;
    }
    return false;
}

static void set_text(struct addr *out, const char *text)
{
    bool read = addr_parse(text, out);
    assert(read);
    (void)read;
}

/* A connected UDP socket tells the source; the targets need not exist. */
static bool default_source(const struct settings *s, struct addr *out)
{
    struct addr somewhere;

    if (!addr_is_v4(&s->listen) && !addr_is_zero(&s->listen)) {
        set_text(&somewhere, "2001:db8::1");
        return sockets_source_towards(&somewhere, out);
    }
    set_text(&somewhere, "198.51.100.1");
    return sockets_source_towards(&somewhere, out);
}

static bool only_loopback_seeds(const struct settings *s)
{
    for (unsigned i = 0; i < s->seed_count; i++) {
        if (s->seeds[i].host[0] || !addr_is_loopback(&s->seeds[i].addr))
            return false;
    }
    return true;
}

int settings_advertise(const struct settings *s, struct addr *out, char said[PEERAGE_LINE_MAX],
                       char line[PEERAGE_LINE_MAX])
{
    char text[ADDR_TEXT_MAX];

    said[0] = 0;
    if (s->advertise_given) {
        *out = s->advertise;
    } else if (!addr_is_zero(&s->listen)) {
        *out = s->listen;
    } else if (s->seed_count && only_loopback_seeds(s)) {
        set_text(out, "127.0.0.1");
    } else if (!default_source(s, out)) {
        bool found = false;
        for (unsigned i = 0; !found && i < s->seed_count; i++)
            found = !s->seeds[i].host[0] && sockets_source_towards(&s->seeds[i].addr, out);
        if (!found)
            set_text(out, "127.0.0.1");
    }
    if (inside(s, out) || addr_is_loopback(out))
        return 0;
    if (s->advertise_given || s->seed_count)
        return wrong(line, "PEER_ADVERTISE_ADDR: got %s, which is outside PEER_ALLOW_CIDR: takes an "
                     "address inside it, or a PEER_ALLOW_CIDR that contains this one",
                     addr_format(out, text));
    snprintf(said, PEERAGE_LINE_MAX, "This host's address %s is outside PEER_ALLOW_CIDR and PEERS "
             "is empty: this node advertises 127.0.0.1 and finds peers on this host only",
             addr_format(out, text));
    set_text(out, "127.0.0.1");
    return 0;
}
