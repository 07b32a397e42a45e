/* Ports: asking from an event loop. The loop watches one descriptor and calls readable(), which
 * completes the futures that its tasks wait for, many per wake-up.
 *
 * Who keeps whom: the loop's reader handle holds the Port, the Port its Waiters, a Waiter its
 * future, a future its loop. Nothing else holds a Port, so closing the loop, or losing the
 * last reference to it, ends the port and its descriptors (O10); all of them take part in
 * garbage collection for that. A native port needs its node, so a Port is one of the users
 * of its engine.
 */
#include "binding.h"

#include <stddef.h>
#include <structmember.h>

struct port {
    PyObject_HEAD
    const struct state *st;
    struct engine *engine;
    peerage_port *native;
    PyObject *loop;             /* a weak reference */
    struct port *next;          /* in engine->ports until it ends */
    PyObject *load_hook;        /* load_hook(Load): run a registered async loader */
    PyObject *cancel_hook;      /* cancel_hook(load_id): nobody waits for it any more */
    PyObject *tasks;            /* dict: the loads this loop runs live as long as it does */
    struct waiter *first;       /* those that native code still has as tokens */
    bool here;                  /* who is completed goes on at once: within readable(), until
                                   one of them raises what no task keeps for itself */
    struct raised {             /* that: a KeyboardInterrupt, a SystemExit; all NULL: none */
        PyObject *type, *error, *traceback;
    } raised;
};

struct waiter {
    PyObject_HEAD
    struct waiter *prev, *next; /* in port->first's list while native code has it */
    struct port *port;          /* borrowed; NULL: completed, left, or the port is gone */
    PyObject *future;
    PyObject *load_hook;        /* load_hook(Load): this question's own loader is to run; or NULL */
    PyObject *asking;           /* the same, borrowed: it forsakes the waiter before it goes */
    PyObject *key;              /* bytes */
    PyObject *missing, *rebuild;        /* of value_bare; NULL: the future gets value_answer */
    bool pickle;
    int tier;                   /* of the value it was completed with */
};

/* Waiters. */

static struct waiter *waiter_new(struct port *p, PyObject *future, PyObject *load_hook,
                                 PyObject *key, bool pickle)
{
    if (!Py_IS_TYPE(future, p->st->future)) {
        PyErr_Format(PyExc_TypeError, "takes a Future, got %.100R", future);
        return NULL;
    }
    struct waiter *w = PyObject_GC_New(struct waiter, p->st->waiter);
    if (!w)
        return NULL;
    w->prev = w->next = NULL;
    w->port = NULL;
    w->future = Py_NewRef(future);
    w->load_hook = Py_XNewRef(load_hook);
    w->key = Py_NewRef(key);
    w->asking = w->missing = w->rebuild = NULL;
    w->pickle = pickle;
    w->tier = PEERAGE_TIER_LOCAL;
    PyObject_GC_Track(w);
    return w;
}

/* The port holds a reference from now on. */
static void link_waiter(struct port *p, struct waiter *w)
{
    Py_INCREF(w);
    w->port = p;
    w->next = p->first;
    if (p->first)
        p->first->prev = w;
    p->first = w;
}

static void unlink_waiter(struct waiter *w)
{
    if (!w->port)
        return;
    if (w->prev)
        w->prev->next = w->next;
    else
        w->port->first = w->next;
    if (w->next)
        w->next->prev = w->prev;
    w->prev = w->next = NULL;
    w->port = NULL;
    Py_DECREF(w);
}

static int waiter_traverse(struct waiter *w, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(w));
    Py_VISIT(w->future);
    Py_VISIT(w->load_hook);
    Py_VISIT(w->missing);
    Py_VISIT(w->rebuild);
    return 0;
}

static int waiter_clear(struct waiter *w)
{
    Py_CLEAR(w->future);
    Py_CLEAR(w->load_hook);
    Py_CLEAR(w->missing);
    Py_CLEAR(w->rebuild);
    return 0;
}

static void waiter_dealloc(struct waiter *w)
{
    PyTypeObject *type = Py_TYPE(w);
    PyObject_GC_UnTrack(w);
    waiter_clear(w);
    Py_CLEAR(w->key);
    PyObject_GC_Del(w);
    Py_DECREF(type);
}

/* Completing. */

/* Give `value` (taken; NULL: the exception that is set) to who waits. */
static void complete(struct port *p, struct waiter *w, PyObject *value)
{
    if (!w->future) {           /* the collector took it */
        Py_XDECREF(value);
        PyErr_Clear();
        return;
    }
    bool here = p->here;
    p->here = false;            /* while a task goes on, until it is seen how it ended */
    if (future_complete(w->future, value, here) == 0)
        p->here = here;
    else if (here)
        PyErr_Fetch(&p->raised.type, &p->raised.error, &p->raised.traceback);
    else
        PyErr_WriteUnraisable(w->future);
}

/* Call hook(argument); takes argument. What goes wrong loses the load: whoever waits asks
 * again. */
static void call_load_hook(struct port *p, PyObject *hook, PyObject *load, uint64_t load_id)
{
    Py_XINCREF(hook);       /* it may take another's place, or its waiter go */
    PyObject *done = load && hook ? PyObject_CallOneArg(hook, load) : NULL;
    Py_XDECREF(load);
    if (!done) {
        if (PyErr_Occurred())
            PyErr_WriteUnraisable(hook);
        peerage_lose(p->engine->p, load_id);
    }
    Py_XDECREF(done);
    Py_XDECREF(hook);
}

static PyObject *hook_of(const struct waiter *w)
{
    return w->load_hook ? w->load_hook : w->asking;
}

static PyObject *load_of(const struct state *st, struct peerage_answer *a)
{
    return value_answer(st, NULL, NULL, 0, a, false);
}

/* What is raised here comes out of a coroutine or a future. Neither lets a StopIteration out:
 * it would be taken for a value that is returned. */
static void reword_stop(void)
{
    PyObject *type, *stop, *traceback;

    PyErr_Fetch(&type, &stop, &traceback);
    PyErr_NormalizeException(&type, &stop, &traceback);
    PyObject *said = PyObject_CallFunction(PyExc_RuntimeError, "s",
                                           "coroutine raised StopIteration");
    if (said) {
        PyException_SetCause(said, Py_NewRef(stop));
        PyErr_SetObject(PyExc_RuntimeError, said);
        Py_DECREF(said);
    }
    Py_XDECREF(type);
    Py_XDECREF(stop);
    Py_XDECREF(traceback);
}

static PyObject *answer_of(struct port *p, struct waiter *w, struct peerage_answer *a)
{
    const char *key = PyBytes_AS_STRING(w->key);
    size_t bytes = (size_t)PyBytes_GET_SIZE(w->key);

    w->tier = a->tier;
    PyObject *out = w->missing ? value_bare(p->st, p->engine->p, key, bytes, a, w->pickle,
                                            w->missing, w->rebuild)
                               : value_answer(p->st, p->engine->p, key, bytes, a, w->pickle);
    if (!out && PyErr_ExceptionMatches(PyExc_StopIteration))
        reword_stop();
    return out;
}

static void on_answer(struct port *p, struct waiter *w, struct peerage_answer *a)
{
    if (a->kind == PEERAGE_LOAD) {      /* the waiter goes on waiting, for this load */
        call_load_hook(p, hook_of(w), load_of(p->st, a), a->load_id);
        return;
    }
    Py_INCREF(w);
    unlink_waiter(w);
    complete(p, w, answer_of(p, w, a));
    Py_DECREF(w);
}

static void on_report(struct port *p, struct waiter *w, struct peerage_event *event)
{
    Py_INCREF(w);
    unlink_waiter(w);
    if (event->error < 0) {
        peerage_report_free(&event->report);
        errors_raise(p->st, event->error, NULL);
        complete(p, w, NULL);
    } else {
        complete(p, w, value_report(&event->report));
    }
    Py_DECREF(w);
}

static void on_cancel(struct port *p, uint64_t load_id)
{
    PyObject *id = PyLong_FromUnsignedLongLong(load_id);
    PyObject *done = id ? PyObject_CallOneArg(p->cancel_hook, id) : NULL;
    if (!done)
        PyErr_WriteUnraisable(p->cancel_hook);
    Py_XDECREF(id);
    Py_XDECREF(done);
}

static void on_tally(struct port *p, struct waiter *w, const struct peerage_event *event)
{
    Py_INCREF(w);
    unlink_waiter(w);
    if (event->error < 0) {
        errors_raise(p->st, event->error, NULL);
        complete(p, w, NULL);
    } else {
        complete(p, w, counting_taken(event->added, event->total));
    }
    Py_DECREF(w);
}

static bool usable(const struct port *p)
{
    return p->native && p->engine->fork_count == peerage_fork_count;
}

/* Complete what is ready. */
static PyObject *complete_all(struct port *p, bool here)
{
    struct peerage_event event;

    release_check();
    if (!usable(p))
        Py_RETURN_NONE;
    Py_INCREF(p);       /* a hook or a task may drop the last reference */
    p->here = here;
    peerage_port_run(p->native);
    while (usable(p) && peerage_port_next(p->native, &event) == 1) {
        struct waiter *w = event.token;
        uint64_t load_id = event.load.load_id;
        PyObject *load;
        switch (event.kind) {
        case PEERAGE_EVENT_ANSWER:
            on_answer(p, w, event.answer);
            break;
        case PEERAGE_EVENT_REPORT:
            on_report(p, w, &event);
            break;
        case PEERAGE_EVENT_TALLY:
            on_tally(p, w, &event);
            break;
        case PEERAGE_EVENT_LOAD:
            load = value_load(p->st, &event.load);
            peerage_load_free(&event.load);
            call_load_hook(p, p->load_hook, load, load_id);
            break;
        case PEERAGE_EVENT_CANCEL:
            on_cancel(p, event.load_id);
            break;
        }
    }
    p->here = false;
    if (here) {                 /* run() may lie within it */
        PyErr_Restore(p->raised.type, p->raised.error, p->raised.traceback);
        p->raised = (struct raised){0};
    }
    Py_DECREF(p);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* readable(): the loop calls it when the descriptor is; who waited goes on within it */
static PyObject *readable(struct port *p, PyObject *unused)
{
    (void)unused;
    return complete_all(p, true);
}

/* run(): the same for a task to call, whose turn it is: who waited goes on in the next one */
static PyObject *run(struct port *p, PyObject *unused)
{
    (void)unused;
    return complete_all(p, false);
}

/* Asking. */

static PyObject *gone(const struct port *p)
{
    return errors_raise(p->st, PEERAGE_E_CLOSED, NULL);
}

/* The answer; NULL with an exception, or without: it is pending. */
static PyObject *ask_native(struct port *p, struct waiter *w, struct peerage_ask *question)
{
    struct peerage_answer answer;
    uint64_t chain[8];

    if (node_ask_chain(p->st, question, chain) < 0)
        return NULL;
    release_check();
    link_waiter(p, w);
    peerage_port_ask(p->native, question, w, &answer);
    if (answer.kind == PEERAGE_PENDING || answer.kind == PEERAGE_LOAD) {
        if (answer.kind == PEERAGE_LOAD)
            call_load_hook(p, hook_of(w), load_of(p->st, &answer), answer.load_id);
        return NULL;
    }
    unlink_waiter(w);
    return answer_of(p, w, &answer);
}

PyObject *port_ask_bare(PyObject *port, const struct peerage_ask *asked, PyObject *key, bool pickle,
                        PyObject *missing, PyObject *rebuild, PyObject *load_hook,
                        PyObject *future, PyObject **waiter)
{
    struct port *p = (struct port *)port;
    struct peerage_ask question = *asked;

    if (!usable(p))
        return gone(p);
    struct waiter *w = waiter_new(p, future, NULL, key, pickle);
    if (!w)
        return NULL;
    w->asking = load_hook;
    w->missing = Py_NewRef(missing);
    w->rebuild = Py_NewRef(rebuild);
    *waiter = (PyObject *)w;    /* the hook may be called meanwhile */
    return ask_native(p, w, &question);
}

int port_tier(PyObject *waiter)
{
    return ((struct waiter *)waiter)->tier;
}

PyObject *port_asked(PyObject *waiter)
{
    struct waiter *w = (struct waiter *)waiter;
    PyObject *port = w->port ? (PyObject *)w->port : Py_None;
    return PyTuple_Pack(3, port, waiter, w->future);
}

int port_led(PyObject *waiter, PyObject *leader)
{
    struct waiter *w = (struct waiter *)waiter;
    PyObject *rebuild = PyObject_GetAttr(leader, state_of(Py_TYPE(w))->text_rebuild);
    if (!rebuild)
        return -1;
    Py_XSETREF(w->rebuild, rebuild);
    Py_XSETREF(w->load_hook, Py_NewRef(leader));
    return 0;
}

/* ask(arguments, future, load_hook) -> Hit, MISS, Failed, or a Waiter: the future is completed
 * with one of them later. The arguments are Node.ask's, in a tuple as they are made: to
 * spread it beside others would copy it twice. */
static PyObject *ask(struct port *p, PyObject *const *args, Py_ssize_t count)
{
    struct peerage_ask question;
    bool pickle;

    if (count != 3 || !PyTuple_CheckExact(args[0]) || PyTuple_GET_SIZE(args[0]) != ASK_ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "ask takes a tuple of %d, a future and a load hook",
                            ASK_ARGUMENTS);
    PyObject *const *asked = &PyTuple_GET_ITEM(args[0], 0);
    if (node_ask_arguments(asked, &question, &pickle) < 0)
        return NULL;
    if (!usable(p))
        return gone(p);
    struct waiter *w = waiter_new(p, args[1], args[2], asked[0], pickle);
    if (!w)
        return NULL;
    PyObject *out = ask_native(p, w, &question);
    if (!out && !PyErr_Occurred())
        return (PyObject *)w;
    Py_DECREF(w);
    return out;
}

/* change(<the arguments of Node.change>, future) -> Waiter */
static PyObject *change(struct port *p, PyObject *const *args, Py_ssize_t count)
{
    struct peerage_ask name;
    struct peerage_item item;
    bool has_item;
    int by_channel;

    if (count != CHANGE_ARGUMENTS + 1)
        return PyErr_Format(PyExc_TypeError, "change takes %d arguments", CHANGE_ARGUMENTS + 1);
    if (!usable(p))
        return gone(p);
    if (node_change_arguments(args, &name, &item, &has_item, &by_channel) < 0)
        return NULL;
    struct waiter *w = waiter_new(p, args[CHANGE_ARGUMENTS], Py_None, args[0], false);
    if (!w) {
        if (has_item)
            Py_XDECREF((PyObject *)item.owner);
        return NULL;
    }
    link_waiter(p, w);
    int rc = peerage_port_change(p->native, &name, has_item ? &item : NULL, by_channel, w);
    if (rc < 0) {
        unlink_waiter(w);
        Py_DECREF(w);
        return errors_raise(p->st, rc, NULL);
    }
    return (PyObject *)w;
}

/* tally(<the arguments of Node.tally_take>, future) -> (added, total), or a Waiter */
static PyObject *tally(struct port *p, PyObject *const *args, Py_ssize_t count)
{
    struct peerage_tally tally;
    uint64_t amount, limit, total;

    if (count != TAKE_ARGUMENTS + 1)
        return PyErr_Format(PyExc_TypeError, "tally takes %d arguments", TAKE_ARGUMENTS + 1);
    if (!usable(p))
        return gone(p);
    if (counting_arguments(args, TAKE_ARGUMENTS, &tally, &amount, &limit) < 0)
        return NULL;
    struct waiter *w = waiter_new(p, args[TAKE_ARGUMENTS], Py_None, args[1], false);
    if (!w)
        return NULL;
    link_waiter(p, w);
    int rc = peerage_port_tally(p->native, &tally, amount, limit, w, &total);
    if (rc == PEERAGE_PENDING_TALLY)
        return (PyObject *)w;
    unlink_waiter(w);
    Py_DECREF(w);
    return rc < 0 ? errors_raise(p->st, rc, NULL) : counting_taken(rc, total);
}

static bool take_back(struct waiter *w)
{
    if (!w->port || !usable(w->port) || peerage_port_leave(w->port->native, w) != 1)
        return false;
    unlink_waiter(w);
    return true;
}

void port_forsake(PyObject *waiter)
{
    struct waiter *w = (struct waiter *)waiter;
    take_back(w);               /* does nothing where it is completed */
    w->asking = NULL;
    Py_CLEAR(w->load_hook);     /* a cycle: leader, asked, waiter, leader */
    Py_CLEAR(w->rebuild);
}

/* leave(waiter) -> True: the future will not be completed any more */
static PyObject *leave(struct port *p, PyObject *waiter)
{
    if (!Py_IS_TYPE(waiter, p->st->waiter))
        return PyErr_Format(PyExc_TypeError, "leave takes what ask returned");
    struct waiter *w = (struct waiter *)waiter;
    return PyBool_FromLong(w->port == p && take_back(w));
}

static PyObject *fileno_of(struct port *p, PyObject *unused)
{
    (void)unused;
    return usable(p) ? PyLong_FromLong(peerage_port_fd(p->native)) : gone(p);
}

/* Life. */

peerage_port *port_native(PyObject *port)
{
    struct port *p = (struct port *)port;
    return usable(p) ? p->native : NULL;
}

static bool is_of(const struct port *p, PyObject *loop)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found;
    if (PyWeakref_GetRef(p->loop, &found) < 1)
        return false;
    Py_DECREF(found);
    return found == loop;
#else
    return PyWeakref_GetObject(p->loop) == loop;
#endif
}

PyObject *port_of(struct engine *e, PyObject *loop)
{
    for (struct port **at = &e->ports; *at; at = &(*at)->next) {
        struct port *p = *at;
        if (is_of(p, loop)) {
            *at = p->next;
            p->next = e->ports;
            e->ports = p;
            return (PyObject *)p;
        }
    }
    return NULL;
}

static void leave_engine(struct port *p)
{
    for (struct port **at = &p->engine->ports; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            return;
        }
}

/* Port(node, loop, load_hook, cancel_hook): the loop's, from now on */
static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *node, *loop, *load_hook, *cancel_hook;
    struct state *st = state_of(type);

    if (kwargs && PyDict_GET_SIZE(kwargs))
        return PyErr_Format(PyExc_TypeError, "Port takes no keywords");
    if (!PyArg_ParseTuple(args, "O!OOO", st->node, &node, &loop, &load_hook, &cancel_hook))
        return NULL;
    struct engine *e = node_engine((struct node *)node);
    if (!e)
        return NULL;
    peerage_port *native;
    int rc = peerage_port_new(e->p, &native);
    if (rc < 0)
        return errors_raise(st, rc, NULL);
    struct port *p = (struct port *)type->tp_alloc(type, 0);
    if (!p) {
        peerage_port_gone(native, NULL, NULL);
        return NULL;
    }
    p->st = st;
    p->engine = e;
    e->users++;
    p->native = native;
    p->load_hook = Py_NewRef(load_hook);
    p->cancel_hook = Py_NewRef(cancel_hook);
    p->tasks = PyDict_New();
    p->loop = PyWeakref_NewRef(loop, NULL);
    if (!p->tasks || !p->loop) {
        Py_DECREF(p);
        return NULL;
    }
    p->next = e->ports;
    e->ports = p;
    return (PyObject *)p;
}

/* End the native port. In a fork's child its memory is given up, its descriptors are closed
 * already. */
static void end(struct port *p)
{
    if (!p->native)
        return;
    leave_engine(p);
    if (usable(p))
        peerage_port_gone(p->native, NULL, NULL);
    p->native = NULL;
    while (p->first)
        unlink_waiter(p->first);
}

/* gone(): the loop wants no more of it */
static PyObject *end_now(struct port *p, PyObject *unused)
{
    (void)unused;
    end(p);
    Py_RETURN_NONE;
}

static int traverse(struct port *p, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(p));
    Py_VISIT(p->loop);
    Py_VISIT(p->load_hook);
    Py_VISIT(p->cancel_hook);
    Py_VISIT(p->tasks);
    for (struct waiter *w = p->first; w; w = w->next)
        Py_VISIT(w);
    return 0;
}

static int clear(struct port *p)
{
    end(p);
    Py_CLEAR(p->load_hook);
    Py_CLEAR(p->cancel_hook);
    Py_CLEAR(p->tasks);
    Py_CLEAR(p->loop);
    return 0;
}

static void dealloc(struct port *p)
{
    PyTypeObject *type = Py_TYPE(p);
    PyObject_GC_UnTrack(p);
    clear(p);
    engine_leave(p->engine);
    type->tp_free(p);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"fileno", METHOD_CAST(fileno_of), METH_NOARGS, NULL},
    {"readable", METHOD_CAST(readable), METH_NOARGS, NULL},
    {"run", METHOD_CAST(run), METH_NOARGS, NULL},
    {"ask", METHOD_CAST(ask), METH_FASTCALL, NULL},
    {"change", METHOD_CAST(change), METH_FASTCALL, NULL},
    {"tally", METHOD_CAST(tally), METH_FASTCALL, NULL},
    {"leave", METHOD_CAST(leave), METH_O, NULL},
    {"gone", METHOD_CAST(end_now), METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"tasks", T_OBJECT, offsetof(struct port, tasks), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "peerage._native.Port",
    .basicsize = sizeof(struct port),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

static PyType_Slot waiter_slots[] = {
    {Py_tp_dealloc, waiter_dealloc},
    {Py_tp_traverse, waiter_traverse},
    {Py_tp_clear, waiter_clear},
    {0, NULL},
};

static PyType_Spec waiter_spec = {
    .name = "peerage._native.Waiter",
    .basicsize = sizeof(struct waiter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = waiter_slots,
};

int port_types_add(PyObject *module, struct state *st)
{
    st->port = type_add(module, &spec, "Port");
    st->waiter = type_add(module, &waiter_spec, "Waiter");
    return st->port && st->waiter ? 0 : -1;
}
