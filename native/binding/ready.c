/* What a call of an async function gives on a local hit: an awaitable that is done. It is a
 * coroutine by duck typing (send, throw, close), so asyncio.create_task and gather take it,
 * and through am_send `await` gets its value without an exception being made.
 */
#include "binding.h"

struct ready {
    PyObject_HEAD
    PyObject *value;            /* NULL: awaited already */
};

PyObject *ready_new(const struct state *st, PyObject *value)
{
    struct ready *r = PyObject_New(struct ready, st->ready);
    if (!r) {
        Py_DECREF(value);
        return NULL;
    }
    r->value = value;
    return (PyObject *)r;
}

static void dealloc(struct ready *r)
{
    PyTypeObject *type = Py_TYPE(r);
    Py_XDECREF(r->value);
    PyObject_Free(r);
    Py_DECREF(type);
}

static PySendResult am_send(PyObject *self, PyObject *sent, PyObject **result)
{
    struct ready *r = (struct ready *)self;

    (void)sent;
    *result = r->value ? r->value : ready_reused();
    r->value = NULL;
    return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

PyObject *ready_reused(void)
{
    PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
    return NULL;
}

PyObject *ready_send(PyObject *self, PyObject *sent)
{
    PyObject *value;
    PySendResult ended = PyIter_Send(self, sent, &value);

    if (ended != PYGEN_RETURN)
        return value;       /* what it waits for; or NULL */
    /* Made by hand: PyErr_SetObject would take a tuple for the arguments. */
    PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    Py_DECREF(value);
    if (stop) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
    return NULL;
}

PyObject *ready_next(PyObject *self)
{
    return ready_send(self, Py_None);
}

PyObject *ready_raise(PyObject *const *args, Py_ssize_t count)
{
    if (count < 1)
        return PyErr_Format(PyExc_TypeError, "throw expected an exception");
    if (PyExceptionInstance_Check(args[0]))
        PyErr_SetObject((PyObject *)Py_TYPE(args[0]), args[0]);
    else if (PyExceptionClass_Check(args[0]))
        PyErr_SetObject(args[0], count > 1 && args[1] != Py_None ? args[1] : NULL);
    else
        PyErr_SetString(PyExc_TypeError, "exceptions must be classes or instances");
    return NULL;
}

/* It is as if the coroutine had not begun. */
static PyObject *throw(struct ready *r, PyObject *const *args, Py_ssize_t count)
{
    Py_CLEAR(r->value);
    return ready_raise(args, count);
}

static PyObject *close_it(struct ready *r, PyObject *unused)
{
    (void)unused;
    Py_CLEAR(r->value);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"send", METHOD_CAST(ready_send), METH_O, NULL},
    {"throw", METHOD_CAST(throw), METH_FASTCALL, NULL},
    {"close", METHOD_CAST(close_it), METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, dealloc},
    {Py_tp_iternext, ready_next},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, am_send},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "peerage._native.Ready",
    .basicsize = sizeof(struct ready),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int ready_type_add(PyObject *module, struct state *st)
{
    st->ready = type_add(module, &spec, "Ready");
    return st->ready ? 0 : -1;
}
