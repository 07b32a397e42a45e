/* SHA-256 (FIPS 180-4), HMAC (RFC 2104) and HKDF (RFC 5869) without an allocation and
 * without a way to fail.
 *
 * OpenSSL's block function does the work, through its plain SHA256_CTX: a keyed HMAC is
 * then two structs that are copied, 0.2 us a head, where EVP_MAC allocates and fetches,
 * can fail in the middle of a send, and one-shot HMAC() costs five times as much (see
 * `make bench`). The calls are marked deprecated in OpenSSL 3 in favour of EVP; they are
 * in every 3.x that Debian and Ubuntu ship.
 */
#ifndef PEERAGE_HMAC_H
#define PEERAGE_HMAC_H

#include <openssl/sha.h>

#include "base.h"

#define HMAC_BYTES 32u

/* The hash's states after the padded key: key material, to be wiped. */
struct hmac_key {
    SHA256_CTX inner, outer;
};

void hmac_init(struct hmac_key *, struct span key);

/* HMAC of `a` followed by `b`, which is at most a block: 64 bytes. */
void hmac_sign(const struct hmac_key *, struct span a, struct span b, uint8_t out[HMAC_BYTES]);

/* Extract and expand; at most 255 * HMAC_BYTES bytes. */
void hmac_derive(struct span secret, struct span salt, struct span info, uint8_t *out,
                 size_t bytes);

/* SHA-256 itself. */
void hmac_digest(struct span, uint8_t out[SHA256_DIGEST_LENGTH]);

#endif
