/* Probing a node from outside, for the command line (see probe.h and peerage_probe). */
#include "probe.h"

#include <stdlib.h>

#define SEEN_ROOM 16384     /* as many members as a table has */

static PyObject *flag(int value)
{
    return value ? Py_True : Py_False;
}

static PyObject *list(const struct peerage_seen *seen, int count)
{
    PyObject *out = PyList_New(0);

    for (int i = 0; out && i < count; i++) {
        const struct peerage_seen *s = &seen[i];
        PyObject *one = Py_BuildValue(
            "sKKiOOOOii", s->address, (unsigned long long)s->node_id,
            (unsigned long long)s->started_ms, s->state, flag(s->coordinates), flag(s->warming),
            flag(s->draining), flag(s->observer), s->speaks_min, s->speaks_max);
        if (!one || PyList_Append(out, one) < 0)
            Py_CLEAR(out);
        Py_XDECREF(one);
    }
    return out;
}

PyObject *probe(PyObject *module, PyObject *args)
{
    struct peerage_options o;
    struct peerage_probe found;
    const char *address;
    unsigned int timeout_ms;
    long long offset_ms;
    char line[PEERAGE_LINE_MAX];
    int rc;

    peerage_options_default(&o);
    if (!PyArg_ParseTuple(args, "sspzsIL", &o.secret, &o.label, &o.encryption, &o.allow_cidr,
                          &address, &timeout_ms, &offset_ms))
        return NULL;
    struct peerage_seen *seen = malloc(SEEN_ROOM * sizeof *seen);
    if (!seen)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    rc = peerage_probe(&o, address, timeout_ms, offset_ms, &found, seen, SEEN_ROOM, line);
    Py_END_ALLOW_THREADS
    PyObject *out = NULL;
    if (rc < 0) {
        errors_raise(PyModule_GetState(module), rc, line);
    } else {
        int count = found.seen_count < SEEN_ROOM ? found.seen_count : SEEN_ROOM;
        PyObject *members = count < 0 ? Py_NewRef(Py_None) : list(seen, count);
        if (members)
            out = Py_BuildValue("iiOKLN", found.stage, found.error, flag(found.allowed),
                                (unsigned long long)found.node_id, (long long)found.ahead_ms,
                                members);
    }
    free(seen);
    return out;
}
