/* A large answer's value is verified on the loop thread when an event loop asked for it: a
 * SHA-256 of 8 MiB takes 5 ms, which the application's loop should not stand still for
 * (rule O9). Meanwhile nobody reads from that connection.
 */
#ifndef PEERAGE_SHELL_VERIFY_H
#define PEERAGE_SHELL_VERIFY_H

#include "shell/mailbox.h"
#include "shell/port.h"
#include "shell/stream.h"

/* From here up an event loop lets the loop thread verify. */
#define VERIFY_ELSEWHERE_BYTES (256u << 10)

/* On the heap; the port's, then the loop thread's, then the port's again. */
struct verify_job {
    struct mail mail;
    struct list of;             /* port->verified when it is done; else in none */
    struct port *port;          /* a reference */
    struct stream *c;
    void *token;                /* the port driver's */
    bool done, abandoned;       /* under the lock */
};

/* stream_is_unverified: the job appears in port->verified. NULL: out of memory, or
 * closed; then call stream_verify right here. */
struct verify_job *verify_ask(struct port *, struct stream *, void *token);
/* Read, or not wanted any more: frees the job. While the loop thread still works at it, the
 * connection goes with it: false, it is not the caller's any more. */
bool verify_forget(struct verify_job *);

#endif
