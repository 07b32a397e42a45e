/* What other threads want of the loop thread: a locked queue, and an ev_async to wake it.
 * A mail is a link in its sender's own memory with a function to run; posting allocates
 * nothing. */
#ifndef PEERAGE_SHELL_MAILBOX_H
#define PEERAGE_SHELL_MAILBOX_H

#include <ev.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/base.h"

struct loop;

struct mail {
    struct list of;
    /* On the loop thread. `loop` NULL: the loop has ended, there is only to clean up (that
     * may be on the thread that closes). */
    void (*run)(struct mail *, struct loop *);
};

struct mailbox {
    pthread_mutex_t lock;
    struct list mails;
    bool open;
    bool rung;              /* a wake-up is on its way: no need for another */
    struct ev_loop *ev;
    ev_async *async;
};

void mailbox_init(struct mailbox *);
void mailbox_deinit(struct mailbox *);

/* The loop thread listens on `async` of `ev` from now on. */
void mailbox_open(struct mailbox *, struct ev_loop *ev, ev_async *async);
/* No more mails are taken; those there are run with loop NULL. */
void mailbox_close(struct mailbox *);

/* False: closed, nothing was taken. */
bool mailbox_post(struct mailbox *, struct mail *);
/* Wake the loop thread without a mail. */
void mailbox_ring(struct mailbox *);
/* Run everything that is there. */
void mailbox_run(struct mailbox *, struct loop *);

#endif
