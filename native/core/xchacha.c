/* XChaCha20-Poly1305 (see xchacha.h). */
#include "xchacha.h"

#include <openssl/evp.h>
#include <sodium.h>

#include "mem.h"
#include "wire.h"

bool xchacha_init(struct xchacha *x)
{
    memset(x, 0, sizeof *x);
    x->cipher = EVP_CIPHER_CTX_new();
    return x->cipher && EVP_CipherInit_ex(x->cipher, EVP_chacha20_poly1305(), NULL, NULL, NULL, 1);
}

void xchacha_deinit(struct xchacha *x)
{
    EVP_CIPHER_CTX_free(x->cipher);     /* wipes its own key */
    memset(x, 0, sizeof *x);
}

static bool aim(struct xchacha *x, struct xchacha_nonce n, bool encrypt)
{
    uint8_t nonce[12], subkey[32];
    struct writer w = writer_of(nonce, sizeof nonce);

    put_u32(&w, 0);
    put_u64(&w, n.counter);
    if (x->key == n.key && memcmp(x->random, n.random, sizeof x->random) == 0)
        return EVP_CipherInit_ex(x->cipher, NULL, NULL, NULL, nonce, encrypt);

    x->key = NULL;
    crypto_core_hchacha20(subkey, n.random, n.key, NULL);
    bool ok = EVP_CipherInit_ex(x->cipher, NULL, NULL, subkey, nonce, encrypt);
    mem_wipe(subkey, sizeof subkey);
    if (ok) {
        x->key = n.key;
        memcpy(x->random, n.random, sizeof x->random);
    }
    return ok;
}

static bool bind(struct xchacha *x, struct span s)
{
    int n;
    return s.bytes == 0 || EVP_CipherUpdate(x->cipher, NULL, &n, s.at, (int)s.bytes);
}

static bool run(struct xchacha *x, struct span in, uint8_t *out)
{
    int n;
    return (in.bytes == 0 || EVP_CipherUpdate(x->cipher, out, &n, in.at, (int)in.bytes)) &&
           EVP_CipherFinal_ex(x->cipher, out + in.bytes, &n);
}

bool xchacha_encrypt(struct xchacha *x, struct xchacha_nonce n, struct span a, struct span b,
                     struct span in, uint8_t *out)
{
    return aim(x, n, true) && bind(x, a) && bind(x, b) && run(x, in, out) &&
           EVP_CIPHER_CTX_ctrl(x->cipher, EVP_CTRL_AEAD_GET_TAG, XCHACHA_TAG_BYTES,
                               out + in.bytes);
}

bool xchacha_decrypt(struct xchacha *x, struct xchacha_nonce n, struct span a, struct span b,
                     struct span in, uint8_t *out)
{
    uint8_t tag[XCHACHA_TAG_BYTES];

    if (in.bytes < sizeof tag)
        return false;
    in.bytes -= sizeof tag;
    memcpy(tag, in.at + in.bytes, sizeof tag);
    return aim(x, n, false) &&
           EVP_CIPHER_CTX_ctrl(x->cipher, EVP_CTRL_AEAD_SET_TAG, sizeof tag, tag) &&
           bind(x, a) && bind(x, b) && run(x, in, out);
}
