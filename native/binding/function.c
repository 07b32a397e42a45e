/* A decorated function: the whole of a local hit in one call into C. It writes the key from
 * the arguments, looks into the store, and returns the value (for an async function, an
 * awaitable that is done). An async call that misses asks as asking.c says; anything else is
 * the Python layer's: `slow(key, args, kwargs)`.
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
    struct asker asker;
    PyObject *template;
    PyObject *channel;          /* channel(key) -> bytes; NULL: the key itself */
    PyObject *bind;             /* bind(function, instance) for methods */
    PyObject *dict, *weakrefs;
    bool is_async;
};

/* (key, args, kwargs), or NULL with an exception. */
static PyObject *call_of(PyObject *key, PyObject *const *args, Py_ssize_t count, PyObject *kwnames)
{
    PyObject *positional = PyTuple_New(count);
    PyObject *keywords = PyDict_New();
    PyObject *out = NULL;

    if (key && positional && keywords) {
        for (Py_ssize_t i = 0; i < count; i++)
            PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
        int wrong = 0;
        for (Py_ssize_t i = 0; !wrong && kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
            wrong = PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), args[count + i]);
        if (!wrong)
            out = PyTuple_Pack(3, key, positional, keywords);
    }
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return out;
}

/* Not here. What is wrong with a channel is worded by the slow path. */
static PyObject *miss(struct function *f, const void *at, Py_ssize_t bytes, PyObject *const *args,
                      Py_ssize_t count, PyObject *kwnames)
{
    PyObject *key = PyBytes_FromStringAndSize(at, bytes), *channel = NULL;
    PyObject *called = call_of(key, args, count, kwnames);

    if (called && f->asker.arguments) {
        channel = f->channel ? PyObject_CallOneArg(f->channel, key) : NULL;
        if (!PyErr_Occurred())
            return asking_new(f->st, &f->asker, (PyObject *)f, key, channel, Py_None,
                              called, NULL);
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {     /* Ctrl-C, not the channel's */
            Py_DECREF(key);
            Py_DECREF(called);
            return NULL;
        }
        PyErr_Clear();
    }
    PyObject *out = called ? PyObject_Call(f->asker.slow, called, NULL) : NULL;
    Py_XDECREF(key);
    Py_XDECREF(called);
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
    struct engine *e = node_engine(f->asker.node);
    if (!e)
        return NULL;
    /* borrowed: what is let go elsewhere is dropped under the GIL only, which we hold */
    if (peerage_get_borrowed(e->p, key, (size_t)bytes, &answer) == 1) {
        if (answer.value_type != PEERAGE_ERROR) {
            PyObject *value = value_take(f->st, e->p, key, (size_t)bytes, &answer,
                                         f->asker.pickle);
            f->asker.hits[PEERAGE_TIER_LOCAL]++;
            return value && f->is_async ? ready_new(f->st, value) : value;
        }
        /* an error that is kept for a while: the slow path raises it */
        peerage_blob_free(answer.blob);
    }
    return miss(f, key, bytes, args, count, kwnames);
}

/* Function(node, template, slow, bind, is_async, pickle, arguments, rebuild, lead, channel): see
 * asker_init. */
static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *node, *template, *slow, *bind, *arguments, *rebuild, *lead, *channel;
    int is_async, pickle;
    struct state *st = state_of(type);

    if (kwargs || !PyArg_ParseTuple(args, "O!O!OOppOOOO", st->node, &node, st->template, &template,
                                    &slow, &bind, &is_async, &pickle, &arguments, &rebuild,
                                    &lead, &channel))
        return NULL;
    struct function *f = (struct function *)type->tp_alloc(type, 0);
    if (!f)
        return NULL;
    if (asker_init(&f->asker, node, slow, pickle, arguments, rebuild, lead) < 0) {
        Py_DECREF(f);
        return NULL;
    }
    f->vectorcall = call;
    f->st = st;
    f->template = Py_NewRef(template);
    f->channel = channel == Py_None ? NULL : Py_NewRef(channel);
    f->bind = Py_NewRef(bind);
    f->is_async = is_async;
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
    Py_VISIT(f->template);
    Py_VISIT(f->channel);
    Py_VISIT(f->bind);
    Py_VISIT(f->dict);
    return asker_visit(&f->asker, visit, arg);
}

static int clear(struct function *f)
{
    asker_clear(&f->asker);
    Py_CLEAR(f->channel);
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
    asker_free(&f->asker);
    Py_XDECREF(f->template);
    type->tp_free(f);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct function, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(struct function, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct function, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* {tier: how often}, and the errors as "error". */
static PyObject *counts(PyObject *self, void *unused)
{
    struct function *f = (struct function *)self;
    PyObject *out = Py_BuildValue("{sK}", "error", f->asker.errors);

    (void)unused;
    for (int tier = 0; out && tier <= PEERAGE_TIER_LOAD; tier++) {
        PyObject *hits = PyLong_FromUnsignedLongLong(f->asker.hits[tier]);
        if (!hits || PyDict_SetItem(out, f->st->tiers[tier], hits) < 0)
            Py_CLEAR(out);
        Py_XDECREF(hits);
    }
    return out;
}

static PyGetSetDef getset[] = {
    {"counts", counts, NULL, NULL, NULL},       /* of answers that took no step in Python */
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
