/* A decorated function: the whole of a local hit in one call into C. It writes the key from
 * the arguments, looks into the store, and returns the value (for an async function, an
 * awaitable that is done). Anything else is the Python layer's: `slow(key, args, kwargs)`.
 *
 * The Python layer hangs the other methods (lookup, invalidate, ...) into its __dict__: a
 * subclass would lose the fast call before Python 3.12.
 */
#include "binding.h"

#include <stddef.h>
#include <structmember.h>

struct function {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    const struct state *st;
    struct node *node;
    PyObject *template, *slow;
    PyObject *bind;             /* bind(function, instance) for methods */
    PyObject *dict, *weakrefs;
    unsigned long long hits;    /* local ones, counted here and nowhere else */
    bool is_async, pickle;
};

static PyObject *call_slow(struct function *f, const void *key, Py_ssize_t key_bytes,
                           PyObject *const *args, Py_ssize_t count, PyObject *kwnames)
{
    PyObject *bytes = PyBytes_FromStringAndSize(key, key_bytes);
    PyObject *positional = PyTuple_New(count);
    PyObject *keywords = PyDict_New();
    PyObject *out = NULL;

    if (bytes && positional && keywords) {
        for (Py_ssize_t i = 0; i < count; i++)
            PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
        int wrong = 0;
        for (Py_ssize_t i = 0; !wrong && kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
            wrong = PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), args[count + i]);
        if (!wrong)
            out = PyObject_CallFunctionObjArgs(f->slow, bytes, positional, keywords, NULL);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return out;
}

static PyObject *call(PyObject *self, PyObject *const *args, size_t flagged, PyObject *kwnames)
{
    struct function *f = (struct function *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flagged);
    unsigned char key[KEY_MAX];
    struct peerage_answer answer;

    release_check();
    Py_ssize_t bytes = template_write(f->template, args, count, kwnames, key);
    if (bytes < 0)
        return NULL;
    struct engine *e = node_engine(f->node);
    if (!e)
        return NULL;
    /* borrowed: what is let go elsewhere is dropped under the GIL only, which we hold */
    if (peerage_get_borrowed(e->p, key, (size_t)bytes, &answer) == 1) {
        if (answer.value_type != PEERAGE_ERROR) {
            PyObject *value = value_take(f->st, e->p, key, (size_t)bytes, &answer, f->pickle);
            f->hits++;
            return value && f->is_async ? ready_new(f->st, value) : value;
        }
        /* an error that is kept for a while: the slow path raises it */
        peerage_blob_free(answer.blob);
    }
    return call_slow(f, key, bytes, args, count, kwnames);
}

/* Function(node, template, slow, bind, is_async, pickle) */
static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *node, *template, *slow, *bind;
    int is_async, pickle;
    struct state *st = state_of(type);

    if (kwargs || !PyArg_ParseTuple(args, "O!O!OOpp", st->node, &node, st->template, &template,
                                    &slow, &bind, &is_async, &pickle))
        return NULL;
    struct function *f = (struct function *)type->tp_alloc(type, 0);
    if (!f)
        return NULL;
    f->vectorcall = call;
    f->st = st;
    f->node = (struct node *)Py_NewRef(node);
    f->template = Py_NewRef(template);
    f->slow = Py_NewRef(slow);
    f->bind = Py_NewRef(bind);
    f->is_async = is_async;
    f->pickle = pickle;
    return (PyObject *)f;
}

static PyObject *descr_get(PyObject *self, PyObject *instance, PyObject *owner)
{
    (void)owner;
    if (!instance || instance == Py_None)
        return Py_NewRef(self);
    return PyObject_CallFunctionObjArgs(((struct function *)self)->bind, self, instance, NULL);
}

static int traverse(struct function *f, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(f));
    Py_VISIT((PyObject *)f->node);
    Py_VISIT(f->template);
    Py_VISIT(f->slow);
    Py_VISIT(f->bind);
    Py_VISIT(f->dict);
    return 0;
}

static int clear(struct function *f)
{
    Py_CLEAR(f->slow);
    Py_CLEAR(f->bind);
    Py_CLEAR(f->dict);
    return 0;
}

static void dealloc(struct function *f)
{
    PyTypeObject *type = Py_TYPE(f);
    PyObject_GC_UnTrack(f);
    if (f->weakrefs)
        PyObject_ClearWeakRefs((PyObject *)f);
    clear(f);
    Py_XDECREF((PyObject *)f->node);
    Py_XDECREF(f->template);
    type->tp_free(f);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct function, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(struct function, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct function, weakrefs), READONLY, NULL},
    {"local_hits", T_ULONGLONG, offsetof(struct function, hits), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, descr_get},
    {Py_tp_members, members},
    {Py_tp_getset, getset},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "peerage._native.Function",
    .basicsize = sizeof(struct function),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = slots,
};

int function_type_add(PyObject *module, struct state *st)
{
    st->function = type_add(module, &spec, "Function");
    return st->function ? 0 : -1;
}
