/* An event loop asks, and drives its asking itself: behind its port stand its own
 * connections, one a peer, shared by request id, in a poller of its own (rules O9, O10,
 * O13). Everything here but port_ask_deliver's lists belongs to the event loop's thread.
 *
 *   port_ask.c    questions: from the ask to the last event
 *   port_run.c    the port's turns, its making and its end
 *   port_conn.c   connections: dialling, frames, writing, breaking
 */
#ifndef PEERAGE_SHELL_PORT_ASK_H
#define PEERAGE_SHELL_PORT_ASK_H

#include "shell/exchange.h"
#include "shell/poller.h"
#include "shell/port.h"
#include "shell/stream.h"
#include "shell/verify.h"

#define TOKEN_BUCKETS 256u

/* What peerage_port_next gives, in order. */
struct ready {
    struct list of;             /* peerage_port.ready */
    int kind;                   /* enum peerage_event_kind */
    void *token;
    uint64_t load_id;
    bool alone;                 /* on the heap although it is a last event */
    bool is_load;               /* ANSWER: a leave to load, not an answer */
    struct answer answer;       /* ANSWER, REPORT */
    int error;                  /* ANSWER: instead of the answer, or 0 */
    uint64_t chain[CHAIN_MAX];
    unsigned chain_count;
    struct peerage_load load;
};

/* A question, from its ask until its last event was taken, or, if its asker left and
 * others wait for what it asks, until its query has ended. */
struct port_question {
    struct list of;             /* peerage_port.questions */
    struct list of_token;       /* by token; in none once its asker is gone */
    struct list of_here;        /* port.loads_here: load_here_id is to be run by us */
    struct list of_conn;        /* its connection's, while its query waits there */
    uint64_t load_here_id;
    struct peerage_port *at;
    void *token;
    struct waiter waiter;
    struct question question;   /* spans into text */
    uint64_t until_ms;          /* its asker's patience */
    unsigned tries;
    bool gone;                  /* its asker has left */
    bool change;                /* a set or delete, or a tally's sum in Redis */
    bool tally;                 /* the latter */
    bool ended;                 /* its last event is in `ready` */
    struct ready end;
    /* While it leads a query: */
    bool leads;
    struct query query;
    uint64_t load_id, request_id, asked_ms;
    struct port_conn *conn;
    uint64_t conn_id;           /* over which its answer came: a permit's */
    enum query_step step;       /* to be gone on with, when the frames are read */
    bool answering;
    uint8_t last_kind;
    struct gathered got;
    uint8_t text[];
};

struct port_conn {
    struct list of;             /* peerage_port.conns */
    struct peerage_port *at;
    struct addr addr;
    uint64_t node_id, id;
    struct stream *c;              /* NULL: being dialled */
    struct dial_request *dial;
    struct verify_job *verifying;   /* the loop thread has it: not watched, not read */
    struct list waiting;        /* struct port_question by of_conn */
    int events;                 /* watched for */
    struct list of_dirty;       /* peerage_port.dirty: something waits to be written */
    uint64_t sent_turn;         /* in which turn of the port it was last written to */
    bool gone;                  /* its node is no live member any more */
    unsigned last_turns;        /* how often it has been read since */
    bool used;                  /* an answer has come over it (O2's "reused") */
};

struct peerage_port {
    struct port port;           /* first: a port of the node's */
    struct poller poller;
    struct list questions, conns, dirty, ready;
    uint64_t turn;              /* counts port_run: see port_conn_send */
    struct list tokens[TOKEN_BUCKETS];
    uint64_t next_conn_id;
    struct peerage_answer answer;       /* the one peerage_port_next gave last */
    uint64_t idle_ms;           /* when idle connections are looked at next */
    bool running;               /* in peerage_port_run: completions need no bell */
};

/* The last reference has gone (port_unref). */
void port_ask_free(struct port *);

/* port_ask.c, for port_run.c. */
struct turn;
void port_turn_begin(struct peerage_port *, struct turn *);  /* on this port's thread */
void port_question_unwait(struct port_question *, struct turn *);
void port_question_free(struct port_question *);
/* Its last event, taking what the answer holds; or an error instead. */
void port_question_end(struct port_question *, struct answer *, int error);
void port_question_trouble(struct port_question *, int error);
/* The leave to load, as an event; under the lock. False: out of memory. */
bool port_question_say_load(struct port_question *, uint64_t load_id);
/* Its waiter came back with nothing: the load was lost, or the members changed. */
void port_question_ask_again(struct port_question *);
/* Its asker gives up; its query goes on while somebody else waits for what it asks. */
void port_question_leave(struct port_question *);
/* Loads offered to this token and not yet told are given back. */
void port_take_back_loads(struct peerage_port *, const void *token);
bool ready_is_end(const struct ready *);    /* the one in a question, not on the heap */

/* port_ask.c, for port_conn.c: go on with a query after a step. */
void port_question_step(struct port_question *, enum query_step);
/* A frame of this question's answer; takes value. */
enum query_step port_question_frame(struct port_question *, const struct message *,
                                    struct blob *value, uint64_t now_ms);

/* port_conn.c. Send the question's request over the connection to where its query stands,
 * dialling if need be. False: out of memory. */
bool port_conn_send(struct port_question *);
/* The question leaves its connection; `cancel`: the other side is told. */
void port_conn_leave(struct port_question *, bool cancel);
/* What the poller or a finished dial says. */
void port_conn_ready(struct port_conn *, int events);
void port_conn_dialled(struct port_conn *, struct dial_request *);
void port_conn_verified(struct port_conn *, struct verify_job *);
struct port_conn *port_conn_find(struct peerage_port *, uint64_t id);
void port_conn_flush(struct port_conn *);
void port_conn_flush_all(struct peerage_port *);
/* All members that a connection leads to must still be live; else its queries go on. */
void port_conn_check_members(struct peerage_port *);
void port_conn_sweep(struct peerage_port *, uint64_t now_ms);
void port_conn_free(struct port_conn *);    /* nobody waits on it any more */

#endif
