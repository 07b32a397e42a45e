/* Values between Python and the store.
 *
 * Exact `bytes` are aliased, never copied: the store holds a reference to the object, and a
 * hit is that object again. `str` travels as UTF-8. Everything else has to be JSON-like, and
 * is refused where JSON would change it silently (a dict's int keys, NaN, a datetime), so
 * that a value is the same for the one whose loader made it and for everyone else. Tuples
 * become lists for everyone. Every hit decodes anew: nobody shares a mutable object. Pickle
 * is written and read only where the application asked for it.
 */
#include "binding.h"

#include <math.h>

static PyStructSequence_Field hit_fields[] = {
    {"value", NULL}, {"tier", "local, owner, heir, redis or load"},
    {"age_ms", "since its owner stored it"}, {"stale", "past its ttl"}, {NULL, NULL},
};
static PyStructSequence_Desc hit_desc = {"peerage.Hit", "A value and where it came from.",
                                         hit_fields, 4};
static PyStructSequence_Field load_fields[] = {
    {"load_id", NULL}, {"chain", NULL}, {"key", NULL}, {"channel", NULL}, {"loader", NULL},
    {"ttl_ms", NULL}, {"stale_ms", NULL}, {"load_timeout_ms", NULL}, {NULL, NULL},
};
static PyStructSequence_Desc load_desc = {"peerage._native.Load", "A load for this process to run.",
                                          load_fields, 8};
static PyStructSequence_Field failed_fields[] = {{"error", NULL}, {NULL, NULL}};
static PyStructSequence_Desc failed_desc = {"peerage._native.Failed", "A loader's error, encoded.",
                                            failed_fields, 1};

static PyTypeObject *sequence_add(PyObject *module, PyStructSequence_Desc *desc, const char *name)
{
    PyTypeObject *type = PyStructSequence_NewType(desc);
    if (type && PyModule_AddObjectRef(module, name, (PyObject *)type) < 0)
        Py_CLEAR(type);
    return type;
}

int value_types_add(PyObject *module, struct state *st)
{
    st->hit = sequence_add(module, &hit_desc, "Hit");
    st->load = sequence_add(module, &load_desc, "Load");
    st->failed = sequence_add(module, &failed_desc, "Failed");
    /* An object of its own: no value of an application can be it. */
    st->miss = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (!st->hit || !st->load || !st->failed || !st->miss)
        return -1;
    return PyModule_AddObjectRef(module, "MISS", st->miss);
}

static int refuse(PyObject *value, const char *why)
{
    PyErr_Format(PyExc_TypeError, "a value of type %.100s can't be shared as it is: %s",
                 Py_TYPE(value)->tp_name, why);
    return -1;
}

/* What Python raised from inside, in our words. */
static int reword(PyObject *value)
{
    const char *why = PyErr_ExceptionMatches(PyExc_RecursionError)
                          ? "it contains itself, or is too deep"
                      : PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)
                          ? "text with lone surrogates"
                      : PyErr_ExceptionMatches(PyExc_ValueError) ? "an int of too many digits"
                                                                 : NULL;
    if (!why)
        return -1;
    PyErr_Clear();
    return refuse(value, why);
}

static int check(PyObject *value)
{
    if (value == Py_None || PyUnicode_Check(value) || PyLong_Check(value))
        return 0;
    if (PyFloat_Check(value))
        return isfinite(PyFloat_AS_DOUBLE(value)) ? 0
                                                  : refuse(value, "NaN and infinity are not JSON");
    if (!PyDict_Check(value) && !PyList_Check(value) && !PyTuple_Check(value))
        return refuse(value, "use bytes, str, JSON-like values, or pickle=True");

    if (Py_EnterRecursiveCall(" while checking a value"))
        return reword(value);
    int wrong = 0;
    if (PyDict_Check(value)) {
        PyObject *name, *item;
        for (Py_ssize_t at = 0; !wrong && PyDict_Next(value, &at, &name, &item);)
            wrong = PyUnicode_Check(name) ? check(item)
                                          : refuse(name, "a dict's keys must be str");
    } else {
        for (Py_ssize_t i = 0; !wrong && i < PySequence_Fast_GET_SIZE(value); i++)
            wrong = check(PySequence_Fast_GET_ITEM(value, i));
    }
    Py_LeaveRecursiveCall();
    return wrong;
}

int value_encode(const struct state *st, PyObject *value, bool pickle, PyObject **out)
{
    int type;

    if (PyBytes_CheckExact(value)) {
        *out = Py_NewRef(value);
        return PEERAGE_BYTES;
    }
    if (PyUnicode_CheckExact(value)) {
        *out = PyUnicode_AsUTF8String(value);
        type = PEERAGE_STR;
    } else if (pickle) {
        *out = PyObject_CallOneArg(st->pickle_dumps, value);
        type = PEERAGE_PICKLE;
    } else {
        if (check(value) < 0)
            return -1;
        PyObject *text = PyObject_CallOneArg(st->json_encode, value);
        *out = text ? PyUnicode_AsUTF8String(text) : NULL;
        Py_XDECREF(text);
        type = PEERAGE_JSON;
    }
    if (*out && !PyBytes_CheckExact(*out)) {
        Py_CLEAR(*out);
        PyErr_SetString(PyExc_TypeError, "pickle made no bytes");
    }
    if (!*out && type != PEERAGE_PICKLE)
        return reword(value);
    return *out ? type : -1;
}

/* What a node has encoded has no blanks around it, so the decoder need not look for any; what has
 * come from elsewhere, or is wrong, is left to it as a whole. */
static PyObject *decode_json(const struct state *st, PyObject *text)
{
    PyObject *value = NULL, *found = PyObject_CallOneArg(st->json_raw_decode, text);

    if (found && PyTuple_CheckExact(found) && PyTuple_GET_SIZE(found) == 2 &&
        PyLong_AsSsize_t(PyTuple_GET_ITEM(found, 1)) == PyUnicode_GET_LENGTH(text))
        value = Py_NewRef(PyTuple_GET_ITEM(found, 0));
    Py_XDECREF(found);
    if (value || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_ValueError)))
        return value;
    PyErr_Clear();
    return PyObject_CallOneArg(st->json_decode, text);
}

PyObject *value_decode(const struct state *st, int type, const void *at, size_t bytes, bool pickle)
{
    Py_ssize_t size = (Py_ssize_t)bytes;
    PyObject *raw, *value;

    switch (type) {
    case PEERAGE_BYTES:
        return PyBytes_FromStringAndSize(at, size);
    case PEERAGE_STR:
        return PyUnicode_DecodeUTF8(at, size, NULL);
    case PEERAGE_JSON:
        raw = PyUnicode_DecodeUTF8(at, size, NULL);
        value = raw ? decode_json(st, raw) : NULL;
        Py_XDECREF(raw);
        return value;
    case PEERAGE_PICKLE:
        if (!pickle) {
            PyErr_SetString(st->error, "the value is pickled, and this reader did not ask for "
                                       "pickle=True");
            return NULL;
        }
        raw = PyBytes_FromStringAndSize(at, size);
        value = raw ? PyObject_CallOneArg(st->pickle_loads, raw) : NULL;
        Py_XDECREF(raw);
        return value;
    default:
        return PyErr_Format(st->error, "the value has an unknown type, %d", type);
    }
}

PyObject *value_take(const struct state *st, peerage *p, const void *key, size_t key_bytes,
                     struct peerage_answer *a, bool pickle)
{
    PyObject *value;

    if (a->value_type == PEERAGE_BYTES && a->foreign) {
        value = Py_NewRef((PyObject *)a->foreign);
    } else {
        value = value_decode(st, a->value_type, a->at, a->bytes, pickle);
        if (value && a->value_type == PEERAGE_BYTES && a->blob && a->bytes >= ALIAS_BYTES_MIN) {
            Py_INCREF(value);
            if (peerage_swap(p, key, key_bytes, a->blob, PyBytes_AS_STRING(value), a->bytes,
                             value) != 1)
                Py_DECREF(value);
        }
    }
    peerage_blob_free(a->blob);
    return value;
}

static PyObject *chain_tuple(const uint64_t *chain, unsigned count)
{
    PyObject *out = PyTuple_New((Py_ssize_t)count);
    for (unsigned i = 0; out && i < count; i++) {
        PyObject *hash = PyLong_FromUnsignedLongLong(chain[i]);
        if (!hash)
            Py_CLEAR(out);
        else
            PyTuple_SET_ITEM(out, (Py_ssize_t)i, hash);
    }
    return out;
}

/* A struct sequence of new references; takes them all, NULLs among them make it NULL. */
static PyObject *sequence(PyTypeObject *type, unsigned count, PyObject **items)
{
    bool whole = true;
    for (unsigned i = 0; i < count; i++)
        whole = whole && items[i];
    PyObject *out = whole ? PyStructSequence_New(type) : NULL;
    for (unsigned i = 0; i < count; i++) {
        if (out)
            PyStructSequence_SetItem(out, (Py_ssize_t)i, items[i]);
        else
            Py_XDECREF(items[i]);
    }
    return out;
}

PyObject *value_load(const struct state *st, const struct peerage_load *load)
{
    PyObject *items[] = {
        PyLong_FromUnsignedLongLong(load->load_id),
        chain_tuple(load->chain, load->chain_count),
        PyBytes_FromStringAndSize((char *)load->key, (Py_ssize_t)load->key_bytes),
        PyBytes_FromStringAndSize((char *)load->channel, (Py_ssize_t)load->channel_bytes),
        PyBytes_FromStringAndSize((char *)load->loader, (Py_ssize_t)load->loader_bytes),
        PyLong_FromUnsignedLong(load->ttl_ms),
        PyLong_FromUnsignedLong(load->stale_ms),
        PyLong_FromUnsignedLong(load->load_timeout_ms),
    };
    return sequence(st->load, 8, items);
}

static PyObject *answer_load(const struct state *st, const struct peerage_answer *a)
{
    struct peerage_load load = {.load_id = a->load_id, .chain_count = a->chain_count};
    memcpy(load.chain, a->chain, sizeof load.chain);
    return value_load(st, &load);
}

/* An error that is kept for a while is answered as it was the first time. */
static int kind_of(const struct peerage_answer *a)
{
    return a->kind == PEERAGE_VALUE && a->value_type == PEERAGE_ERROR ? PEERAGE_FAILED : a->kind;
}

/* What a loader's error was encoded as; frees the answer's blob. */
static PyObject *take_error(struct peerage_answer *a)
{
    PyObject *error = PyBytes_FromStringAndSize(a->at, (Py_ssize_t)a->bytes);
    peerage_blob_free(a->blob);
    return error;
}

PyObject *value_bare(const struct state *st, peerage *p, const void *key, size_t key_bytes,
                     struct peerage_answer *a, bool pickle, PyObject *missing, PyObject *rebuild)
{
    switch (kind_of(a)) {
    case PEERAGE_VALUE:
        return value_take(st, p, key, key_bytes, a, pickle);
    case PEERAGE_MISS:
        return Py_NewRef(missing);
    case PEERAGE_FAILED: {
        PyObject *encoded = take_error(a);
        Py_INCREF(rebuild);         /* its waiter may let it go meanwhile */
        PyObject *error = encoded ? PyObject_CallOneArg(rebuild, encoded) : NULL;
        Py_DECREF(rebuild);
        if (error)
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_XDECREF(encoded);
        Py_XDECREF(error);
        return NULL;
    }
    default:
        return errors_raise(st, a->error, NULL);
    }
}

PyObject *value_answer(const struct state *st, peerage *p, const void *key, size_t key_bytes,
                       struct peerage_answer *a, bool pickle)
{
    switch (kind_of(a)) {
    case PEERAGE_VALUE: {
        PyObject *items[] = {
            value_take(st, p, key, key_bytes, a, pickle),
            Py_NewRef(st->tiers[a->tier]),
            PyLong_FromUnsignedLongLong(a->age_ms),
            PyBool_FromLong(a->stale),
        };
        return sequence(st->hit, 4, items);
    }
    case PEERAGE_FAILED: {
        PyObject *error = take_error(a);
        return sequence(st->failed, 1, &error);
    }
    case PEERAGE_LOAD:
        return answer_load(st, a);
    case PEERAGE_MISS:
        return Py_NewRef(st->miss);
    default:
        return errors_raise(st, a->error, NULL);
    }
}

int value_item(PyObject *tuple, struct peerage_item *item)
{
    PyObject *key, *bytes;
    unsigned long ttl_ms, stale_ms;

    if (!PyTuple_Check(tuple) ||
        !PyArg_ParseTuple(tuple, "SiSkk", &key, &item->value_type, &bytes, &ttl_ms, &stale_ms))
        return -1;
    item->key = PyBytes_AS_STRING(key);
    item->key_bytes = (size_t)PyBytes_GET_SIZE(key);
    item->at = PyBytes_AS_STRING(bytes);
    item->bytes = (size_t)PyBytes_GET_SIZE(bytes);
    item->ttl_ms = (uint32_t)(ttl_ms > UINT32_MAX ? UINT32_MAX : ttl_ms);
    item->stale_ms = (uint32_t)(stale_ms > UINT32_MAX ? UINT32_MAX : stale_ms);
    item->owner = NULL;
    if (PyBytes_CheckExact(bytes) && item->bytes >= ALIAS_BYTES_MIN)
        item->owner = Py_NewRef(bytes);
    return 0;
}

static PyObject *texts_tuple(char **texts, unsigned count)
{
    PyObject *out = PyTuple_New((Py_ssize_t)count);
    for (unsigned i = 0; out && i < count; i++) {
        PyObject *text = PyUnicode_FromString(texts[i]);
        if (!text)
            Py_CLEAR(out);
        else
            PyTuple_SET_ITEM(out, (Py_ssize_t)i, text);
    }
    return out;
}

PyObject *value_report(struct peerage_report *report)
{
    PyObject *acknowledged = texts_tuple(report->acknowledged, report->acknowledged_count);
    PyObject *unreached = texts_tuple(report->unreached, report->unreached_count);
    peerage_report_free(report);
    if (!acknowledged || !unreached) {
        Py_XDECREF(acknowledged);
        Py_XDECREF(unreached);
        return NULL;
    }
    return Py_BuildValue("NN", acknowledged, unreached);
}
