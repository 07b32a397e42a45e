/* Calls that begin with a key: `cache.get`, `get_or_load` and their async twins. The key's
 * canonical form is written on the stack and looked up; on a hit the value (for an async
 * call, an awaitable that is done) is returned without a step in Python. What `aget` does not
 * find is asked for as asking.c says; anything else is the Python layer's `slow`, called with
 * the same arguments.
 *
 * Keys that are asked for again and again are remembered with the object that was found, by
 * the hash that the str has in it. The object is borrowed: as long as peerage_hit_again says
 * yes the store holds it, and what the store lets go is dropped under the GIL only.
 */
#include "binding.h"

#include <stddef.h>
#include <structmember.h>

#define CHANNEL_MAX 255         /* as peerage.h says of struct peerage_ask, and Cache._channel */
#define MEMO_SETS 64u           /* of eight each: 16 KB, made at the first hit */
#define MEMO_WAYS 8u

struct memo {
    PyObject *key, *value;      /* a reference to the key, or NULL; the value is borrowed */
    uint64_t generation, until_ms;
};

struct fast {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    const struct state *st;
    struct asker asker;
    PyObject *prefix;           /* bytes: "cache=" */
    struct memo *memos;         /* by the key's hash; NULL: no hit yet */
    bool is_async;
};

static bool is_for(const struct memo *m, PyObject *key, Py_hash_t hash)
{
    return m->key == key || (m->key && PyObject_Hash(m->key) == hash &&
                             PyUnicode_Compare(m->key, key) == 0);
}

/* The memo of the key; NULL: there is none. */
static struct memo *memo_of(struct memo *set, PyObject *key, Py_hash_t hash)
{
    for (unsigned way = 0; way < MEMO_WAYS; way++)
        if (is_for(&set[way], key, hash))
            return &set[way];
    return NULL;
}

static struct memo *set_of(const struct fast *f, Py_hash_t hash)
{
    return &f->memos[(size_t)hash % MEMO_SETS * MEMO_WAYS];
}

/* The value, borrowed, or NULL. */
static PyObject *recall(const struct fast *f, peerage *p, PyObject *key)
{
    if (!f->memos || !PyUnicode_CheckExact(key))
        return NULL;
    Py_hash_t hash = PyObject_Hash(key);
    const struct memo *m = memo_of(set_of(f, hash), key, hash);
    return m && peerage_hit_again(p, m->generation, m->until_ms) ? m->value : NULL;
}

static void remember(struct fast *f, PyObject *key, const struct peerage_answer *a)
{
    if (a->value_type != PEERAGE_BYTES || !a->foreign || !PyUnicode_CheckExact(key))
        return;
    if (!f->memos && !(f->memos = PyMem_Calloc(MEMO_SETS * MEMO_WAYS, sizeof *f->memos)))
        return;                 /* only slower */
    Py_hash_t hash = PyObject_Hash(key);
    struct memo *set = set_of(f, hash), *m = memo_of(set, key, hash);
    PyObject *left = NULL;
    if (!m) {                   /* the one that came first makes room */
        left = set[MEMO_WAYS - 1].key;
        memmove(set + 1, set, (MEMO_WAYS - 1) * sizeof *set);
        m = set;
        m->key = Py_NewRef(key);
    }
    m->value = (PyObject *)a->foreign;
    m->generation = a->generation;
    m->until_ms = a->until_ms;
    Py_XDECREF(left);
}

/* Bytes that are a subclass are a Key, canonical as they are. False: the slow path words
 * what is wrong with it. */
static bool canonical(const struct fast *f, PyObject *key, unsigned char *out, const void **at,
                      size_t *bytes)
{
    const char *raw;
    Py_ssize_t raw_bytes;

    if (PyUnicode_CheckExact(key)) {
        raw = PyUnicode_AsUTF8AndSize(key, &raw_bytes);
        if (!raw) {
            PyErr_Clear();
            return false;
        }
    } else if (PyBytes_CheckExact(key)) {
        raw = PyBytes_AS_STRING(key);
        raw_bytes = PyBytes_GET_SIZE(key);
    } else if (PyBytes_Check(key)) {
        *at = PyBytes_AS_STRING(key);
        *bytes = (size_t)PyBytes_GET_SIZE(key);
        return true;
    } else {
        return false;
    }
    Py_ssize_t prefix_bytes = PyBytes_GET_SIZE(f->prefix);
    if (raw_bytes == 0 || prefix_bytes + raw_bytes > KEY_MAX)
        return false;
    memcpy(out, PyBytes_AS_STRING(f->prefix), (size_t)prefix_bytes);
    memcpy(out + prefix_bytes, raw, (size_t)raw_bytes);
    *at = out;
    *bytes = (size_t)(prefix_bytes + raw_bytes);
    return true;
}

/* The arguments of `aget(key, default=None, *, channel=None)` that follow the key. */
struct wanted {
    PyObject *missing;          /* borrowed */
    PyObject *channel;          /* a new reference to bytes, or NULL for none */
    PyObject *kwargs;           /* a new reference to what was given by keyword and is not
                                   `missing`, or NULL for nothing */
};

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
    if (!*out)
        PyErr_Clear();
    return *out != NULL;
}

/* False: the slow path words what is wrong. */
static bool read_wanted(PyObject *const *args, Py_ssize_t count, PyObject *kwnames,
                        struct wanted *out)
{
    PyObject *missing = count > 1 ? args[1] : NULL, *channel = NULL;

    *out = (struct wanted){0};
    if (count > 2)
        return false;
    for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "channel") == 0)
            channel = args[count + i];
        else if (!missing && PyUnicode_CompareWithASCIIString(name, "default") == 0)
            missing = args[count + i];
        else
            return false;
    }
    out->missing = missing ? missing : Py_None;
    if (!channel || channel == Py_None)
        return true;
    if (!read_channel(channel, &out->channel))
        return false;
    out->kwargs = Py_BuildValue("{sO}", "channel", channel);
    if (!out->kwargs) {
        PyErr_Clear();
        Py_CLEAR(out->channel);
        return false;
    }
    return true;
}

static PyObject *call(PyObject *self, PyObject *const *args, size_t flagged, PyObject *kwnames)
{
    struct fast *f = (struct fast *)self;
    unsigned char room[KEY_MAX];
    struct peerage_answer answer;
    const void *key;
    size_t bytes;

    release_check();
    if (PyVectorcall_NARGS(flagged) == 0)
        return PyObject_Vectorcall(f->asker.slow, args, flagged, kwnames);
    struct engine *e = node_engine(f->asker.node);
    if (!e)
        return NULL;
    PyObject *again = recall(f, e->p, args[0]);
    if (again)
        return f->is_async ? ready_new(f->st, Py_NewRef(again)) : Py_NewRef(again);
    if (!canonical(f, args[0], room, &key, &bytes))
        return PyObject_Vectorcall(f->asker.slow, args, flagged, kwnames);
    /* borrowed: what is let go elsewhere is dropped under the GIL only, which we hold */
    if (peerage_get_borrowed(e->p, key, bytes, &answer) == 1) {
        if (answer.value_type != PEERAGE_ERROR &&
            (answer.value_type != PEERAGE_PICKLE || f->asker.pickle)) {
            remember(f, args[0], &answer);
            PyObject *value = value_take(f->st, e->p, key, bytes, &answer, f->asker.pickle);
            return value && f->is_async ? ready_new(f->st, value) : value;
        }
        peerage_blob_free(answer.blob);
    }
    struct wanted wanted;
    if (!f->asker.arguments || !read_wanted(args, PyVectorcall_NARGS(flagged), kwnames, &wanted))
        return PyObject_Vectorcall(f->asker.slow, args, flagged, kwnames);
    return asking_new(f->st, &f->asker, self, PyBytes_FromStringAndSize(key, (Py_ssize_t)bytes),
                      wanted.channel, wanted.missing, PyTuple_Pack(2, args[0], wanted.missing),
                      wanted.kwargs);
}

/* Fast(node, prefix, slow, is_async, pickle, arguments, rebuild): see asker_init. */
static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *node, *prefix, *slow, *arguments, *rebuild;
    int is_async, pickle;
    struct state *st = state_of(type);

    if (kwargs || !PyArg_ParseTuple(args, "O!SOppOO", st->node, &node, &prefix, &slow, &is_async,
                                    &pickle, &arguments, &rebuild))
        return NULL;
    struct fast *f = (struct fast *)type->tp_alloc(type, 0);
    if (!f)
        return NULL;
    if (asker_init(&f->asker, node, slow, pickle, arguments, rebuild, Py_None) < 0) {
        Py_DECREF(f);
        return NULL;
    }
    f->vectorcall = call;
    f->st = st;
    f->prefix = Py_NewRef(prefix);
    f->is_async = is_async;
    return (PyObject *)f;
}

static PyObject *wrapped(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((struct fast *)self)->asker.slow);
}

static int traverse(struct fast *f, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(f));
    return asker_visit(&f->asker, visit, arg);
}

static int clear(struct fast *f)
{
    asker_clear(&f->asker);
    return 0;
}

static void dealloc(struct fast *f)
{
    PyTypeObject *type = Py_TYPE(f);
    PyObject_GC_UnTrack(f);
    asker_free(&f->asker);
    Py_XDECREF(f->prefix);
    for (size_t i = 0; f->memos && i < MEMO_SETS * MEMO_WAYS; i++)
        Py_XDECREF(f->memos[i].key);
    PyMem_Free(f->memos);
    type->tp_free(f);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct fast, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"__wrapped__", wrapped, NULL, NULL, NULL},     /* so that help() and inspect see it */
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, members},
    {Py_tp_getset, getset},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "peerage._native.Fast",
    .basicsize = sizeof(struct fast),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = slots,
};

int fast_type_add(PyObject *module, struct state *st)
{
    st->fast = type_add(module, &spec, "Fast");
    return st->fast ? 0 : -1;
}
