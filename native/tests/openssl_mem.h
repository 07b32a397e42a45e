/* Send OpenSSL's allocations through the core's door too, so that failing the Nth covers
 * them. Call it first of all: OpenSSL takes it only before its own first allocation. What
 * OpenSSL allocates once and keeps (its providers, a fetched cipher) has to be allocated
 * before failures are injected, since it may remember that it could not.
 */
#ifndef PEERAGE_TESTS_OPENSSL_MEM_H
#define PEERAGE_TESTS_OPENSSL_MEM_H

#include <openssl/crypto.h>

#include "core/mem.h"

static void *openssl_alloc(size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return mem_alloc(bytes);
}

static void *openssl_resize(void *at, size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return mem_resize(at, bytes);
}

static void openssl_free(void *at, const char *file, int line)
{
    (void)file, (void)line;
    mem_free(at);
}

static inline int openssl_use_mem(void)
{
    return CRYPTO_set_mem_functions(openssl_alloc, openssl_resize, openssl_free);
}

#endif
