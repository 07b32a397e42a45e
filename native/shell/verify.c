/* Verifying on the loop thread (see verify.h). */
#include "shell/verify.h"

#include "core/mem.h"
#include "shell/loop.h"
#include "shell/shell.h"
#include "shell/turn.h"

static void free_job(struct verify_job *j)
{
    port_unref(j->port);
    mem_free(j);
}

static void verify(struct mail *mail, struct loop *loop)
{
    struct verify_job *j = CONTAINER_OF(mail, struct verify_job, mail);
    struct peerage *p = j->port->peerage;
    struct turn t;

    stream_verify(j->c);
    count(&p->counters.verified);
    if (loop)
        turn_begin_loop(p, loop, &t);
    else
        turn_begin(p, &t);
    bool abandoned = j->abandoned;
    if (!abandoned) {
        j->done = true;
        list_add_tail(&j->port->verified, &j->of);
        turn_ring(&t, j->port);
    }
    turn_end(p, &t);
    if (abandoned) {
        stream_free(j->c);
        free_job(j);
    }
}

struct verify_job *verify_ask(struct port *port, struct stream *c, void *token)
{
    struct verify_job *j = mem_zalloc(sizeof *j);

    if (!j)
        return NULL;
    list_init(&j->of);
    j->mail.run = verify;
    j->port = port;
    j->c = c;
    j->token = token;
    atomic_fetch_add(&port->refs, 1);
    if (mailbox_post(&port->peerage->mailbox, &j->mail))
        return j;
    free_job(j);
    return NULL;
}

bool verify_forget(struct verify_job *j)
{
    struct peerage *p = j->port->peerage;

    pthread_mutex_lock(&p->lock);
    bool done = j->done;
    j->abandoned = true;
    list_remove(&j->of);
    pthread_mutex_unlock(&p->lock);
    if (done)
        free_job(j);
    return done;
}
