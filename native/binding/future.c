/* What a task waits for while a port asks: a future of its loop, of which the task goes on at once.
 *
 * The port completes it in a callback of the loop's, where no task runs, so the task's next step
 * is taken right there. asyncio's own Future would leave it to the loop's next turn, which is
 * one more look at all descriptors and a third of what waiting costs.
 *
 * To a task it is a future by duck typing, as asyncio has it for futures that are not its own
 * (Task.__step: _asyncio_future_blocking, get_loop, add_done_callback, result, cancel). One
 * waits for it, and whoever cancels it does so from anywhere, so that goes through the loop.
 */
#include "binding.h"

#include <stddef.h>
#include <structmember.h>

enum fate { PENDING, GIVES, RAISES, CANCELLED };

struct future {
    PyObject_HEAD
    const struct state *st;
    PyObject *loop;
    PyObject *wakeup, *context; /* of who waits; NULL: nobody yet, or told */
    PyObject *end;              /* the value, the exception, or why it was cancelled; or NULL */
    enum fate fate;
    PyObject *weak;             /* references to it */
    char blocking;              /* between being awaited and the task's taking notice */
    bool awaited;
};

PyObject *future_new(const struct state *st, PyObject *loop)
{
    struct future *f = PyObject_GC_New(struct future, st->future);
    if (!f)
        return NULL;
    f->st = st;
    f->loop = Py_NewRef(loop);
    f->wakeup = f->context = f->end = f->weak = NULL;
    f->fate = PENDING;
    f->blocking = f->awaited = false;
    PyObject_GC_Track(f);
    return (PyObject *)f;
}

/* Ending. */

static int call_soon(struct future *f, PyObject *wakeup, PyObject *context)
{
    PyObject *arguments[] = {f->loop, wakeup, (PyObject *)f, context};
    PyObject *handle = PyObject_VectorcallMethod(f->st->text_call_soon, arguments, 3,
                                                 f->st->names_context);
    Py_XDECREF(handle);
    return handle ? 0 : -1;
}

/* As Context.run does. */
static int call_here(struct future *f, PyObject *wakeup, PyObject *context)
{
    PyObject *type, *error, *traceback;

    if (PyContext_Enter(context) < 0)
        return -1;
    PyObject *done = PyObject_CallOneArg(wakeup, (PyObject *)f);
    PyErr_Fetch(&type, &error, &traceback);
    PyContext_Exit(context);
    PyErr_Restore(type, error, traceback);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Takes what it ends with. */
static int end(struct future *f, enum fate fate, PyObject *with, bool here)
{
    PyObject *wakeup = f->wakeup, *context = f->context;
    int rc = 0;

    Py_INCREF(f);
    f->fate = fate;
    f->end = with;
    f->wakeup = f->context = NULL;
    if (wakeup)
        rc = here ? call_here(f, wakeup, context) : call_soon(f, wakeup, context);
    Py_XDECREF(wakeup);
    Py_XDECREF(context);
    Py_DECREF(f);
    return rc;
}

int future_complete(PyObject *self, PyObject *value, bool here)
{
    struct future *f = (struct future *)self;
    PyObject *type = NULL, *error = NULL, *traceback = NULL;

    if (!value) {
        PyErr_Fetch(&type, &error, &traceback);
        PyErr_NormalizeException(&type, &error, &traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    if (f->fate == PENDING)
        return end(f, value ? GIVES : RAISES, value ? value : error, here);
    Py_XDECREF(value);
    Py_XDECREF(error);
    return 0;
}

/* set_exception(error): for whoever runs a load */
static PyObject *set_exception(struct future *f, PyObject *error)
{
    if (!PyExceptionInstance_Check(error))
        return PyErr_Format(PyExc_TypeError, "set_exception takes an exception");
    if (f->fate != PENDING)
        return PyErr_Format(PyExc_RuntimeError, "the future is done");
    if (end(f, RAISES, Py_NewRef(error), false) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* cancel(msg=None) -> bool */
static PyObject *cancel(struct future *f, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"msg", NULL};
    PyObject *message = Py_None;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:cancel", names, &message))
        return NULL;
    if (f->fate != PENDING)
        Py_RETURN_FALSE;
    if (end(f, CANCELLED, message == Py_None ? NULL : Py_NewRef(message), false) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

/* Waiting. */

/* The error is made by hand: PyErr_SetObject would take a tuple for its arguments. */
static PyObject *raise_cancelled(const struct future *f)
{
    PyObject *error = f->end ? PyObject_CallOneArg(f->st->cancelled_error, f->end)
                             : PyObject_CallNoArgs(f->st->cancelled_error);
    if (error) {
        PyErr_SetObject(f->st->cancelled_error, error);
        Py_DECREF(error);
    }
    return NULL;
}

/* What it ended with, as a value or as an exception. */
static PyObject *result(struct future *f, PyObject *unused)
{
    (void)unused;
    switch (f->fate) {
    case GIVES:
        return Py_NewRef(f->end);
    case RAISES:
        PyErr_SetObject((PyObject *)Py_TYPE(f->end), f->end);
        return NULL;
    case CANCELLED:
        return raise_cancelled(f);
    case PENDING:
        break;
    }
    return PyErr_Format(PyExc_RuntimeError, "the future is not done");
}

static PyObject *taken_already(void)
{
    return PyErr_Format(PyExc_RuntimeError, "somebody waits for this future already");
}

static PySendResult am_send(PyObject *self, PyObject *sent, PyObject **out)
{
    struct future *f = (struct future *)self;

    (void)sent;
    if (f->fate == PENDING && !f->awaited) {
        f->blocking = f->awaited = true;
        *out = Py_NewRef(self);
        return PYGEN_NEXT;
    }
    *out = f->fate == PENDING ? taken_already() : result(f, NULL);
    return *out ? PYGEN_RETURN : PYGEN_ERROR;
}

/* add_done_callback(callback, *, context=None) */
static PyObject *add_done_callback(struct future *f, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"callback", "context", NULL};
    PyObject *wakeup, *context = Py_None;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:add_done_callback", names, &wakeup,
                                     &context))
        return NULL;
    if (f->wakeup)
        return taken_already();
    context = context == Py_None ? PyContext_CopyCurrent() : Py_NewRef(context);
    if (!context)
        return NULL;
    if (f->fate == PENDING) {
        f->wakeup = Py_NewRef(wakeup);
        f->context = context;
        Py_RETURN_NONE;
    }
    int rc = call_soon(f, wakeup, context);
    Py_DECREF(context);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *get_loop(struct future *f, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(f->loop);
}

static PyObject *done(struct future *f, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(f->fate != PENDING);
}

static PyObject *cancelled(struct future *f, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(f->fate == CANCELLED);
}

/* Life. */

/* Future(loop) */
static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *loop;

    if (kwargs && PyDict_GET_SIZE(kwargs))
        return PyErr_Format(PyExc_TypeError, "Future takes a loop and no keywords");
    return PyArg_ParseTuple(args, "O:Future", &loop) ? future_new(state_of(type), loop) : NULL;
}

static int traverse(struct future *f, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(f));
    Py_VISIT(f->loop);
    Py_VISIT(f->wakeup);
    Py_VISIT(f->context);
    Py_VISIT(f->end);
    return 0;
}

static int clear(struct future *f)
{
    Py_CLEAR(f->wakeup);
    Py_CLEAR(f->context);
    if (f->end)
        f->fate = CANCELLED;    /* for whoever still asks */
    Py_CLEAR(f->end);
    return 0;
}

static void dealloc(struct future *f)
{
    PyTypeObject *type = Py_TYPE(f);
    PyObject_GC_UnTrack(f);
    if (f->weak)
        PyObject_ClearWeakRefs((PyObject *)f);
    clear(f);
    Py_DECREF(f->loop);
    PyObject_GC_Del(f);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"get_loop", METHOD_CAST(get_loop), METH_NOARGS, NULL},
    {"add_done_callback", METHOD_CAST(add_done_callback), METH_VARARGS | METH_KEYWORDS, NULL},
    {"result", METHOD_CAST(result), METH_NOARGS, NULL},
    {"cancel", METHOD_CAST(cancel), METH_VARARGS | METH_KEYWORDS, NULL},
    {"done", METHOD_CAST(done), METH_NOARGS, NULL},
    {"cancelled", METHOD_CAST(cancelled), METH_NOARGS, NULL},
    {"set_exception", METHOD_CAST(set_exception), METH_O, NULL},
    {"send", METHOD_CAST(ready_send), METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"_asyncio_future_blocking", T_BOOL, offsetof(struct future, blocking), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct future, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_iternext, ready_next},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, am_send},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "peerage._native.Future",
    .basicsize = sizeof(struct future),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

int future_type_add(PyObject *module, struct state *st)
{
    st->future = type_add(module, &spec, "Future");
    return st->future ? 0 : -1;
}
