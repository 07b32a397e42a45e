/* One connection to a Redis server, by hiredis' asynchronous API on the loop thread: the only
 * place that knows hiredis, and the only one that is empty in a build without it.
 *
 * hiredis blocks in two places, names and connect timeouts; so it is given numeric addresses
 * only, and all deadlines are its user's, who closes a connection that is late (rule R2).
 */
#ifndef PEERAGE_SHELL_REDIS_LINK_H
#define PEERAGE_SHELL_REDIS_LINK_H

#include "core/addr.h"

struct ev_loop;
struct redis_link;
struct redis_answer;

#define REDIS_WHY_MAX 128

/* The server's answer, valid during the call; NULL: none, the connection is gone. */
typedef void redis_answered(void *token, const struct redis_answer *);
/* The connection is open (why NULL), or has ended and was freed: why, for a line. */
typedef void redis_linked(void *owner, const char *why);

/* Can this build do it at all? NULL: yes. */
const char *redis_link_missing(bool tls);

/* To `path` if given, else to `addr`; tls_host: the certificate's name, NULL: in the clear.
 * `linked` is called later, once it is open and once when it has ended. NULL: failed at once,
 * why[] says so. */
struct redis_link *redis_link_open(struct ev_loop *, const struct addr *, const char *path,
                                   const char *tls_host, redis_linked *, void *owner,
                                   char why[REDIS_WHY_MAX]);
/* Borrows the words. False: the connection ends, or no memory; `answered` is never called. */
bool redis_link_send(struct redis_link *, unsigned count, const struct span *words,
                     redis_answered *, void *token);
/* `linked` is not called any more; what waits is answered with NULL, at once or, from within
 * an answer, right after it. */
void redis_link_close(struct redis_link *);

#define REDIS_WORDS_MAX 640u        /* of one command */

enum redis_kind { REDIS_NIL, REDIS_NUMBER, REDIS_TEXT, REDIS_LIST, REDIS_ERROR };

enum redis_kind redis_kind(const struct redis_answer *);
int64_t redis_number(const struct redis_answer *);              /* 0 for what is none */
struct span redis_text(const struct redis_answer *);            /* TEXT, ERROR; else empty */
unsigned redis_count(const struct redis_answer *);              /* LIST; else 0 */
const struct redis_answer *redis_item(const struct redis_answer *, unsigned i);

#endif
