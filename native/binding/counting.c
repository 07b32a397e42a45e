/* Tallies: counting and taking, on this thread. An event loop's take stands in port.c. */
#include "binding.h"

static int uint64_of(PyObject *object, uint64_t *out)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(object);

    if (value == (unsigned long long)-1 && PyErr_Occurred())
        return -1;
    *out = value;
    return 0;
}

int counting_arguments(PyObject *const *args, Py_ssize_t count, struct peerage_tally *t,
                    uint64_t *amount, uint64_t *limit)
{
    uint64_t window_ms;

    if (!PyBytes_Check(args[0]) || !PyBytes_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a tally's name and key must be bytes");
        return -1;
    }
    *limit = UINT64_MAX;
    if (uint64_of(args[2], &window_ms) < 0 || uint64_of(args[3], amount) < 0 ||
        (count == TAKE_ARGUMENTS && args[4] != Py_None && uint64_of(args[4], limit) < 0))
        return -1;
    *t = (struct peerage_tally){
        .name = PyBytes_AS_STRING(args[0]),
        .name_bytes = (size_t)PyBytes_GET_SIZE(args[0]),
        .key = PyBytes_AS_STRING(args[1]),
        .key_bytes = (size_t)PyBytes_GET_SIZE(args[1]),
        .window_ms = (uint32_t)(window_ms > UINT32_MAX ? UINT32_MAX : window_ms),
    };
    return 0;
}

PyObject *counting_taken(int added, uint64_t total)
{
    return Py_BuildValue("NK", PyBool_FromLong(added), (unsigned long long)total);
}

static PyObject *wrong_count(const char *name, int wanted)
{
    return PyErr_Format(PyExc_TypeError, "%s takes %d arguments", name, wanted);
}

/* tally_add(name, key, window_ms, amount) -> the sum; never waits */
PyObject *counting_add(struct node *self, PyObject *const *args, Py_ssize_t count)
{
    struct peerage_tally tally;
    uint64_t amount, limit, total;

    if (count != TAKE_ARGUMENTS - 1)
        return wrong_count("tally_add", TAKE_ARGUMENTS - 1);
    if (counting_arguments(args, count, &tally, &amount, &limit) < 0)
        return NULL;
    struct engine *e = node_engine(self);
    if (!e)
        return NULL;
    int rc = peerage_tally_add(e->p, &tally, amount, &total);
    if (rc < 0)
        return errors_raise(state_of(Py_TYPE(self)), rc, NULL);
    return PyLong_FromUnsignedLongLong(total);
}

/* tally_take(name, key, window_ms, amount, limit or None) -> (added, total); may wait for Redis */
PyObject *counting_take(struct node *self, PyObject *const *args, Py_ssize_t count)
{
    struct peerage_tally tally;
    uint64_t amount, limit, total;

    if (count != TAKE_ARGUMENTS)
        return wrong_count("tally_take", TAKE_ARGUMENTS);
    if (counting_arguments(args, count, &tally, &amount, &limit) < 0)
        return NULL;
    struct engine *e = node_enter(self);
    if (!e)
        return NULL;
    PyThreadState *saved = PyEval_SaveThread();
    int rc = peerage_tally_take(e->p, &tally, amount, limit, &total, node_interrupted, &saved);
    PyEval_RestoreThread(saved);
    engine_leave(e);
    if (PyErr_Occurred())
        return NULL;
    if (rc < 0)
        return errors_raise(state_of(Py_TYPE(self)), rc, NULL);
    return counting_taken(rc, total);
}
