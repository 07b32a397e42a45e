/* Operating failures as exceptions: one table, one hierarchy under peerage.Error, and the
 * one function that maps a code to what is raised. Where the field expects a builtin
 * (ValueError for a wrong setting, TimeoutError for time that ran out) the class is that as
 * well. RemoteLoadError, which carries more than a text, stands in python/peerage/errors.py.
 */
#include "binding.h"

#include <errno.h>

static const struct {
    int code;
    const char *name;
    PyObject **also;            /* a builtin that the class is as well */
    const char *doc;
} table[] = {
    {PEERAGE_E_TOO_BIG, "TooBigError", &PyExc_ValueError,
     "A key, a channel or a value is above its bound."},
    {PEERAGE_E_FULL, "FullError", NULL, "A bound of the layer is reached; try again later."},
    {PEERAGE_E_CLOSED, "ClosedError", NULL, "The peer layer is closed."},
    {PEERAGE_E_TIMEOUT, "LoadTimeout", &PyExc_TimeoutError, "No value within the time given."},
    {PEERAGE_E_LOST, "LoadLostError", NULL, "The load was lost with the process that ran it."},
    {PEERAGE_E_RECURSIVE, "RecursiveLoadError", NULL,
     "A loader asked for a key that is being loaded for it."},
    {PEERAGE_E_SETTING, "SettingError", &PyExc_ValueError,
     "A setting is wrong: the variable, what it got, what it takes."},
    {PEERAGE_E_SYSTEM, "SystemCallError", &PyExc_OSError, "A system call failed."},
    {PEERAGE_E_FORKED, "ForkedError", NULL, "The node belongs to the parent process."},
    {PEERAGE_E_UNREACHABLE, "UnreachableError", &PyExc_ConnectionError, "No node answered."},
    {PEERAGE_E_UNSUPPORTED, "UnsupportedError", NULL, "The peer does not support this."},
    {PEERAGE_E_MISSING, "MissingError", NULL, "This build has no such part."},
};

int errors_add(PyObject *module, struct state *st)
{
    st->error = PyErr_NewExceptionWithDoc("peerage.Error", "What peerage raises.", NULL, NULL);
    if (!st->error || PyModule_AddObjectRef(module, "Error", st->error) < 0)
        return -1;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char name[64];
        PyOS_snprintf(name, sizeof name, "peerage.%s", table[i].name);
        PyObject *bases = table[i].also ? PyTuple_Pack(2, st->error, *table[i].also)
                                        : PyTuple_Pack(1, st->error);
        if (!bases)
            return -1;
        PyObject *made = PyErr_NewExceptionWithDoc(name, table[i].doc, bases, NULL);
        Py_DECREF(bases);
        if (!made)
            return -1;
        st->errors[-table[i].code] = made;
        if (PyModule_AddObjectRef(module, table[i].name, made) < 0)
            return -1;
    }
    return 0;
}

static PyObject *class_of(const struct state *st, int code)
{
    if (code == PEERAGE_E_NOMEM)
        return PyExc_MemoryError;
    if (code < 0 && code > -ERROR_COUNT && st->errors[-code])
        return st->errors[-code];
    return st->error;
}

PyObject *errors_make(const struct state *st, int code, const char *line)
{
    int failed = errno;     /* a system call's, if it was one */
    const char *text = line && line[0] ? line : peerage_error_text(code);
    PyObject *said = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
    PyObject *made = said ? PyObject_CallOneArg(class_of(st, code), said) : NULL;

    Py_XDECREF(said);
    if (made && code == PEERAGE_E_SYSTEM) {
        /* without a strerror beside it, it does not change the text */
        PyObject *number = PyLong_FromLong(failed);
        if (!number || PyObject_SetAttrString(made, "errno", number) < 0)
            Py_CLEAR(made);
        Py_XDECREF(number);
    }
    return made;
}

PyObject *errors_raise(const struct state *st, int code, const char *line)
{
    if (code == PEERAGE_E_INTERRUPTED && PyErr_Occurred())
        return NULL;    /* the signal's handler has raised already */
    if (code == PEERAGE_E_NOMEM)
        return PyErr_NoMemory();
    PyObject *made = errors_make(st, code, line);
    if (made)
        PyErr_SetObject((PyObject *)Py_TYPE(made), made);
    Py_XDECREF(made);
    return NULL;
}
