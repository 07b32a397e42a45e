/* Addresses and blocks of them (see addr.h). inet_pton and inet_ntop only
 * translate text; nothing here touches a socket.
 */
#include "addr.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

static const uint8_t v4_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
static const uint8_t v6_loopback[16] = {[15] = 1};

bool addr_is_v4(const struct addr *a) { return memcmp(a->ip, v4_mapped, sizeof v4_mapped) == 0; }

bool addr_is_loopback(const struct addr *a)
{
    return addr_is_v4(a) ? a->ip[12] == 127 : memcmp(a->ip, v6_loopback, 16) == 0;
}

bool addr_is_zero(const struct addr *a)
{
    static const uint8_t zero[16];
    return memcmp(a->ip, zero, 16) == 0 || (addr_is_v4(a) && memcmp(a->ip + 12, zero, 4) == 0);
}

bool addr_same_host(const struct addr *a, const struct addr *b)
{
    return memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

bool addr_equal(const struct addr *a, const struct addr *b)
{
    return a->port == b->port && addr_same_host(a, b);
}

int addr_compare(const struct addr *a, const struct addr *b)
{
    int family = (int)addr_is_v4(b) - (int)addr_is_v4(a);
    if (family)
        return family;
    int ip = memcmp(a->ip, b->ip, sizeof a->ip);
    return ip ? ip : (int)a->port - (int)b->port;
}

const char *addr_format(const struct addr *a, char out[ADDR_TEXT_MAX])
{
    char ip[INET6_ADDRSTRLEN];
    bool v4 = addr_is_v4(a);

    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? a->ip + 12 : a->ip, ip, sizeof ip);
    if (a->port == 0)
        snprintf(out, ADDR_TEXT_MAX, "%s", ip);
    else
        snprintf(out, ADDR_TEXT_MAX, v4 ? "%s:%u" : "[%s]:%u", ip, a->port);
    return out;
}

static bool parse_ip(const char *text, size_t chars, uint8_t ip[16])
{
    char buf[INET6_ADDRSTRLEN];
    uint8_t v4[4];

    if (chars == 0 || chars >= sizeof buf)
        return false;
    memcpy(buf, text, chars);
    buf[chars] = 0;
    if (inet_pton(AF_INET, buf, v4) == 1) {
        memcpy(ip, v4_mapped, 12);
        memcpy(ip + 12, v4, 4);
        return true;
    }
    return inet_pton(AF_INET6, buf, ip) == 1;
}

static bool parse_port(const char *text, uint16_t *port)
{
    unsigned value = 0;

    if (*text == 0)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || (value = value * 10 + (unsigned)(*text - '0')) > 65535)
            return false;
    }
    *port = (uint16_t)value;
    return value != 0;
}

bool addr_parse(const char *text, struct addr *out)
{
    struct addr a = {.port = 0};
    const char *colon = strchr(text, ':');

    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        if (!close || !parse_ip(text + 1, (size_t)(close - text - 1), a.ip) || addr_is_v4(&a))
            return false;
        if (close[1] && (close[1] != ':' || !parse_port(close + 2, &a.port)))
            return false;
    } else if (colon && !strchr(colon + 1, ':')) {
        if (!parse_ip(text, (size_t)(colon - text), a.ip) || !parse_port(colon + 1, &a.port))
            return false;
    } else if (!parse_ip(text, strlen(text), a.ip)) {
        return false;
    }
    *out = a;
    return true;
}

/* The address with all bits past the block's length cleared. */
static void mask(uint8_t ip[16], unsigned bits)
{
    for (unsigned i = 0; i < 16; i++) {
        unsigned kept = bits > 8 * i ? bits - 8 * i : 0;
        if (kept < 8)
            ip[i] &= (uint8_t)(0xff00u >> kept);
    }
}

bool cidr_contains(const struct cidr *c, const struct addr *a)
{
    uint8_t ip[16];

    memcpy(ip, a->ip, sizeof ip);
    mask(ip, c->bits);
    return memcmp(ip, c->ip, sizeof ip) == 0;
}

const char *cidr_parse(const char *text, struct cidr *out)
{
    const char *slash = strchr(text, '/');
    size_t chars = slash ? (size_t)(slash - text) : strlen(text);
    struct cidr c;
    struct addr a = {.port = 0};
    uint8_t masked[16];

    if (!parse_ip(text, chars, a.ip))
        return "not an address";
    memcpy(c.ip, a.ip, sizeof c.ip);
    unsigned width = addr_is_v4(&a) ? 32 : 128, bits = width;
    if (slash) {
        char *end;
        unsigned long n = strtoul(slash + 1, &end, 10);
        if (slash[1] < '0' || slash[1] > '9' || *end || n > width)
            return "bits out of range";
        bits = (unsigned)n;
    }
    c.bits = (uint8_t)(128 - width + bits);
    memcpy(masked, c.ip, sizeof masked);
    mask(masked, c.bits);
    if (memcmp(masked, c.ip, sizeof masked) != 0)
        return "host bits set";
    *out = c;
    return NULL;
}
