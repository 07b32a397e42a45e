/* XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03) with a nonce of 16 random bytes and a
 * big-endian 64-bit counter.
 *
 * Done as HChaCha20 (libsodium) of key and random for a subkey, and OpenSSL's
 * ChaCha20-Poly1305 (RFC 8439) under nonce 00000000 || counter: byte for byte what
 * libsodium's own AEAD makes, three times as fast at 56 KB (`make bench`). The subkey is
 * made once for a random, and the cipher's context is kept: a connection then pays for
 * neither.
 */
#ifndef PEERAGE_XCHACHA_H
#define PEERAGE_XCHACHA_H

#include "base.h"

#define XCHACHA_RANDOM_BYTES 16u
#define XCHACHA_TAG_BYTES 16u

struct xchacha {
    struct evp_cipher_ctx_st *cipher;
    const uint8_t *key;                     /* what `cipher` is keyed for, or NULL, */
    uint8_t random[XCHACHA_RANDOM_BYTES];   /* and with which random */
};

/* Where in the nonce space: `key` is borrowed for as long as the struct xchacha lives
 * (it is recognised by its address). */
struct xchacha_nonce {
    const uint8_t *key;
    const uint8_t *random;
    uint64_t counter;
};

/* False: out of memory. */
bool xchacha_init(struct xchacha *);
void xchacha_deinit(struct xchacha *);      /* wipes; fine after a failed init */

/* `out` takes in.bytes + XCHACHA_TAG_BYTES and may be in.at. The tag covers `a` and `b`
 * as well, as one string. False: out of memory, since lengths and algorithm are fixed. */
bool xchacha_encrypt(struct xchacha *, struct xchacha_nonce, struct span a, struct span b,
                     struct span in, uint8_t *out);

/* `in` ends with the tag; `out` takes in.bytes - XCHACHA_TAG_BYTES and may be in.at.
 * False: it does not verify, and `out` is worthless. */
bool xchacha_decrypt(struct xchacha *, struct xchacha_nonce, struct span a, struct span b,
                     struct span in, uint8_t *out);

#endif
