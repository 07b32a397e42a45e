/* The loop thread's mailbox (see mailbox.h). */
#include "shell/mailbox.h"

void mailbox_init(struct mailbox *m)
{
    pthread_mutex_init(&m->lock, NULL);
    list_init(&m->mails);
    m->open = m->rung = false;
    m->ev = NULL;
    m->async = NULL;
}

void mailbox_deinit(struct mailbox *m)
{
    pthread_mutex_destroy(&m->lock);
}

void mailbox_open(struct mailbox *m, struct ev_loop *ev, ev_async *async)
{
    pthread_mutex_lock(&m->lock);
    m->ev = ev;
    m->async = async;
    m->open = true;
    m->rung = false;
    pthread_mutex_unlock(&m->lock);
}

static void run_all(struct list *mails, struct loop *loop)
{
    LIST_FOREACH_SAFE(mails, l) {
        struct mail *mail = CONTAINER_OF(l, struct mail, of);
        list_remove(l);
        mail->run(mail, loop);
    }
}

void mailbox_close(struct mailbox *m)
{
    struct list left;

    list_init(&left);
    pthread_mutex_lock(&m->lock);
    m->open = false;
    list_move_all(&left, &m->mails);
    pthread_mutex_unlock(&m->lock);
    run_all(&left, NULL);
}

/* ev_async_send is called under the lock, so that it never meets a freed loop. */
static void wake(struct mailbox *m)
{
    if (m->rung)
        return;
    m->rung = true;
    ev_async_send(m->ev, m->async);
}

bool mailbox_post(struct mailbox *m, struct mail *mail)
{
    pthread_mutex_lock(&m->lock);
    bool taken = m->open;
    if (taken) {
        list_add_tail(&m->mails, &mail->of);
        wake(m);
    }
    pthread_mutex_unlock(&m->lock);
    return taken;
}

void mailbox_ring(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    if (m->open)
        wake(m);
    pthread_mutex_unlock(&m->lock);
}

void mailbox_run(struct mailbox *m, struct loop *loop)
{
    struct list now;

    list_init(&now);
    pthread_mutex_lock(&m->lock);
    m->rung = false;
    list_move_all(&now, &m->mails);
    pthread_mutex_unlock(&m->lock);
    run_all(&now, loop);
}
