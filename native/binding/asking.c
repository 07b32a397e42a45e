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

#define CHANNEL_MAX 255         /* as peerage.h says of struct peerage_ask */

struct asking {
    PyObject_HEAD
    const struct state *st;
    const struct asker *asker;  /* in keeper */
    PyObject *keeper;
    PyObject *given_key, *given_channel, *missing;      /* the call's arguments, for slow */
    PyObject *key, *channel;    /* bytes, as they are asked for; channel may be NULL */
    PyObject *awaited;          /* iterator of the future, or coroutine of slow; NULL: not yet */
    PyObject *waiter;           /* of the future; NULL: it is slow's coroutine */
    bool over;                  /* awaited to the end, closed, or thrown at */
};

/* The call's channel as bytes in *out, NULL for none. False: the slow path words what is wrong. */
static bool read_channel(PyObject *given, PyObject **out)
{
    const char *at;
    Py_ssize_t bytes;

    *out = NULL;
    if (given == Py_None)
        return true;
    if (PyUnicode_CheckExact(given)) {
        at = PyUnicode_AsUTF8AndSize(given, &bytes);
        if (!at) {
            PyErr_Clear();
            return false;
        }
    } else if (PyBytes_Check(given)) {
        at = PyBytes_AS_STRING(given);
        bytes = PyBytes_GET_SIZE(given);
    } else {
        return false;
    }
    if (bytes == 0)
        return true;
    if (bytes > CHANNEL_MAX)
        return false;
    *out = PyBytes_FromStringAndSize(at, bytes);
    return *out != NULL;
}

PyObject *asking_new(const struct state *st, const struct asker *asker, PyObject *keeper,
                     const void *key, size_t key_bytes, PyObject *const *args, Py_ssize_t count,
                     PyObject *kwnames)
{
    PyObject *missing = count > 1 ? args[1] : NULL, *channel = NULL, *channel_bytes;

    if (!asker->rebuild || count > 2)
        return NULL;
    for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "channel") == 0)
            channel = args[count + i];
        else if (!missing && PyUnicode_CompareWithASCIIString(name, "default") == 0)
            missing = args[count + i];
        else
            return NULL;
    }
    channel = channel ? channel : Py_None;
    if (!read_channel(channel, &channel_bytes))
        return NULL;
    struct asking *a = PyObject_GC_New(struct asking, st->asking);
    if (!a) {
        Py_XDECREF(channel_bytes);
        return NULL;
    }
    a->st = st;
    a->asker = asker;
    a->keeper = Py_NewRef(keeper);
    a->given_key = Py_NewRef(args[0]);
    a->given_channel = Py_NewRef(channel);
    a->missing = Py_NewRef(missing ? missing : Py_None);
    a->key = PyBytes_FromStringAndSize(key, (Py_ssize_t)key_bytes);
    a->channel = channel_bytes;
    a->awaited = a->waiter = NULL;
    a->over = !a->key;
    PyObject_GC_Track(a);
    if (!a->key)
        Py_CLEAR(a);
    return (PyObject *)a;
}

static void end(struct asking *a)
{
    a->over = true;
    if (a->waiter)
        port_leave(a->waiter);  /* does nothing where the future is completed */
    Py_CLEAR(a->waiter);
    Py_CLEAR(a->awaited);
}

/* Both begin(): set `awaited`, or return an answer that was there at once; else an exception. */

static PyObject *begin_slow(struct asking *a)
{
    PyObject *args = PyTuple_Pack(2, a->given_key, a->missing);
    PyObject *kwargs = Py_BuildValue("{sO}", "channel", a->given_channel);

    if (args && kwargs)
        a->awaited = PyObject_Call(a->asker->slow, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return NULL;
}

static PyObject *begin(struct asking *a)
{
    struct peerage_ask question = a->asker->terms;
    PyObject *answer = NULL;

    struct engine *e = node_engine(a->asker->node);
    PyObject *loop = e ? PyObject_CallNoArgs(a->st->running_loop) : NULL;
    if (!loop)
        return NULL;
    PyObject *port = Py_XNewRef(port_of(e, loop));
    if (!port) {
        Py_DECREF(loop);
        return begin_slow(a);
    }
    question.key = PyBytes_AS_STRING(a->key);
    question.key_bytes = (size_t)PyBytes_GET_SIZE(a->key);
    if (a->channel) {
        question.channel = PyBytes_AS_STRING(a->channel);
        question.channel_bytes = (size_t)PyBytes_GET_SIZE(a->channel);
    }
    PyObject *future = PyObject_CallMethodNoArgs(loop, a->st->text_create_future);
    if (future)
        answer = port_ask_bare(port, &question, a->key, a->asker->pickle, a->missing,
                               a->asker->rebuild, future, &a->waiter);
    if (future && a->waiter) {
        PyAsyncMethods *as = Py_TYPE(future)->tp_as_async;
        a->awaited = as && as->am_await ? as->am_await(future)
                                        : PyErr_Format(PyExc_TypeError, "a future is awaitable");
    }
    Py_XDECREF(future);
    Py_DECREF(port);
    Py_DECREF(loop);
    return answer;
}

static PySendResult am_send(PyObject *self, PyObject *sent, PyObject **result)
{
    struct asking *a = (struct asking *)self;
    PySendResult step;

    if (a->over) {
        *result = ready_reused();
        return PYGEN_ERROR;
    }
    *result = a->awaited ? NULL : begin(a);
    step = a->awaited ? PyIter_Send(a->awaited, sent, result) : *result ? PYGEN_RETURN
                                                                        : PYGEN_ERROR;
    if (step != PYGEN_NEXT)
        end(a);
    return step;
}

/* A cancelled task throws. */
static PyObject *throw(struct asking *a, PyObject *const *args, Py_ssize_t count)
{
    if (a->over)
        return ready_reused();
    if (!a->awaited || a->waiter) {
        end(a);
        return ready_raise(args, count);
    }
    PyObject *call[4] = {a->awaited};
    for (Py_ssize_t i = 0; i < count && i < 3; i++)
        call[i + 1] = args[i];
    PyObject *found = PyObject_VectorcallMethod(a->st->text_throw, call,
                                                (size_t)(count < 3 ? count : 3) + 1, NULL);
    if (!found)
        end(a);
    return found;       /* what it goes on waiting for */
}

static PyObject *close_it(struct asking *a, PyObject *unused)
{
    PyObject *closed = a->awaited && !a->waiter
                           ? PyObject_CallMethodNoArgs(a->awaited, a->st->text_close)
                           : Py_NewRef(Py_None);
    (void)unused;
    end(a);
    return closed;
}

static PyObject *qualname(PyObject *self, void *unused)
{
    struct asking *a = (struct asking *)self;
    (void)unused;
    return PyObject_GetAttr(a->asker->slow, a->st->text_qualname);
}

static void finalize(PyObject *self)
{
    struct asking *a = (struct asking *)self;
    PyObject *type, *error, *traceback;

    if (a->over || a->awaited)
        return;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *name = qualname(self, NULL);
    if (!name || PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "coroutine '%S' was never awaited", name) < 0)
        PyErr_WriteUnraisable(self);
    Py_XDECREF(name);
    PyErr_Restore(type, error, traceback);
}

static int traverse(struct asking *a, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(a));
    Py_VISIT(a->keeper);
    Py_VISIT(a->given_key);
    Py_VISIT(a->given_channel);
    Py_VISIT(a->missing);
    Py_VISIT(a->awaited);
    Py_VISIT(a->waiter);
    return 0;
}

static int clear(struct asking *a)
{
    end(a);
    Py_CLEAR(a->missing);
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
    Py_CLEAR(a->given_key);
    Py_CLEAR(a->given_channel);
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
