/* A question of an event loop's for a key that isn't here, as an awaitable: it asks when it is
 * awaited, by the port of the loop that runs then, and waits for a future of that loop, which
 * the port completes with what the caller gets. So the whole of an owner's hit is as many steps
 * in Python as a local one: none.
 *
 * A loop that has no port yet, or none any more, is the Python layer's: `slow`, called with the
 * same arguments, is awaited in its place.
 *
 * To everyone it is a coroutine, by duck typing as in ready.c, that of the function it stands
 * for: one that nobody awaits says so, and one that is thrown at or dropped leaves.
 */
#include "binding.h"

struct asking {
    PyObject_HEAD
    const struct state *st;
    struct asker *asker;        /* in keeper */
    PyObject *keeper;
    PyObject *key, *channel;    /* bytes; channel may be NULL */
    PyObject *missing;          /* what no value is */
    PyObject *args, *kwargs;    /* for slow, and args for lead; kwargs may be NULL */
    PyObject *context;          /* the caller's, for a loader; NULL: not asked yet, or no loader */
    PyObject *awaited;          /* the future, or coroutine of slow; NULL: not yet */
    PyObject *waiter;           /* of the future; NULL: it is slow's coroutine */
    bool running;               /* inside of send, throw or close */
    bool over;                  /* awaited to the end, closed, or thrown at */
};

/* What questions have in common. */

int asker_init(struct asker *asker, PyObject *node, PyObject *slow, bool pickle,
               PyObject *arguments, PyObject *rebuild, PyObject *lead)
{
    bool unused;

    if (arguments != Py_None) {
        if (!PyTuple_CheckExact(arguments) || PyTuple_GET_SIZE(arguments) != ASK_ARGUMENTS) {
            PyErr_Format(PyExc_TypeError, "arguments: a tuple of %d", ASK_ARGUMENTS);
            return -1;
        }
        if (node_ask_arguments(&PyTuple_GET_ITEM(arguments, 0), &asker->terms, &unused) < 0)
            return -1;
        asker->arguments = Py_NewRef(arguments);
    }
    asker->node = (struct node *)Py_NewRef(node);
    asker->slow = Py_NewRef(slow);
    asker->rebuild = Py_NewRef(rebuild);
    asker->lead = lead == Py_None ? NULL : Py_NewRef(lead);
    asker->pickle = pickle;
    return 0;
}

int asker_visit(struct asker *asker, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)asker->node);
    Py_VISIT(asker->slow);
    Py_VISIT(asker->rebuild);
    Py_VISIT(asker->lead);
    return 0;
}

/* But for the node and the arguments, which calls still look at. */
void asker_clear(struct asker *asker)
{
    Py_CLEAR(asker->slow);
    Py_CLEAR(asker->rebuild);
    Py_CLEAR(asker->lead);
}

void asker_free(struct asker *asker)
{
    asker_clear(asker);
    Py_XDECREF((PyObject *)asker->node);
    Py_XDECREF(asker->arguments);
}

/* One question. */

PyObject *asking_new(const struct state *st, struct asker *asker, PyObject *keeper, PyObject *key,
                     PyObject *channel, PyObject *missing, PyObject *args, PyObject *kwargs)
{
    struct asking *a = key && args ? PyObject_GC_New(struct asking, st->asking) : NULL;
    if (!a) {
        Py_XDECREF(key);
        Py_XDECREF(channel);
        Py_XDECREF(args);
        Py_XDECREF(kwargs);
        return NULL;
    }
    a->st = st;
    a->asker = asker;
    a->keeper = Py_NewRef(keeper);
    a->key = key;
    a->channel = channel;
    a->missing = Py_NewRef(missing);
    a->args = args;
    a->kwargs = kwargs;
    a->context = a->awaited = a->waiter = NULL;
    a->running = a->over = false;
    PyObject_GC_Track(a);
    return (PyObject *)a;
}

/* Nothing it was asked with outlives it: a task keeps its coroutine. Keeps an exception that is
 * set. */
static void end(struct asking *a)
{
    PyObject *type, *error, *traceback;

    a->over = true;
    PyErr_Fetch(&type, &error, &traceback);
    if (a->waiter)
        port_forsake(a->waiter);
    Py_CLEAR(a->waiter);
    Py_CLEAR(a->awaited);
    Py_CLEAR(a->missing);
    Py_CLEAR(a->args);
    Py_CLEAR(a->kwargs);
    Py_CLEAR(a->context);
    PyErr_Restore(type, error, traceback);
}

/* An answer that was there at once; NULL with an exception, or without: `awaited` will tell. */
static PyObject *begin(struct asking *a)
{
    struct peerage_ask question = a->asker->terms;
    PyObject *answer = NULL;

    PyObject *loop = PyObject_CallNoArgs(a->st->running_loop);
    struct engine *e = loop ? node_engine(a->asker->node) : NULL;
    if (!e) {
        Py_XDECREF(loop);
        return NULL;
    }
    PyObject *port = Py_XNewRef(port_of(e, loop));
    if (!port) {
        Py_DECREF(loop);
        a->awaited = PyObject_Call(a->asker->slow, a->args, a->kwargs);
        return NULL;
    }
    question.key = PyBytes_AS_STRING(a->key);
    question.key_bytes = (size_t)PyBytes_GET_SIZE(a->key);
    if (a->channel) {
        question.channel = PyBytes_AS_STRING(a->channel);
        question.channel_bytes = (size_t)PyBytes_GET_SIZE(a->channel);
    }
    PyObject *future = future_new(a->st, loop);
    bool asks = future && (!a->asker->lead || (a->context = PyContext_CopyCurrent()));
    if (asks)
        answer = port_ask_bare(port, &question, a->key, a->asker->pickle, a->missing,
                               a->asker->rebuild, a->asker->lead ? (PyObject *)a : NULL, future,
                               &a->waiter);
    if (asks && !answer && !PyErr_Occurred())
        a->awaited = Py_NewRef(future);
    Py_XDECREF(future);
    Py_DECREF(port);
    Py_DECREF(loop);
    return answer;
}

/* Called with a Load: it falls to this question to run the loader. From now on that is its
 * Leader's, in Python. */
static PyObject *call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct asking *a = (struct asking *)self;
    PyObject *leader = NULL, *out = NULL;

    if (!a->waiter || !a->asker->lead)
        return PyErr_Format(PyExc_RuntimeError, "nobody waits for this load");
    PyObject *asked = port_asked(a->waiter);
    if (asked)
        leader = PyObject_CallFunctionObjArgs(a->asker->lead, a->context, asked, a->args, NULL);
    if (leader && a->waiter && port_led(a->waiter, leader) == 0)
        out = PyObject_Call(leader, args, kwargs);
    Py_XDECREF(leader);
    Py_XDECREF(asked);
    return out;
}

/* Slow counts for itself. */
static void tally(struct asking *a, PySendResult step)
{
    if (!a->waiter)
        return;
    if (step == PYGEN_RETURN)
        a->asker->hits[port_tier(a->waiter)]++;
    else if (step == PYGEN_ERROR && PyErr_ExceptionMatches(PyExc_Exception))
        a->asker->errors++;
}

/* As a coroutine says it: what runs it holds no reference to what it awaits. */
static bool enter(struct asking *a)
{
    if (a->running)
        PyErr_SetString(PyExc_ValueError, "coroutine already executing");
    else if (a->over)
        ready_reused();
    else
        return a->running = true;
    return false;
}

static PySendResult am_send(PyObject *self, PyObject *sent, PyObject **result)
{
    struct asking *a = (struct asking *)self;
    PySendResult step;

    *result = NULL;
    if (!enter(a))
        return PYGEN_ERROR;
    if (!a->awaited)
        *result = begin(a);
    if (a->awaited)
        step = PyIter_Send(a->awaited, sent, result);
    else
        step = *result ? PYGEN_RETURN : PYGEN_ERROR;
    a->running = false;
    tally(a, step);
    if (step != PYGEN_NEXT)
        end(a);
    return step;
}

/* A task throws what its future got for an exception, and that it was cancelled. */
static PyObject *throw(struct asking *a, PyObject *const *args, Py_ssize_t count)
{
    if (!enter(a))
        return NULL;
    if (!a->awaited || a->waiter) {
        ready_raise(args, count);
        a->running = false;
        tally(a, PYGEN_ERROR);
        end(a);
        return NULL;
    }
    PyObject *passed[4] = {a->awaited};
    for (Py_ssize_t i = 0; i < count && i < 3; i++)
        passed[i + 1] = args[i];
    PyObject *found = PyObject_VectorcallMethod(a->st->text_throw, passed,
                                                (size_t)(count < 3 ? count : 3) + 1, NULL);
    a->running = false;
    if (!found)
        end(a);
    return found;       /* what it goes on waiting for */
}

static PyObject *close_it(struct asking *a, PyObject *unused)
{
    (void)unused;
    if (a->over)
        Py_RETURN_NONE;
    if (!enter(a))
        return NULL;
    PyObject *closed = a->awaited && !a->waiter
                           ? PyObject_CallMethodNoArgs(a->awaited, a->st->text_close)
                           : Py_NewRef(Py_None);
    a->running = false;
    end(a);
    return closed;
}

static PyObject *qualname(PyObject *self, void *unused)
{
    struct asking *a = (struct asking *)self;
    (void)unused;
    PyObject *function = PyObject_GetAttr(a->keeper, a->st->text_wrapped);
    PyObject *name = function ? PyObject_GetAttr(function, a->st->text_qualname) : NULL;
    Py_XDECREF(function);
    return name;
}

static void finalize(PyObject *self)
{
    struct asking *a = (struct asking *)self;
    PyObject *type, *error, *traceback;

    if (a->over || a->awaited)
        return;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *name = qualname(self, NULL);
    if (!name || PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "coroutine '%S' was never awaited",
                                  name) < 0)
        PyErr_WriteUnraisable(self);
    Py_XDECREF(name);
    PyErr_Restore(type, error, traceback);
}

static int traverse(struct asking *a, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(a));
    Py_VISIT(a->keeper);
    Py_VISIT(a->missing);
    Py_VISIT(a->args);
    Py_VISIT(a->kwargs);
    Py_VISIT(a->context);
    Py_VISIT(a->awaited);
    Py_VISIT(a->waiter);
    return 0;
}

static int clear(struct asking *a)
{
    end(a);
    return 0;
}

static void dealloc(struct asking *a)
{
    PyTypeObject *type = Py_TYPE(a);
    if (PyObject_CallFinalizerFromDealloc((PyObject *)a) < 0)
        return;
    PyObject_GC_UnTrack(a);
    clear(a);
    Py_CLEAR(a->keeper);
    Py_CLEAR(a->key);
    Py_CLEAR(a->channel);
    PyObject_GC_Del(a);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"send", METHOD_CAST(ready_send), METH_O, NULL},
    {"throw", METHOD_CAST(throw), METH_FASTCALL, NULL},
    {"close", METHOD_CAST(close_it), METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"__qualname__", qualname, NULL, NULL, NULL},       /* asyncio names a task by it */
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc},
    {Py_tp_finalize, finalize},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_call, call},
    {Py_tp_iternext, ready_next},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, am_send},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "peerage._native.Asking",
    .basicsize = sizeof(struct asking),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int asking_type_add(PyObject *module, struct state *st)
{
    st->asking = type_add(module, &spec, "Asking");
    return st->asking ? 0 : -1;
}
