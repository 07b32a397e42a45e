/* Keys, heads and values (see seal.h).
 *
 * Why OpenSSL's calls can only fail for want of memory here: algorithm, key and nonce
 * lengths are constants, so what is left is the context and its provider's state.
 */
#include "seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sodium.h>

#include "err.h"
#include "mem.h"
#include "wire.h"

#define SECRET_BYTES 32u
#define NO_KEY SECRETS_MAX

struct seal_session {
    const struct seal *seal;
    EVP_CIPHER_CTX *cipher;             /* NULL in the clear mode */
    unsigned key;                       /* what `cipher` is keyed for, or NO_KEY, */
    uint8_t random[FRAME_RANDOM_BYTES]; /* and with which nonce prefix */
    /* The last head, for the value behind it. */
    bool value_due;
    unsigned value_key;
    uint8_t value_random[FRAME_RANDOM_BYTES];
    uint64_t value_counter;
    uint8_t value_bound[SEAL_TAG_AEAD_BYTES];
    uint8_t fields[HEAD_BYTES_MAX];     /* decrypted, until its tag is known to be good */
};

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_secret(struct span hex, uint8_t out[SECRET_BYTES])
{
    if (hex.bytes != 2 * SECRET_BYTES)
        return false;
    for (size_t i = 0; i < SECRET_BYTES; i++) {
        int high = hex_digit(hex.at[2 * i]), low = hex_digit(hex.at[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static void derive(struct seal_key *k, const uint8_t secret[SECRET_BYTES])
{
    struct span from = span_of(secret, SECRET_BYTES);
    uint8_t hmac[HMAC_BYTES];

    hmac_derive(from, SPAN_NONE, span_text("peerage v1 hmac"), hmac, sizeof hmac);
    hmac_init(&k->hmac, span_of(hmac, sizeof hmac));
    hmac_derive(from, SPAN_NONE, span_text("peerage v1 aead"), k->aead, sizeof k->aead);
    hmac_derive(from, SPAN_NONE, span_text("peerage v1 redis"), k->redis, sizeof k->redis);
    hmac_derive(from, SPAN_NONE, span_text("peerage v1 id"), &k->id, sizeof k->id);
    mem_wipe(hmac, sizeof hmac);
}

const char *seal_init(struct seal *s, struct span secret, struct span label, enum frame_mode mode)
{
    uint8_t bytes[SECRET_BYTES], hash[crypto_generichash_BYTES_MAX];

    memset(s, 0, sizeof *s);
    s->mode = mode;
    crypto_generichash(hash, sizeof hash, label.at, label.bytes, NULL, 0);
    memcpy(s->label, hash, sizeof s->label);

    for (;;) {
        const uint8_t *comma = secret.bytes ? memchr(secret.at, ',', secret.bytes) : NULL;
        size_t chars = comma ? (size_t)(comma - secret.at) : secret.bytes;

        if (s->key_count == SECRETS_MAX || !read_secret(span_of(secret.at, chars), bytes)) {
            seal_deinit(s);
            mem_wipe(bytes, sizeof bytes);
            return "takes 64 hexadecimal characters, or two such secrets joined by a comma";
        }
        derive(&s->keys[s->key_count++], bytes);
        if (!comma)
            break;
        secret = span_of(comma + 1, secret.bytes - chars - 1);
    }
    mem_wipe(bytes, sizeof bytes);
    return NULL;
}

void seal_deinit(struct seal *s)
{
    mem_wipe(s, sizeof *s);
}

struct seal_session *seal_session_new(const struct seal *seal)
{
    struct seal_session *s = mem_zalloc(sizeof *s);

    if (!s)
        return NULL;
    s->seal = seal;
    s->key = NO_KEY;
    if (seal->mode == FRAME_AEAD) {
        s->cipher = EVP_CIPHER_CTX_new();
        if (!s->cipher || !EVP_CipherInit_ex(s->cipher, EVP_chacha20_poly1305(), NULL, NULL,
                                             NULL, 1)) {
            seal_session_free(s);
            return NULL;
        }
    }
    return s;
}

void seal_session_free(struct seal_session *s)
{
    if (!s)
        return;
    EVP_CIPHER_CTX_free(s->cipher);     /* wipes its own key */
    mem_wipe(s, sizeof *s);
    mem_free(s);
}

/* Point the cipher at one nonce: the subkey is made anew only for another secret or
 * another sender's random. */
static bool aim(struct seal_session *s, unsigned key, const uint8_t random[FRAME_RANDOM_BYTES],
                uint64_t counter, bool encrypt)
{
    uint8_t nonce[12], subkey[32];
    struct writer w = writer_of(nonce, sizeof nonce);

    put_u32(&w, 0);
    put_u64(&w, counter);
    if (s->key == key && memcmp(s->random, random, FRAME_RANDOM_BYTES) == 0)
        return EVP_CipherInit_ex(s->cipher, NULL, NULL, NULL, nonce, encrypt);

    s->key = NO_KEY;
    crypto_core_hchacha20(subkey, random, s->seal->keys[key].aead, NULL);
    bool ok = EVP_CipherInit_ex(s->cipher, NULL, NULL, subkey, nonce, encrypt);
    mem_wipe(subkey, sizeof subkey);
    if (ok) {
        s->key = key;
        memcpy(s->random, random, sizeof s->random);
    }
    return ok;
}

/* Associated data in one or two parts; either may be empty. */
static bool associate(struct seal_session *s, struct span a, struct span b)
{
    int n;

    return (!a.bytes || EVP_CipherUpdate(s->cipher, NULL, &n, a.at, (int)a.bytes)) &&
           (!b.bytes || EVP_CipherUpdate(s->cipher, NULL, &n, b.at, (int)b.bytes));
}

static bool encrypt(struct seal_session *s, struct span in, uint8_t *out)
{
    int n;

    return (!in.bytes || EVP_CipherUpdate(s->cipher, out, &n, in.at, (int)in.bytes)) &&
           EVP_CipherFinal_ex(s->cipher, out + in.bytes, &n) &&
           EVP_CIPHER_CTX_ctrl(s->cipher, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG_AEAD_BYTES,
                               out + in.bytes);
}

/* `in` ends with the tag. */
static bool decrypt(struct seal_session *s, struct span in, uint8_t *out)
{
    size_t bytes = in.bytes - SEAL_TAG_AEAD_BYTES;
    uint8_t tag[SEAL_TAG_AEAD_BYTES];
    int n;

    memcpy(tag, in.at + bytes, sizeof tag);
    return EVP_CIPHER_CTX_ctrl(s->cipher, EVP_CTRL_AEAD_SET_TAG, sizeof tag, tag) &&
           (!bytes || EVP_CipherUpdate(s->cipher, out, &n, in.at, (int)bytes)) &&
           EVP_CipherFinal_ex(s->cipher, out + bytes, &n);
}

static void expect_value(struct seal_session *s, const struct frame *f, unsigned key,
                         const uint8_t *head)
{
    s->value_due = true;
    s->value_key = key;
    memcpy(s->value_random, f->random, sizeof s->value_random);
    s->value_counter = f->counter + 1;
    memcpy(s->value_bound, head + f->head_bytes - SEAL_TAG_AEAD_BYTES, SEAL_TAG_AEAD_BYTES);
}

int seal_head(struct seal_session *s, const struct frame *f, uint8_t *head, struct span bound)
{
    size_t clear = f->head_bytes - seal_tag_bytes(s->seal->mode);

    assert(f->mode == s->seal->mode && f->key_id == s->seal->keys[0].id);
    assert(f->head_bytes <= HEAD_BYTES_MAX && clear >= FRAME_FIXED_BYTES);
    assert(bound.bytes <= SEAL_BOUND_BYTES_MAX);
    s->value_due = false;
    if (s->seal->mode == FRAME_HMAC) {
        hmac_sign(&s->seal->keys[0].hmac, span_of(head, clear), bound, head + clear);
        return 0;
    }
    if (!aim(s, 0, f->random, f->counter, true) ||
        !associate(s, span_of(head, FRAME_FIXED_BYTES), bound) ||
        !encrypt(s, span_of(head + FRAME_FIXED_BYTES, clear - FRAME_FIXED_BYTES),
                 head + FRAME_FIXED_BYTES))
        return ERR_NOMEM;
    expect_value(s, f, 0, head);
    return 0;
}

static bool open_with(struct seal_session *s, unsigned key, const struct frame *f, uint8_t *head,
                      struct span bound)
{
    size_t clear = f->head_bytes - seal_tag_bytes(s->seal->mode);

    if (s->seal->mode == FRAME_HMAC) {
        uint8_t tag[HMAC_BYTES];
        hmac_sign(&s->seal->keys[key].hmac, span_of(head, clear), bound, tag);
        return seal_equal(tag, head + clear, sizeof tag);
    }
    /* Into a buffer of our own first: a failed try must leave the bytes for the next key. */
    if (!aim(s, key, f->random, f->counter, false) ||
        !associate(s, span_of(head, FRAME_FIXED_BYTES), bound) ||
        !decrypt(s, span_of(head + FRAME_FIXED_BYTES, f->head_bytes - FRAME_FIXED_BYTES),
                 s->fields))
        return false;
    memcpy(head + FRAME_FIXED_BYTES, s->fields, clear - FRAME_FIXED_BYTES);
    expect_value(s, f, key, head);
    return true;
}

enum verdict seal_open_head(struct seal_session *s, const struct frame *f, uint8_t *head,
                            struct span bound)
{
    s->value_due = false;
    if (f->mode != s->seal->mode ||
        f->head_bytes < FRAME_FIXED_BYTES + seal_tag_bytes(s->seal->mode) ||
        f->head_bytes > HEAD_BYTES_MAX)
        return VERDICT_TAG;
    for (unsigned i = 0; i < s->seal->key_count; i++) {
        if (s->seal->keys[i].id == f->key_id && open_with(s, i, f, head, bound))
            return VERDICT_OK;
    }
    return VERDICT_TAG;
}

int seal_value(struct seal_session *s, struct span in, uint8_t *out)
{
    assert(s->value_due && in.bytes <= FRAME_BYTES_MAX);
    s->value_due = false;
    if (!aim(s, s->value_key, s->value_random, s->value_counter, true) ||
        !associate(s, span_of(s->value_bound, sizeof s->value_bound), SPAN_NONE) ||
        !encrypt(s, in, out))
        return ERR_NOMEM;
    return 0;
}

enum verdict seal_open_value(struct seal_session *s, uint8_t *value, size_t bytes)
{
    if (!s->value_due || bytes < SEAL_TAG_AEAD_BYTES || bytes > FRAME_BYTES_MAX)
        return VERDICT_VALUE;
    s->value_due = false;
    if (!aim(s, s->value_key, s->value_random, s->value_counter, false) ||
        !associate(s, span_of(s->value_bound, sizeof s->value_bound), SPAN_NONE) ||
        !decrypt(s, span_of(value, bytes), value))
        return VERDICT_VALUE;
    return VERDICT_OK;
}

void seal_digest(struct span in, uint8_t out[DIGEST_BYTES])
{
    hmac_digest(in, out);
}

void seal_blob_digest(struct blob *b, uint8_t out[DIGEST_BYTES])
{
    if (atomic_load_explicit(&b->digested, memory_order_acquire)) {
        memcpy(out, b->digest, DIGEST_BYTES);
        return;
    }
    seal_digest(blob_span(b), out);
    blob_remember(b, out);
}

bool seal_equal(const void *a, const void *b, size_t bytes)
{
    return CRYPTO_memcmp(a, b, bytes) == 0;
}

#define REST_VERSION 1u
#define REST_NONCE_BYTES 24u

/* libsodium's own AEAD: off the request's path, and it needs no context. What is bound
 * in is the version and the name, put together where the caller can't see it. */
static uint8_t *bind_name(struct span name, size_t *bytes)
{
    uint8_t *bound = mem_alloc(1 + name.bytes);

    if (!bound)
        return NULL;
    bound[0] = REST_VERSION;
    if (name.bytes)
        memcpy(bound + 1, name.at, name.bytes);
    *bytes = 1 + name.bytes;
    return bound;
}

int seal_rest(const struct seal *s, struct span name, const uint8_t nonce[24], struct span in,
              uint8_t *out)
{
    size_t bytes;
    uint8_t *bound = bind_name(name, &bytes);

    if (!bound)
        return ERR_NOMEM;
    out[0] = REST_VERSION;
    memcpy(out + 1, nonce, REST_NONCE_BYTES);
    crypto_aead_xchacha20poly1305_ietf_encrypt(out + 1 + REST_NONCE_BYTES, NULL, in.at, in.bytes,
                                               bound, bytes, NULL, nonce, s->keys[0].redis);
    mem_free(bound);
    return 0;
}

long seal_rest_open(const struct seal *s, struct span name, struct span in, uint8_t *out)
{
    size_t bytes;
    uint8_t *bound;
    long opened = -1;

    if (in.bytes < SEAL_REST_BYTES || in.bytes > FRAME_BYTES_MAX + SEAL_REST_BYTES ||
        in.at[0] != REST_VERSION || !(bound = bind_name(name, &bytes)))
        return -1;
    struct span sealed = span_of(in.at + 1 + REST_NONCE_BYTES, in.bytes - 1 - REST_NONCE_BYTES);
    for (unsigned i = 0; i < s->key_count && opened < 0; i++) {
        if (crypto_aead_xchacha20poly1305_ietf_decrypt(out, NULL, NULL, sealed.at, sealed.bytes,
                                                       bound, bytes, in.at + 1,
                                                       s->keys[i].redis) == 0)
            opened = (long)(in.bytes - SEAL_REST_BYTES);
    }
    mem_free(bound);
    return opened;
}
