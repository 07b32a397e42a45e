/* What the files of the binding share: the module's state, and one door each for errors,
 * values and foreign owners. The binding translates between Python and peerage.h and decides
 * nothing; what is policy stands in python/peerage.
 *
 * Everything here is called with the GIL held unless it says otherwise.
 */
#ifndef PEERAGE_BINDING_H
#define PEERAGE_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "peerage.h"

#define KEY_MAX 1024            /* as peerage.h says of struct peerage_ask */
#define ALIAS_BYTES_MIN 1024    /* smaller values lie inline in the store, as copies */
#define ERROR_COUNT 16          /* PEERAGE_E_*, negated */

/* One per module; only one interpreter can load it (module.c). */
struct state {
    PyTypeObject *node, *port, *waiter, *template, *function, *fast, *ready, *asking,
                 *future;
    PyTypeObject *hit, *load, *failed, *member;
    PyObject *error;                    /* peerage.Error */
    PyObject *errors[ERROR_COUNT];      /* by negated code */
    PyObject *miss;                     /* the constant MISS */
    PyObject *tiers[PEERAGE_TIER_LOAD + 1];
    PyObject *json_encode, *json_decode, *json_raw_decode, *pickle_dumps, *pickle_loads;
    PyObject *uuid, *date, *datetime;
    PyObject *running_loop;             /* asyncio.get_running_loop */
    PyObject *chain;                    /* ContextVar of the keys being loaded on the way to here:
                                           a loader's questions carry it, so that one that asks
                                           for its own key gets an error and not a deadlock */
    PyObject *cancelled_error;          /* asyncio.CancelledError */
    PyObject *names_context;            /* ("context",) */
    PyObject *text_call_soon, *text_throw, *text_close, *text_wrapped, *text_qualname;
    PyObject *text_rebuild;
    PyObject *text_hex, *text_isoformat, *text_fromisoformat, *text_utcoffset;
};

struct state *state_of(PyTypeObject *);     /* of one of our own types; never NULL */

/* errors.c */
int errors_add(PyObject *module, struct state *);
/* Set the exception of a negative code; `line` (may be NULL or "") instead of the code's
 * text. Returns NULL, to be returned. Out of memory is MemoryError. Of PEERAGE_E_SYSTEM errno
 * as it is at the call goes with the exception. */
PyObject *errors_raise(const struct state *, int code, const char *line);
/* The same as an object, for a future. New reference or NULL. */
PyObject *errors_make(const struct state *, int code, const char *line);

/* release.c: foreign owners that native threads let go */
int release_start(void);                    /* once per process */
void release_drain(void);
bool release_waiting(void);
static inline void release_check(void)
{
    if (release_waiting())
        release_drain();
}
/* Which node's attendant is rung when much waits; take it back before the node is freed. */
void release_ring_set(peerage *);
void release_ring_unset(peerage *);

/* value.c */
int value_types_add(PyObject *module, struct state *);
/* Encode a Python value: its type, and a new `bytes` in *out. -1 with an exception. */
int value_encode(const struct state *, PyObject *value, bool pickle, PyObject **out);
PyObject *value_decode(const struct state *, int type, const void *at, size_t bytes, bool pickle);
/* The Python value of an answer that holds one. A native copy of `bytes` in the store is
 * replaced by the object made here. Frees the answer's blob in every case. */
PyObject *value_take(const struct state *, peerage *, const void *key, size_t key_bytes,
                     struct peerage_answer *, bool pickle);
/* A whole answer as Python sees it: Hit, MISS, Load, Failed; trouble is raised. Frees the
 * answer's blob. */
PyObject *value_answer(const struct state *, peerage *, const void *key, size_t key_bytes,
                       struct peerage_answer *, bool pickle);
/* The same for who wants no more than the value: that, `missing` for none, and raised what
 * rebuild(error) makes of a loader's error. Frees the answer's blob. */
PyObject *value_bare(const struct state *, peerage *, const void *key, size_t key_bytes,
                     struct peerage_answer *, bool pickle, PyObject *missing, PyObject *rebuild);
/* A peerage_load as Python sees it. Does not free it. */
PyObject *value_load(const struct state *, const struct peerage_load *);
/* Read (key, type, bytes, ttl_ms, stale_ms); borrows from the tuple, and takes a reference
 * where the bytes are aliased (item->owner). */
int value_item(PyObject *tuple, struct peerage_item *);
PyObject *value_report(struct peerage_report *);    /* (acknowledged, unreached); frees it */

/* node.c: a native node, kept while anybody is inside a call of it */
struct engine {
    peerage *p;
    unsigned fork_count;        /* as it was when p was made */
    Py_ssize_t users;           /* the Node object, ports, and calls without the GIL */
    struct port *ports;         /* of event loops; the one that was looked for last in front */
};
struct node {
    PyObject_HEAD
    struct engine *engine;      /* NULL only while making the first failed */
    PyObject *options;          /* dict: a node of the same settings is made after a fork */
    PyObject *renewed;          /* called when that has happened */
    PyObject *weakrefs;
};
int node_type_add(PyObject *module, struct state *);
struct engine *node_renew(struct node *);   /* after a fork; NULL with an exception */
void engine_leave(struct engine *);
/* The same, counted among its users until engine_leave: for calls that let the GIL go. */
struct engine *node_enter(struct node *);
/* `interrupted` of peerage.h; its argument is the PyThreadState * that is saved. */
int node_interrupted(void *saved);
/* The native node of this process; NULL with an exception. Borrowed while the GIL is held. */
static inline struct engine *node_engine(struct node *n)
{
    if (n->engine && n->engine->fork_count == peerage_fork_count)
        return n->engine;
    return node_renew(n);
}
/* A question's arguments, positional and in this order: key, channel, loader, ttl_ms,
 * stale_ms, load_timeout_ms, timeout_ms, flags, pickle. Borrows from them. -1 with an
 * exception. */
#define ASK_ARGUMENTS 9
int node_ask_arguments(PyObject *const *args, struct peerage_ask *, bool *pickle);
/* Add the caller's chain, copied to `chain`. -1 with an exception. */
int node_ask_chain(const struct state *, struct peerage_ask *, uint64_t chain[8]);
/* The arguments of a change: key, channel, item or None, by_channel, timeout_ms. */
#define CHANGE_ARGUMENTS 5
int node_change_arguments(PyObject *const *args, struct peerage_ask *, struct peerage_item *,
                          bool *has_item, int *by_channel);

/* counting.c. The arguments of a take: name, key, window_ms, amount, limit (None: no limit). */
#define TAKE_ARGUMENTS 5
int counting_arguments(PyObject *const *args, Py_ssize_t count, struct peerage_tally *,
                    uint64_t *amount, uint64_t *limit);
PyObject *counting_taken(int added, uint64_t total);       /* (added, total) */
PyObject *counting_add(struct node *, PyObject *const *args, Py_ssize_t count);
PyObject *counting_take(struct node *, PyObject *const *args, Py_ssize_t count);

/* look.c: what a node says about itself and its members */
int look_types_add(PyObject *module, struct state *);
PyObject *look_members(struct node *, PyObject *);
PyObject *look_owner(struct node *, PyObject *channel);
PyObject *look_coordinator(struct node *, PyObject *);
PyObject *look_address(struct node *, PyObject *);
PyObject *look_stats(struct node *, PyObject *);

/* port.c */
int port_types_add(PyObject *module, struct state *);
/* The port's native part, NULL when its node is gone or forked away. */
peerage_port *port_native(PyObject *port);
/* The port of an event loop, borrowed; NULL: it has none. */
PyObject *port_of(struct engine *, PyObject *loop);
/* Ask for a key whose value alone is wanted (value_bare). The value, or NULL with an exception;
 * or NULL without one: the future is completed with either later. `load_hook` as Port.ask's.
 * *waiter is a new reference, and NULL only where an exception is set. */
PyObject *port_ask_bare(PyObject *port, const struct peerage_ask *, PyObject *key, bool pickle,
                        PyObject *missing, PyObject *rebuild, PyObject *load_hook,
                        PyObject *future, PyObject **waiter);
/* enum peerage_tier: where a waiter's value came from. */
int port_tier(PyObject *waiter);
/* (port, waiter, future) of one that waits, for a Leader; and that Leader from now on hears of
 * its loads and says their errors. */
PyObject *port_asked(PyObject *waiter);
int port_led(PyObject *waiter, PyObject *leader);
/* Nobody waits for its future any more. */
void port_forsake(PyObject *waiter);

/* future.c */
int future_type_add(PyObject *module, struct state *);
/* A new one, for one task of this loop. */
PyObject *future_new(const struct state *, PyObject *loop);
/* Give it `value` (taken; NULL: the exception that is set), unless it has ended. `here`: the task
 * goes on within this call, so from nowhere but a callback of the loop's. -1 with the
 * exception that the task lets out. */
int future_complete(PyObject *future, PyObject *value, bool here);

/* template.c */
int template_type_add(PyObject *module, struct state *);
/* Write the key of a call into `out`; its length, or -1 with an exception. */
Py_ssize_t template_write(PyObject *template, PyObject *const *args, Py_ssize_t count,
                          PyObject *kwnames, unsigned char out[KEY_MAX]);

/* function.c, fast.c */
int function_type_add(PyObject *module, struct state *);
int fast_type_add(PyObject *module, struct state *);

/* ready.c */
int ready_type_add(PyObject *module, struct state *);
PyObject *ready_new(const struct state *, PyObject *value);     /* takes value */
/* For what is a coroutine by its am_send: tp_iternext, and the method send. */
PyObject *ready_next(PyObject *);
PyObject *ready_send(PyObject *, PyObject *sent);
/* Raise what throw(type[, value[, traceback]]) was given; NULL, to be returned. */
PyObject *ready_raise(PyObject *const *args, Py_ssize_t count);
PyObject *ready_reused(void);       /* raises that it was awaited before; NULL */

/* asking.c. What the questions of one cache or function have in common. */
struct asker {
    struct node *node;
    PyObject *slow;             /* the same question in Python: a coroutine function */
    PyObject *rebuild;          /* rebuild(error): the exception that says a loader's error */
    PyObject *lead;             /* lead(context, asked, args) -> a Leader for its loads; NULL:
                                   there is no loader */
    PyObject *arguments;        /* of Node.ask, for key and channel; NULL: slow asks all */
    struct peerage_ask terms;   /* the same; borrows from them */
    bool pickle;
    unsigned long long hits[PEERAGE_TIER_LOAD + 1], errors;     /* answers, apart from slow's */
};
/* `arguments` are those of Node.ask, with no key and no channel, for who asks by an Asking; None:
 * slow asks. -1 with an exception. */
int asker_init(struct asker *, PyObject *node, PyObject *slow, bool pickle, PyObject *arguments,
               PyObject *rebuild, PyObject *lead);
int asker_visit(struct asker *, visitproc visit, void *arg);
void asker_clear(struct asker *);            /* for tp_clear */
void asker_free(struct asker *);
int asking_type_add(PyObject *module, struct state *);
/* The answer to a call, as an awaitable. `asker` lies in `keeper`. Takes key, channel, args and
 * kwargs (channel and kwargs may be NULL; args and kwargs are slow's). If key or args is NULL an
 * exception is set already, and it only lets the others go. */
PyObject *asking_new(const struct state *, struct asker *, PyObject *keeper, PyObject *key,
                     PyObject *channel, PyObject *missing, PyObject *args, PyObject *kwargs);

/* Make a type of `spec` and, unless `name` is NULL, show it in the module. */
PyTypeObject *type_add(PyObject *module, PyType_Spec *spec, const char *name);

#define METHOD_CAST(f) ((PyCFunction)(void (*)(void))(f))

#endif
