/* hiredis (see redis_link.h; written for its API of 0.14, which 1.x keeps). */
#include "shell/redis_link.h"

#include <stdio.h>

#ifdef PEERAGE_REDIS
#include <ev.h>
#include <fcntl.h>
#include <hiredis/adapters/libev.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#ifdef PEERAGE_REDIS_TLS
#include <hiredis/hiredis_ssl.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#endif

#include "core/mem.h"
#include "shell/fork.h"

struct redis_link {
    redisAsyncContext *context;
    redis_linked *linked;       /* NULL: closed by its owner */
    void *owner;
    bool gone;                  /* nothing is sent any more */
    void (*cleanup)(void *);    /* the adapter's */
};

struct wait {
    redis_answered *answered;
    void *token;
};

const char *redis_link_missing(bool tls)
{
#ifdef PEERAGE_REDIS_TLS
    (void)tls;
    return NULL;
#else
    return tls ? "REDIS_URL: rediss:// needs hiredis 1.0 or newer with its TLS part, which this "
                 "build lacks"
               : NULL;
#endif
}

static void say(char why[REDIS_WHY_MAX], const char *text)
{
    /* hiredis gives errno's text also where nothing of the system failed */
    bool says = text && *text && strcmp(text, "Success") != 0;
    snprintf(why, REDIS_WHY_MAX, "%s", says ? text : "the connection ended");
}

/* hiredis is about to free the context, in every case: by itself, or for us. The descriptor
 * is closed here, so that the list of those a forked child closes stays exact. */
static void clean_up(void *adapters)
{
    redisAsyncContext *context = ((redisLibevEvents *)adapters)->context;
    struct redis_link *link = context->data;
    char why[REDIS_WHY_MAX];

    link->cleanup(adapters);
    fork_close(context->c.fd);
    context->c.fd = -1;
    context->data = NULL;
    say(why, context->errstr);
    redis_linked *linked = link->linked;
    void *owner = link->owner;
    mem_free(link);
    if (linked)
        linked(owner, why);
}

static void connected(const redisAsyncContext *context, int status)
{
    struct redis_link *link = context->data;

    if (status != REDIS_OK)
        link->gone = true;      /* and clean_up follows */
    else if (link->linked)
        link->linked(link->owner, NULL);
}

#ifdef PEERAGE_REDIS_TLS
/* An SSL object of our own: hiredis' contexts do not compare the certificate's name before
 * 1.5. The authorities are the system's (SSL_CERT_FILE, SSL_CERT_DIR). */
static SSL *new_tls(const char *host)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *tls = NULL;
    struct addr numeric;

    if (context && SSL_CTX_set_default_verify_paths(context) == 1 && (tls = SSL_new(context))) {
        bool named = addr_parse(host, &numeric)
                         ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host) == 1
                         : SSL_set1_host(tls, host) == 1 && SSL_set_tlsext_host_name(tls, host) == 1;
        SSL_set_verify(tls, SSL_VERIFY_PEER, NULL);
        if (!named) {
            SSL_free(tls);
            tls = NULL;
        }
    }
    SSL_CTX_free(context);      /* tls has a reference of its own */
    return tls;
}

static bool start_tls(struct redis_link *link, const char *host, char why[REDIS_WHY_MAX])
{
    SSL *tls = new_tls(host);

    if (tls && redisInitiateSSL(&link->context->c, tls) == REDIS_OK)
        return true;
    say(why, tls ? link->context->c.errstr : "TLS could not be set up");
    SSL_free(tls);
    return false;
}
#else
static bool start_tls(struct redis_link *link, const char *host, char why[REDIS_WHY_MAX])
{
    (void)link;
    (void)host;
    say(why, "no TLS in this build");
    return false;
}
#endif

static redisAsyncContext *dial(const struct addr *addr, const char *path)
{
    char text[ADDR_TEXT_MAX], *host = text;
    struct addr bare = *addr;

    if (path)
        return redisAsyncConnectUnix(path);
    bare.port = 0;
    addr_format(&bare, text);
    if (*host == '[') {
        host++;
        host[strlen(host) - 1] = 0;
    }
    return redisAsyncConnect(host, addr->port);
}

struct redis_link *redis_link_open(struct ev_loop *ev, const struct addr *addr, const char *path,
                                   const char *tls_host, redis_linked *linked, void *owner,
                                   char why[REDIS_WHY_MAX])
{
    struct redis_link *link = mem_zalloc(sizeof *link);

    say(why, "out of memory");
    if (!link)
        return NULL;
    link->linked = linked;
    link->owner = owner;
    fork_hold();
    redisAsyncContext *context = link->context = dial(addr, path);
    if (context && !context->err && context->c.fd >= 0) {
        fcntl(context->c.fd, F_SETFD, FD_CLOEXEC);
        if (fork_keep(context->c.fd) < 0)
            context->c.fd = -1;
    }
    fork_release();
    if (!context || context->err || context->c.fd < 0) {
        if (context) {
            say(why, context->errstr);
            redisAsyncFree(context);
        }
        mem_free(link);
        return NULL;
    }
    context->data = link;
    if (redisLibevAttach(ev, context) != REDIS_OK) {
        fork_close(context->c.fd);
        context->c.fd = -1;
        redisAsyncFree(context);
        mem_free(link);
        return NULL;
    }
    link->cleanup = context->ev.cleanup;
    context->ev.cleanup = clean_up;
    if (tls_host && !start_tls(link, tls_host, why)) {
        redis_link_close(link);
        return NULL;
    }
    redisAsyncSetConnectCallback(context, connected);
    return link;
}

static void answer(redisAsyncContext *context, void *reply, void *token)
{
    struct wait *w = token;
    struct redis_link *link = context->data;

    if (!reply && link)
        link->gone = true;
    w->answered(w->token, reply);
    mem_free(w);
}

bool redis_link_send(struct redis_link *link, unsigned count, const struct span *words,
                     redis_answered *answered, void *token)
{
    const char *at[REDIS_WORDS_MAX];
    size_t bytes[REDIS_WORDS_MAX];
    struct wait *w;

    assert(count <= REDIS_WORDS_MAX);
    if (link->gone || !(w = mem_alloc(sizeof *w)))
        return false;
    *w = (struct wait){answered, token};
    for (unsigned i = 0; i < count; i++) {
        at[i] = words[i].at ? (const char *)words[i].at : "";
        bytes[i] = words[i].bytes;
    }
    if (redisAsyncCommandArgv(link->context, answer, w, (int)count, at, bytes) == REDIS_OK)
        return true;
    mem_free(w);
    return false;
}

void redis_link_close(struct redis_link *link)
{
    link->linked = NULL;
    link->gone = true;
    redisAsyncFree(link->context);
}

static const redisReply *of(const struct redis_answer *a)
{
    return (const redisReply *)a;
}

enum redis_kind redis_kind(const struct redis_answer *a)
{
    switch (of(a)->type) {
    case REDIS_REPLY_INTEGER:
        return REDIS_NUMBER;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
        return REDIS_TEXT;
    case REDIS_REPLY_ARRAY:
        return REDIS_LIST;
    case REDIS_REPLY_ERROR:
        return REDIS_ERROR;
    default:
        return REDIS_NIL;
    }
}

int64_t redis_number(const struct redis_answer *a)
{
    return of(a)->type == REDIS_REPLY_INTEGER ? of(a)->integer : 0;
}

struct span redis_text(const struct redis_answer *a)
{
    enum redis_kind kind = redis_kind(a);

    if (kind != REDIS_TEXT && kind != REDIS_ERROR)
        return SPAN_NONE;
    return span_of(of(a)->str, (size_t)of(a)->len);
}

unsigned redis_count(const struct redis_answer *a)
{
    return of(a)->type == REDIS_REPLY_ARRAY ? (unsigned)of(a)->elements : 0;
}

const struct redis_answer *redis_item(const struct redis_answer *a, unsigned i)
{
    return (const struct redis_answer *)of(a)->element[i];
}
#else
const char *redis_link_missing(bool tls)
{
    (void)tls;
    return "REDIS_URL is set, but this build has no Redis: it was made without hiredis";
}

struct redis_link *redis_link_open(struct ev_loop *ev, const struct addr *addr, const char *path,
                                   const char *tls_host, redis_linked *linked, void *owner,
                                   char why[REDIS_WHY_MAX])
{
    (void)ev;
    (void)addr;
    (void)path;
    (void)tls_host;
    (void)linked;
    (void)owner;
    snprintf(why, REDIS_WHY_MAX, "built without hiredis");
    return NULL;
}

/* Without a link, and there never is one, nobody comes here. */
bool redis_link_send(struct redis_link *link, unsigned count, const struct span *words,
                     redis_answered *answered, void *token)
{
    (void)link;
    (void)count;
    (void)words;
    (void)answered;
    (void)token;
    return false;
}

void redis_link_close(struct redis_link *link) { (void)link; }

enum redis_kind redis_kind(const struct redis_answer *a)
{
    (void)a;
    return REDIS_NIL;
}

int64_t redis_number(const struct redis_answer *a)
{
    (void)a;
    return 0;
}

struct span redis_text(const struct redis_answer *a)
{
    (void)a;
    return SPAN_NONE;
}

unsigned redis_count(const struct redis_answer *a)
{
    (void)a;
    return 0;
}

const struct redis_answer *redis_item(const struct redis_answer *a, unsigned i)
{
    (void)i;
    return a;
}
#endif
