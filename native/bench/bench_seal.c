/* What sealing costs: a head, and a value of 56 KB, ours against libsodium's own AEAD and
 * against OpenSSL's one-shot and EVP ways to the same HMAC, in the same run.
 *
 * Each line is the best of several rounds: the machine's other work only ever adds.
 */
#include <stdio.h>
#include <stdlib.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sodium.h>

#include "bench/bench.h"
#include "core/link.h"

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define WALL_MS UINT64_C(1700000000000)
#define ROUNDS 7
#define ROUND_NS 40000000u
#define VALUE_BYTES (56u << 10)
#define HEAD_BYTES 200u         /* an ASK for a key of 30 bytes, with channel and loader */

static uint8_t value[VALUE_BYTES + SEAL_TAG_AEAD_BYTES], sealed[VALUE_BYTES + SEAL_TAG_AEAD_BYTES];
static uint8_t head[HEAD_BYTES_MAX], key[32], nonce[24], tag[64];
static struct link client, server;
static struct blob *blob;
static EVP_MAC_CTX *mac;

static void check(bool ok)
{
    if (!ok) {
        fprintf(stderr, "bench_seal: a call failed\n");
        exit(1);
    }
}

static double best_ns(void (*run)(void))
{
    double best = 1e18;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin = now_ns(), end;
        unsigned long n = 0;
        do {
            for (int i = 0; i < 8; i++)
                run();
            n += 8;
            end = now_ns();
        } while (end - begin < ROUND_NS);
        if ((double)(end - begin) / (double)n < best)
            best = (double)(end - begin) / (double)n;
    }
    return best;
}

static void print_ns(const char *what, void (*run)(void))
{
    printf("  %-58s %9.0f ns\n", what, best_ns(run));
}

static void print_us(const char *what, void (*run)(void))
{
    printf("  %-58s %9.1f us\n", what, best_ns(run) / 1e3);
}

/* Heads. */

static int send_head(struct blob *with, struct blob **wire)
{
    struct message m = {
        .kind = MESSAGE_ASK, .key = span_text("pages:page:sa_channel_name/n/s"),
        .channel = span_text("a_channel_name"), .loader = span_text("pages:page"),
    };
    int n = link_seal(&client, &m, with, WALL_MS, head, wire);
    check(n > 0);
    return n;
}

static void seal_a_head(void)
{
    struct blob *wire;
    send_head(NULL, &wire);
}

static void seal_and_open_a_head(void)
{
    struct blob *wire;
    struct message m;
    size_t head_bytes, wire_bytes;
    int n = send_head(NULL, &wire);
    check(link_open(&server, head, (size_t)n, WALL_MS, &m, &head_bytes, &wire_bytes) == VERDICT_OK);
}

static void mac_ours(void)
{
    static struct hmac_key k;
    if (k.inner.md_len == 0)
        hmac_init(&k, span_of(key, sizeof key));
    hmac_sign(&k, span_of(head, HEAD_BYTES), SPAN_NONE, tag);
}

static void mac_kept_evp(void)
{
    size_t n;
    check(EVP_MAC_init(mac, NULL, 0, NULL) && EVP_MAC_update(mac, head, HEAD_BYTES) &&
          EVP_MAC_final(mac, tag, &n, sizeof tag));
}

static void mac_one_shot(void)
{
    unsigned n;
    check(HMAC(EVP_sha256(), key, sizeof key, head, HEAD_BYTES, tag, &n) != NULL);
}

static void mac_libsodium(void)
{
    crypto_auth_hmacsha256(tag, head, HEAD_BYTES, key);
}

/* Values. */

static void digest_a_value(void)
{
    seal_digest(span_of(value, VALUE_BYTES), tag);
}

static void mac_a_value(void)
{
    unsigned n;
    check(HMAC(EVP_sha256(), key, sizeof key, value, VALUE_BYTES, tag, &n) != NULL);
}

static void aead_libsodium(void)
{
    crypto_aead_xchacha20poly1305_ietf_encrypt(sealed, NULL, value, VALUE_BYTES, head, 16, NULL,
                                               nonce, key);
}

/* The sending end: a head with a value behind it; in the clear its digest is remembered. */
static void send_a_value(void)
{
    struct blob *wire;
    send_head(blob, &wire);
    blob_unref(wire);
}

static void send_and_take_a_value(void)
{
    struct blob *wire;
    struct message m;
    size_t head_bytes, wire_bytes;
    int n = send_head(blob, &wire);
    check(link_open(&server, head, (size_t)n, WALL_MS, &m, &head_bytes, &wire_bytes) == VERDICT_OK);
    check(link_open_value(&server, &m, blob_fill(wire), wire_bytes) == VERDICT_OK);
    blob_unref(wire);
}

static void connect_ends(struct seal *seal, enum frame_mode mode)
{
    uint8_t challenge[LINK_CHALLENGE_BYTES], ours[16] = {1}, theirs[16] = {2};
    check(seal_init(seal, span_text(SECRET), span_text("bench"), mode) == NULL);
    check(link_init(&client, seal, 1, false, ours) == 0);
    check(link_init(&server, seal, 2, true, theirs) == 0);
    link_challenge(&server, challenge);
    check(link_challenged(&client, challenge) == VERDICT_OK);
    seal_and_open_a_head();
}

static void disconnect_ends(struct seal *seal)
{
    link_deinit(&client);
    link_deinit(&server);
    seal_deinit(seal);
}

int main(void)
{
    struct seal seal;
    EVP_MAC *fetched = EVP_MAC_fetch(NULL, "HMAC", NULL);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string("digest", (char[]){"SHA256"}, 0), OSSL_PARAM_END,
    };

    check(sodium_init() >= 0 && fetched != NULL);
    mac = EVP_MAC_CTX_new(fetched);
    check(mac && EVP_MAC_init(mac, key, sizeof key, params));
    randombytes_buf(value, sizeof value);
    randombytes_buf(key, sizeof key);
    blob = blob_copy(span_of(value, VALUE_BYTES));
    check(blob != NULL);

    printf("HMAC-SHA256 of a head of %u bytes\n", HEAD_BYTES);
    print_ns("kept key (hmac_sign)", mac_ours);
    print_ns("kept EVP_MAC", mac_kept_evp);
    print_ns("one-shot HMAC()", mac_one_shot);
    print_ns("libsodium", mac_libsodium);

    for (int mode = FRAME_HMAC; mode <= FRAME_AEAD; mode++) {
        connect_ends(&seal, (enum frame_mode)mode);
        printf("A frame without a value, %s\n", mode ? "encrypted" : "clear");
        print_ns("sealed", seal_a_head);
        print_ns("sealed and opened", seal_and_open_a_head);
        printf("A frame with a value of 56 KB, %s\n", mode ? "encrypted" : "clear");
        print_us("sent", send_a_value);
        print_us("sent and taken", send_and_take_a_value);
        disconnect_ends(&seal);
    }

    printf("For comparison, on 56 KB\n");
    print_us("SHA-256", digest_a_value);
    print_us("HMAC-SHA256, one-shot", mac_a_value);
    print_us("libsodium's XChaCha20-Poly1305, one direction", aead_libsodium);
    blob_unref(blob);
    EVP_MAC_CTX_free(mac);
    EVP_MAC_free(fetched);
    return 0;
}
