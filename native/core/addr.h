/* A node's address: IPv4 or IPv6 and a port, as numbers. IPv4 is kept mapped
 * into IPv6 (::ffff:a.b.c.d), so that a v4-mapped address *is* the IPv4 address
 * (rule M9) and one comparison serves both families.
 */
#ifndef PEERAGE_ADDR_H
#define PEERAGE_ADDR_H

#include "base.h"

struct addr {
    uint8_t ip[16];
    uint16_t port;      /* host order; 0 = none */
};

#define ADDR_TEXT_MAX 56    /* "[v6]:port" and the zero */

bool addr_is_v4(const struct addr *);
bool addr_is_loopback(const struct addr *);
bool addr_is_zero(const struct addr *);
bool addr_equal(const struct addr *, const struct addr *);          /* ip and port */
bool addr_same_host(const struct addr *, const struct addr *);      /* ip alone */

/* Order by family (IPv4 first), address bytes, port, all as numbers:
 * 10.0.0.9 < 10.0.0.108 (rule M8). <0, 0, >0 like memcmp. */
int addr_compare(const struct addr *, const struct addr *);

/* "10.0.0.1:7946" or "[fd00::1]:7946"; the port is left out when it is 0.
 * Returns `out`. */
const char *addr_format(const struct addr *, char out[ADDR_TEXT_MAX]);

/* Read a numeric address: "1.2.3.4", "1.2.3.4:5", "::1", "[::1]", "[::1]:5".
 * Without a port, port is 0. False if the text is not one; *out is then untouched. */
bool addr_parse(const char *text, struct addr *out);

/* A block of addresses. */
struct cidr {
    uint8_t ip[16];
    uint8_t bits;       /* 0..128; an IPv4 block's bits + 96 */
};

bool cidr_contains(const struct cidr *, const struct addr *);

/* Read "10.0.0.0/8" or "fc00::/7"; a bare address is a block of one.
 * NULL when read, else what is wrong, as a constant text
 * ("not an address", "bits out of range", "host bits set"). */
const char *cidr_parse(const char *text, struct cidr *out);

#endif
