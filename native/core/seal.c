/* Keys, heads and values (see seal.h). */
#include "seal.h"

#include <openssl/crypto.h>
#include <sodium.h>

#include "err.h"
#include "mem.h"
#include "xchacha.h"

#define SECRET_BYTES 32u

/* A frame's nonce is the cipher's, and so is its tag. */
static_assert(FRAME_RANDOM_BYTES == XCHACHA_RANDOM_BYTES, "the random");
static_assert(SEAL_TAG_AEAD_BYTES == XCHACHA_TAG_BYTES, "the tag");

struct seal_session {
    const struct seal *seal;
    struct xchacha cipher;              /* zeroed in the clear mode */
    /* The last head, for the value behind it. */
    bool value_due;
    const uint8_t *value_key;
    uint8_t value_random[FRAME_RANDOM_BYTES];
    uint64_t value_counter;
    uint8_t value_bound[SEAL_TAG_AEAD_BYTES];
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
    if (seal->mode == FRAME_AEAD && !xchacha_init(&s->cipher)) {
        seal_session_free(s);
        return NULL;
    }
    return s;
}

void seal_session_free(struct seal_session *s)
{
    if (!s)
        return;
    xchacha_deinit(&s->cipher);
    mem_wipe(s, sizeof *s);
    mem_free(s);
}

static void expect_value(struct seal_session *s, const struct frame *f, const uint8_t *key,
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
    const struct seal_key *key = &s->seal->keys[0];
    size_t clear = f->head_bytes - seal_tag_bytes(s->seal->mode);

    assert(f->mode == s->seal->mode && f->key_id == key->id);
    assert(f->head_bytes <= HEAD_BYTES_MAX && clear >= FRAME_FIXED_BYTES);
    s->value_due = false;
    if (s->seal->mode == FRAME_HMAC) {
        hmac_sign(&key->hmac, span_of(head, clear), bound, head + clear);
        return 0;
    }
    struct xchacha_nonce nonce = {key->aead, f->random, f->counter};
    struct span fields = span_of(head + FRAME_FIXED_BYTES, clear - FRAME_FIXED_BYTES);
    if (!xchacha_encrypt(&s->cipher, nonce, span_of(head, FRAME_FIXED_BYTES), bound, fields,
                         head + FRAME_FIXED_BYTES))
        return ERR_NOMEM;
    expect_value(s, f, key->aead, head);
    return 0;
}

static bool open_with(struct seal_session *s, const struct seal_key *key, const struct frame *f,
                      uint8_t *head, struct span bound)
{
    size_t clear = f->head_bytes - seal_tag_bytes(s->seal->mode);
    uint8_t fields[HEAD_BYTES_MAX];

    if (s->seal->mode == FRAME_HMAC) {
        uint8_t tag[HMAC_BYTES];
        hmac_sign(&key->hmac, span_of(head, clear), bound, tag);
        return seal_equal(tag, head + clear, sizeof tag);
    }
    /* Into a buffer of our own first: a failed try must leave the bytes for the next key. */
    struct xchacha_nonce nonce = {key->aead, f->random, f->counter};
    struct span sealed = span_of(head + FRAME_FIXED_BYTES, f->head_bytes - FRAME_FIXED_BYTES);
    if (!xchacha_decrypt(&s->cipher, nonce, span_of(head, FRAME_FIXED_BYTES), bound, sealed,
                         fields))
        return false;
    memcpy(head + FRAME_FIXED_BYTES, fields, clear - FRAME_FIXED_BYTES);
    expect_value(s, f, key->aead, head);
    return true;
}

enum verdict seal_open_head(struct seal_session *s, const struct frame *f, uint8_t *head,
                            struct span bound)
{
    s->value_due = false;
    if (f->mode != s->seal->mode || f->head_bytes > HEAD_BYTES_MAX ||
        f->head_bytes < FRAME_FIXED_BYTES + seal_tag_bytes(s->seal->mode))
        return VERDICT_TAG;
    for (unsigned i = 0; i < s->seal->key_count; i++) {
        const struct seal_key *key = &s->seal->keys[i];
        if (key->id == f->key_id && open_with(s, key, f, head, bound))
            return VERDICT_OK;
    }
    return VERDICT_TAG;
}

int seal_value(struct seal_session *s, struct span in, uint8_t *out)
{
    struct xchacha_nonce nonce = {s->value_key, s->value_random, s->value_counter};

    assert(s->value_due && in.bytes <= FRAME_BYTES_MAX);
    s->value_due = false;
    return xchacha_encrypt(&s->cipher, nonce, span_of(s->value_bound, sizeof s->value_bound),
                           SPAN_NONE, in, out) ? 0 : ERR_NOMEM;
}

enum verdict seal_open_value(struct seal_session *s, uint8_t *value, size_t bytes)
{
    struct xchacha_nonce nonce = {s->value_key, s->value_random, s->value_counter};

    if (!s->value_due || bytes > FRAME_BYTES_MAX)
        return VERDICT_VALUE;
    s->value_due = false;
    return xchacha_decrypt(&s->cipher, nonce, span_of(s->value_bound, sizeof s->value_bound),
                           SPAN_NONE, span_of(value, bytes), value) ? VERDICT_OK : VERDICT_VALUE;
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
