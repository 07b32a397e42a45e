/* Nodes for tests over real loopback sockets: a fresh secret, label and port range for each
 * run, so that two checkouts on one machine never meet. */
#ifndef PEERAGE_TESTS_SHELL_NODES_H
#define PEERAGE_TESTS_SHELL_NODES_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "peerage.h"

#define NODES_MAX 8

/* A range of ports of this process's own, below the ephemeral ones. */
int nodes_base_port(void);
/* Options of a node of this run: enabled, on 127.0.0.1, the run's secret and label. */
void nodes_options(struct peerage_options *);
/* Fails the test if it can't. */
peerage *nodes_new(const struct peerage_options *);
peerage *nodes_start(const struct peerage_options *);
/* `count` nodes that all see each other, past warming. */
void nodes_cluster(peerage **nodes, int count, const struct peerage_options *);
/* Wait until each of them sees `members` members, all of which own. */
void nodes_await(peerage **nodes, int count, int members);

double nodes_stat(const peerage *, const char *name);
double nodes_stats_of(peerage **nodes, int count, const char *name);   /* the sum */
long long nodes_now_ms(void);
void nodes_sleep_ms(int ms);

/* A key (in `out`) whose owner, as `seen_by` knows it, is at this address. */
void nodes_key_of(const peerage *seen_by, const char *owner_address, const char *prefix,
                  char out[64]);
void nodes_key_owned_by(const peerage *owner, const char *prefix, char out[64]);

/* Ask for `key` with ttl 60 s; flags as in peerage.h. */
struct peerage_answer nodes_ask(peerage *, const char *key, unsigned flags);
/* The same, and with the leave to load finish with `value`. Returns the answer of a load as
 * PEERAGE_LOAD. */
struct peerage_answer nodes_ask_or_load(peerage *, const char *key, const char *value);
void nodes_finish(peerage *, unsigned long long load_id, const char *value);
bool nodes_is(const struct peerage_answer *, const char *value);    /* and frees the blob */

/* A thread that asks. */
struct asker {
    pthread_t thread;
    peerage *node;
    char key[64];
    unsigned flags;
    unsigned timeout_ms;
    const char *loads;          /* with the leave to load: finish with this; NULL: keep it */
    int load_ms;                /* how long its loader takes */
    struct peerage_answer answer;
    long long took_ms;
    int (*interrupted)(void *);
    void *argument;
};
void asker_start(struct asker *, peerage *, const char *key, unsigned flags);
void asker_run(struct asker *);     /* start, as it is filled in */
void asker_join(struct asker *);

/* A node in a process of its own, to be killed: main calls nodes_child_main first thing. */
struct child {
    pid_t pid;
    int in, out;                /* its stdin, its stdout */
    char address[56];
};
/* Does not return in such a process. Also takes TEST_FILTER from the environment, the
 * pattern of the tests to run. */
void nodes_child_main(int argc, char **argv);
void child_start(struct child *, int port, bool encryption);
void child_say(struct child *, const char *word);
void child_expect(struct child *, const char *word);
void child_kill(struct child *);    /* SIGKILL, and reaps it */

#endif
