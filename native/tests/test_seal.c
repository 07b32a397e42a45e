/* Secrets, keys, and what verifies: heads and values in both modes, rotation, rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/err.h"
#include "core/mem.h"
#include "core/seal.h"
#include "tests/hex.h"
#include "tests/openssl_mem.h"

#define SECRET_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define SECRET_B "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define FIELDS "forty-two bytes of fields, more or less so"

static const enum frame_mode modes[] = {FRAME_HMAC, FRAME_AEAD};

static struct seal seal_of(const char *secret, enum frame_mode mode)
{
    struct seal s;
    assert_null(seal_init(&s, span_text(secret), span_text("test"), mode));
    return s;
}

/* A head of our own, sealed; returns its fixed part decoded. */
static struct frame make_head(const struct seal *seal, struct seal_session *session,
                              uint64_t counter, struct span bound, uint8_t *head)
{
    struct frame f = {
        .version = FRAME_VERSION,
        .mode = (uint8_t)seal->mode,
        .kind = 6,
        .key_id = seal->keys[0].id,
        .head_bytes = (uint16_t)(FRAME_FIXED_BYTES + strlen(FIELDS) + seal_tag_bytes(seal->mode)),
        .sender_id = 1,
        .receiver_id = 2,
        .random = {7},
        .counter = counter,
    };
    memcpy(f.label, seal->label, sizeof f.label);
    frame_encode(&f, head);
    memcpy(head + FRAME_FIXED_BYTES, FIELDS, strlen(FIELDS));
    assert_int_equal(seal_head(session, &f, head, bound), 0);
    return f;
}

static enum verdict open_bytes(struct seal_session *session, uint8_t *head, size_t bytes,
                               struct span bound)
{
    struct frame f;
    enum verdict v = frame_decode(span_of(head, bytes), &f);
    return v == VERDICT_OK ? seal_open_head(session, &f, head, bound) : v;
}

static void secrets_are_hexadecimal(void **state)
{
    static const struct { const char *secret; unsigned keys; } table[] = {
        {SECRET_A, 1},
        {"ABCDEFabcdef0607000102030405060708090a0b0c0d0e0f1011121314151617", 1},
        {SECRET_A "," SECRET_B, 2},
        {"", 0},
        {",", 0},
        {SECRET_A ",", 0},
        {"," SECRET_A, 0},
        {SECRET_A "," SECRET_B "," SECRET_A, 0},
        {SECRET_A "0", 0},
        {SECRET_A " ", 0},
        {SECRET_A "\n", 0},
        {SECRET_A "," SECRET_B "0", 0},
        {"00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", 0},  /* 63 */
        {"g00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", 0},
        {"0x0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        struct seal s;
        const char *wrong = seal_init(&s, span_text(table[i].secret), span_text("x"), FRAME_HMAC);
        assert_int_equal(wrong == NULL, table[i].keys != 0);
        if (wrong) {
            static const struct seal wiped;
            assert_null(strstr(wrong, "0102"));     /* nothing of the secret in the text */
            assert_memory_equal(&s, &wiped, sizeof s);
        } else {
            assert_int_equal(s.key_count, table[i].keys);
        }
        seal_deinit(&s);
    }
}

static void purposes_and_labels_differ(void **state)
{
    struct seal s = seal_of(SECRET_A "," SECRET_B, FRAME_AEAD), other;

    (void)state;
    assert_memory_not_equal(s.keys[0].aead, s.keys[0].redis, 32);
    assert_memory_not_equal(s.keys[0].aead, s.keys[1].aead, 32);
    assert_memory_not_equal(s.keys[0].redis, s.keys[1].redis, 32);
    assert_memory_not_equal(&s.keys[0].hmac, &s.keys[1].hmac, sizeof s.keys[0].hmac);
    assert_null(seal_init(&other, span_text(SECRET_A), span_text("tesu"), FRAME_AEAD));
    assert_memory_not_equal(s.label, other.label, sizeof s.label);
}

static void deinit_wipes(void **state)
{
    static const struct seal wiped;
    struct seal s = seal_of(SECRET_A, FRAME_HMAC);

    (void)state;
    seal_deinit(&s);
    assert_memory_equal(&s, &wiped, sizeof s);
}

static void a_head_opens_only_whole_and_unchanged(void **state)
{
    uint8_t head[HEAD_BYTES_MAX], copy[HEAD_BYTES_MAX];
    struct span bound = span_text("both randoms");

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct seal s = seal_of(SECRET_A, modes[i]);
        struct seal_session *out = seal_session_new(&s), *in = seal_session_new(&s);
        struct frame f = make_head(&s, out, 5, bound, head);

        bool readable = memcmp(head + FRAME_FIXED_BYTES, FIELDS, strlen(FIELDS)) == 0;
        assert_int_equal(readable, modes[i] == FRAME_HMAC);
        for (size_t at = 0; at < f.head_bytes; at++) {
            for (unsigned bit = 0; bit < 8; bit++) {
                memcpy(copy, head, f.head_bytes);
                copy[at] ^= (uint8_t)(1u << bit);
                assert_int_not_equal(open_bytes(in, copy, f.head_bytes, bound), VERDICT_OK);
            }
        }
        /* A shorter head whose length field says so is a forgery too. */
        for (size_t n = FRAME_FIXED_BYTES; n < f.head_bytes; n++) {
            memcpy(copy, head, f.head_bytes);
            copy[6] = (uint8_t)(n >> 8);
            copy[7] = (uint8_t)n;
            assert_int_not_equal(open_bytes(in, copy, n, bound), VERDICT_OK);
        }
        memcpy(copy, head, f.head_bytes);
        assert_int_equal(open_bytes(in, copy, f.head_bytes, span_text("other randoms")),
                         VERDICT_TAG);
        assert_memory_equal(copy, head, f.head_bytes);      /* a failed try leaves it alone */
        assert_int_equal(open_bytes(in, copy, f.head_bytes, bound), VERDICT_OK);
        assert_memory_equal(copy + FRAME_FIXED_BYTES, FIELDS, strlen(FIELDS));
        seal_session_free(out);
        seal_session_free(in);
    }
}

static void another_secret_or_mode_does_not_open(void **state)
{
    uint8_t head[HEAD_BYTES_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct seal a = seal_of(SECRET_A, modes[i]), b = seal_of(SECRET_B, modes[i]);
        struct seal other = seal_of(SECRET_A, modes[1 - i]);
        struct seal_session *out = seal_session_new(&a), *in = seal_session_new(&b);
        struct seal_session *in_other = seal_session_new(&other);
        struct frame f = make_head(&a, out, 5, SPAN_NONE, head);

        assert_int_equal(open_bytes(in, head, f.head_bytes, SPAN_NONE), VERDICT_TAG);
        head[5] = b.keys[0].id;     /* not even when the key id names it */
        assert_int_equal(open_bytes(in, head, f.head_bytes, SPAN_NONE), VERDICT_TAG);
        head[5] = a.keys[0].id;
        assert_int_equal(open_bytes(in_other, head, f.head_bytes, SPAN_NONE), VERDICT_TAG);
        seal_session_free(out);
        seal_session_free(in);
        seal_session_free(in_other);
    }
}

/* W7: `old,new` everywhere, then `new,old`, then `new`; neighbours in that order
 * understand each other both ways, and only they do. */
static void rotation_in_three_steps(void **state)
{
    static const char *const steps[] = {
        SECRET_A, SECRET_A "," SECRET_B, SECRET_B "," SECRET_A, SECRET_B,
    };
    uint8_t head[HEAD_BYTES_MAX];

    (void)state;
    for (size_t m = 0; m < ARRAY_COUNT(modes); m++) {
        for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
            for (size_t j = 0; j < ARRAY_COUNT(steps); j++) {
                struct seal from = seal_of(steps[i], modes[m]), to = seal_of(steps[j], modes[m]);
                struct seal_session *out = seal_session_new(&from), *in = seal_session_new(&to);
                struct frame f = make_head(&from, out, 5, SPAN_NONE, head);
                bool same = i / 2 == j / 2, accepts_both = j == 1 || j == 2;

                assert_int_equal(open_bytes(in, head, f.head_bytes, SPAN_NONE),
                                 same || accepts_both ? VERDICT_OK : VERDICT_TAG);
                seal_session_free(out);
                seal_session_free(in);
            }
        }
    }
}

/* Two secrets may share a key id, one time in 256: then both are tried, and the first
 * failed try must not have spoilt the bytes. */
static void secrets_with_one_key_id(void **state)
{
    char secret[2 * 64 + 2] = SECRET_A;
    uint8_t head[HEAD_BYTES_MAX], value[64];
    unsigned n = 0;

    (void)state;
    for (size_t m = 0; m < ARRAY_COUNT(modes); m++) {
        struct seal a = seal_of(SECRET_A, modes[m]), both;
        do {
            snprintf(secret, sizeof secret, "%064x,%s", ++n, SECRET_A);
            both = seal_of(secret, modes[m]);
        } while (both.keys[0].id != both.keys[1].id);

        struct seal_session *out = seal_session_new(&a), *in = seal_session_new(&both);
        struct frame f = make_head(&a, out, 5, SPAN_NONE, head);
        if (modes[m] == FRAME_AEAD)
            assert_int_equal(seal_value(out, span_text("value"), value), 0);
        assert_int_equal(open_bytes(in, head, f.head_bytes, SPAN_NONE), VERDICT_OK);
        assert_memory_equal(head + FRAME_FIXED_BYTES, FIELDS, strlen(FIELDS));
        if (modes[m] == FRAME_AEAD) {
            assert_int_equal(seal_open_value(in, value, 5 + SEAL_TAG_AEAD_BYTES), VERDICT_OK);
            assert_memory_equal(value, "value", 5);
        }
        seal_session_free(out);
        seal_session_free(in);
    }
}

static void a_value_belongs_to_its_head(void **state)
{
    enum { BYTES = 1000, SEALED = BYTES + SEAL_TAG_AEAD_BYTES };
    uint8_t heads[2][HEAD_BYTES_MAX], values[2][SEALED], copy[SEALED], clear[BYTES] = {1, 2, 3};
    struct seal s = seal_of(SECRET_A, FRAME_AEAD);
    struct seal_session *out = seal_session_new(&s), *in = seal_session_new(&s);
    struct frame f[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        f[i] = make_head(&s, out, 5 + 2 * i, SPAN_NONE, heads[i]);
        assert_int_equal(seal_value(out, span_of(clear, BYTES), values[i]), 0);
    }
    memcpy(copy, values[0], SEALED);
    assert_int_equal(seal_open_value(in, copy, SEALED), VERDICT_VALUE);     /* no head yet */

    uint8_t head[HEAD_BYTES_MAX];
    for (size_t at = 0; at < SEALED; at += at < 20 || at >= BYTES ? 1 : 97) {
        memcpy(head, heads[0], f[0].head_bytes);
        assert_int_equal(open_bytes(in, head, f[0].head_bytes, SPAN_NONE), VERDICT_OK);
        memcpy(copy, values[0], SEALED);
        copy[at] ^= 0x80;
        assert_int_equal(seal_open_value(in, copy, SEALED), VERDICT_VALUE);
    }
    static const size_t lengths[] = {0, 1, 15, 16, 17, SEALED - 1};
    for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
        memcpy(head, heads[0], f[0].head_bytes);
        assert_int_equal(open_bytes(in, head, f[0].head_bytes, SPAN_NONE), VERDICT_OK);
        memcpy(copy, values[0], SEALED);
        assert_int_equal(seal_open_value(in, copy, lengths[i]), VERDICT_VALUE);
    }
    /* Another head's value, then the right one, then the right one again. */
    memcpy(head, heads[0], f[0].head_bytes);
    assert_int_equal(open_bytes(in, head, f[0].head_bytes, SPAN_NONE), VERDICT_OK);
    memcpy(copy, values[1], SEALED);
    assert_int_equal(seal_open_value(in, copy, SEALED), VERDICT_VALUE);
    assert_int_equal(open_bytes(in, heads[0], f[0].head_bytes, SPAN_NONE), VERDICT_OK);
    memcpy(copy, values[0], SEALED);
    assert_int_equal(seal_open_value(in, copy, SEALED), VERDICT_OK);
    assert_memory_equal(copy, clear, BYTES);
    memcpy(copy, values[0], SEALED);
    assert_int_equal(seal_open_value(in, copy, SEALED), VERDICT_VALUE);
    seal_session_free(out);
    seal_session_free(in);
}

static void digests_are_remembered(void **state)
{
    uint8_t expected[DIGEST_BYTES], digest[DIGEST_BYTES], told[DIGEST_BYTES] = {9};

    (void)state;
    unhex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", expected,
          sizeof expected);
    struct blob *b = blob_copy(span_text("abc"));
    assert_false(b->digested);
    for (unsigned i = 0; i < 2; i++) {
        seal_blob_digest(b, digest);
        assert_memory_equal(digest, expected, sizeof digest);
        assert_true(b->digested);
    }
    blob_remember(b, told);     /* the first stays */
    seal_blob_digest(b, digest);
    assert_memory_equal(digest, expected, sizeof digest);
    blob_unref(b);

    b = blob_copy(span_text("abc"));
    blob_remember(b, told);     /* not computed where it is known */
    seal_blob_digest(b, digest);
    assert_memory_equal(digest, told, sizeof digest);
    blob_unref(b);
}

static void values_at_rest_are_bound_to_their_name(void **state)
{
    uint8_t nonce[24] = {1, 2, 3}, sealed[100], copy[100], out[100];
    struct seal a = seal_of(SECRET_A, FRAME_AEAD), b = seal_of(SECRET_B, FRAME_AEAD);
    struct seal both = seal_of(SECRET_B "," SECRET_A, FRAME_AEAD);
    struct span name = span_text("peerage:v1:key"), value = span_text("a value");
    size_t bytes = value.bytes + SEAL_REST_BYTES;

    (void)state;
    assert_int_equal(seal_rest(&a, name, nonce, value, sealed), 0);
    assert_int_equal(seal_rest_open(&a, name, span_of(sealed, bytes), out), value.bytes);
    assert_memory_equal(out, value.at, value.bytes);
    assert_int_equal(seal_rest_open(&both, name, span_of(sealed, bytes), out), value.bytes);
    assert_int_equal(seal_rest_open(&b, name, span_of(sealed, bytes), out), -1);
    assert_int_equal(seal_rest_open(&a, span_text("peerage:v1:kex"), span_of(sealed, bytes), out),
                     -1);
    for (size_t n = 0; n < bytes; n++) {
        assert_int_equal(seal_rest_open(&a, name, span_of(sealed, n), out), -1);
        memcpy(copy, sealed, bytes);
        copy[n] ^= 1;
        assert_int_equal(seal_rest_open(&a, name, span_of(copy, bytes), out), -1);
    }
    assert_int_equal(seal_rest(&a, name, nonce, SPAN_NONE, sealed), 0);
    assert_int_equal(seal_rest_open(&a, name, span_of(sealed, SEAL_REST_BYTES), out), 0);
}

static void every_allocation_may_fail(void **state)
{
    uint8_t head[HEAD_BYTES_MAX], nonce[24] = {0}, rest[64];

    (void)state;
    for (size_t m = 0; m < ARRAY_COUNT(modes); m++) {
        struct seal s = seal_of(SECRET_A, modes[m]);
        struct seal_session *session = seal_session_new(&s);    /* OpenSSL's once-only parts */
        make_head(&s, session, 1, SPAN_NONE, head);
        seal_session_free(session);

        mem_fail_after(-1);
        session = seal_session_new(&s);
        long needed = mem_fail_after(-1);
        seal_session_free(session);
        assert_true(needed > 0);
        long refused = 0;
        for (long n = 0; n < needed; n++) {
            mem_fail_after(n);
            session = seal_session_new(&s);
            mem_fail_after(-1);
            refused += session == NULL;
            if (session)    /* OpenSSL can do without some */
                make_head(&s, session, 1, SPAN_NONE, head);
            seal_session_free(session);
        }
        assert_true(refused > 0);
        /* A session that was made seals and opens whatever the heap says, but for the
         * cipher's first use. */
        session = seal_session_new(&s);
        make_head(&s, session, 2, SPAN_NONE, head);
        mem_fail_after(0);
        struct frame f = make_head(&s, session, 3, SPAN_NONE, head);
        enum verdict v = open_bytes(session, head, f.head_bytes, SPAN_NONE);
        mem_fail_after(-1);
        assert_int_equal(v, VERDICT_OK);
        seal_session_free(session);

        mem_fail_after(0);
        int rc = seal_rest(&s, span_text("k"), nonce, span_text("v"), rest);
        mem_fail_after(-1);
        assert_int_equal(rc, ERR_NOMEM);
    }
}

static void comparing_compares(void **state)
{
    (void)state;
    assert_true(seal_equal("abc", "abc", 3));
    assert_true(seal_equal("abc", "abd", 2));
    assert_false(seal_equal("abc", "abd", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_are_hexadecimal),
        cmocka_unit_test(purposes_and_labels_differ),
        cmocka_unit_test(deinit_wipes),
        cmocka_unit_test(a_head_opens_only_whole_and_unchanged),
        cmocka_unit_test(another_secret_or_mode_does_not_open),
        cmocka_unit_test(rotation_in_three_steps),
        cmocka_unit_test(secrets_with_one_key_id),
        cmocka_unit_test(a_value_belongs_to_its_head),
        cmocka_unit_test(digests_are_remembered),
        cmocka_unit_test(values_at_rest_are_bound_to_their_name),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(comparing_compares),
    };
    if (!openssl_use_mem() || sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
