/* Compiled key templates: from the arguments of a call to its canonical key and back.
 *
 * A template knows the function's parameters as Python itself binds them, so positional,
 * keyword and default spellings of one call give one key; which values have a canonical
 * form, and how it is written, is core's (core/key.h). Exact types only: a subclass may
 * compare or print as it likes, and would come back as something else at the owner.
 */
#include "binding.h"

#include <math.h>

#include "core/key.h"
#include "core/limits.h"

_Static_assert(KEY_MAX == KEY_BYTES_MAX, "the public header says 1024");

#define PARAMETERS_MAX 64
#define DEPTH_MAX 16            /* tuples in tuples */

enum { POSITIONAL_ONLY = 0, POSITIONAL = 1, KEYWORD_ONLY = 3 };     /* inspect's numbers */

struct parameter {
    PyObject *name;             /* interned */
    PyObject *standard;         /* its default, or NULL: required */
    int kind;
};

struct template {
    PyObject_HEAD
    const struct state *st;
    PyObject *prefix;           /* bytes: "cache:function:" */
    PyObject *function_name;    /* for errors, as Python words them */
    Py_ssize_t parameter_count, positional_count, slot_count;
    bool extra_positional, extra_keywords;      /* *args and **kwargs: never in a key */
    struct parameter parameters[PARAMETERS_MAX];
    uint8_t slots[PARAMETERS_MAX];              /* the key's values: parameters in its order */
};

/* Binding arguments. */

static Py_ssize_t find(const struct template *t, PyObject *name)
{
    for (Py_ssize_t i = 0; i < t->parameter_count; i++)
        if (t->parameters[i].name == name)
            return i;
    for (Py_ssize_t i = 0; i < t->parameter_count; i++)
        if (PyUnicode_Compare(t->parameters[i].name, name) == 0)
            return i;
    return -1;
}

/* Fill bound (borrowed references), one per parameter. */
static int bind(const struct template *t, PyObject *const *args, Py_ssize_t count,
                PyObject *kwnames, PyObject **bound)
{
    Py_ssize_t given = count < t->positional_count ? count : t->positional_count;
    for (Py_ssize_t i = 0; i < given; i++)
        bound[i] = args[i];
    for (Py_ssize_t i = given; i < t->parameter_count; i++)
        bound[i] = NULL;
    if (count > t->positional_count && !t->extra_positional) {
        PyErr_Format(PyExc_TypeError, "%U() takes at most %zd positional arguments but %zd were given",
                     t->function_name, t->positional_count, count);
        return -1;
    }

    for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        Py_ssize_t at = find(t, name);
        if (at < 0 || t->parameters[at].kind == POSITIONAL_ONLY) {
            if (t->extra_keywords)
                continue;
            PyErr_Format(PyExc_TypeError, "%U() got an unexpected keyword argument %.60R",
                         t->function_name, name);
            return -1;
        }
        if (bound[at]) {
            PyErr_Format(PyExc_TypeError, "%U() got multiple values for argument '%U'",
                         t->function_name, name);
            return -1;
        }
        bound[at] = args[count + i];
    }

    for (Py_ssize_t i = given; i < t->parameter_count; i++) {
        if (bound[i])
            continue;
        if (!t->parameters[i].standard) {
            PyErr_Format(PyExc_TypeError, "%U() missing a required argument: '%U'",
                         t->function_name, t->parameters[i].name);
            return -1;
        }
        bound[i] = t->parameters[i].standard;
    }
    return 0;
}

/* Writing. */

struct writing {
    const struct template *t;
    PyObject *name;             /* of the parameter, for errors */
    struct writer out;
};

static int refuse(const struct writing *w, const char *why)
{
    PyErr_Format(PyExc_TypeError, "%U(): argument '%U' has no canonical form in a key: %s",
                 w->t->function_name, w->name, why);
    return -1;
}

static int put_text(struct writing *w, char type, PyObject *text)
{
    Py_ssize_t bytes;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &bytes);
    if (!utf8) {
        PyErr_Clear();
        return refuse(w, "text with lone surrogates");
    }
    key_put(&w->out, type, span_of(utf8, (size_t)bytes));
    return 0;
}

/* Takes `text`; NULL with an exception is passed on. */
static int put_made(struct writing *w, char type, PyObject *text)
{
    if (!text)
        return -1;
    int rc = PyUnicode_Check(text) ? put_text(w, type, text) : refuse(w, "no text");
    Py_DECREF(text);
    return rc;
}

/* Python makes no text of an int of some thousand digits; no key had room for it. */
static int put_large(struct writing *w, PyObject *number)
{
    PyObject *text = PyObject_Str(number);

    if (text || !PyErr_ExceptionMatches(PyExc_ValueError))
        return put_made(w, 'i', text);
    PyErr_Clear();
    w->out.failed = true;
    return 0;
}

static int put_float(struct writing *w, PyObject *value)
{
    double number = PyFloat_AS_DOUBLE(value);
    if (isnan(number))
        return refuse(w, "NaN");
    char *text = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (!text)
        return -1;
    key_put(&w->out, 'd', span_text(text));
    PyMem_Free(text);
    return 0;
}

static int put_datetime(struct writing *w, PyObject *value)
{
    PyObject *offset = PyObject_CallMethodNoArgs(value, w->t->st->text_utcoffset);
    if (!offset)
        return -1;
    Py_DECREF(offset);
    if (offset == Py_None)
        return refuse(w, "a datetime without a time zone");
    return put_made(w, 'T', PyObject_CallMethodNoArgs(value, w->t->st->text_isoformat));
}

static int put_value(struct writing *w, PyObject *value, unsigned depth)
{
    const struct state *st = w->t->st;

    if (PyUnicode_CheckExact(value))
        return put_text(w, 's', value);
    if (PyLong_CheckExact(value)) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow)
            return put_large(w, value);
        key_put_int(&w->out, number);
        return 0;
    }
    if (value == Py_None || value == Py_True || value == Py_False) {
        put_u8(&w->out, value == Py_None ? 'n' : value == Py_True ? 't' : 'f');
        return 0;
    }
    if (PyBytes_CheckExact(value)) {
        key_put_bytes(&w->out, span_of(PyBytes_AS_STRING(value), (size_t)PyBytes_GET_SIZE(value)));
        return 0;
    }
    if (PyFloat_CheckExact(value))
        return put_float(w, value);
    if (PyTuple_CheckExact(value)) {
        if (depth == DEPTH_MAX)
            return refuse(w, "tuples too deep in each other");
        put_u8(&w->out, '(');
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
            if (i)
                put_u8(&w->out, ',');
            if (put_value(w, PyTuple_GET_ITEM(value, i), depth + 1) < 0)
                return -1;
        }
        put_u8(&w->out, ')');
        return 0;
    }
    PyObject *type = (PyObject *)Py_TYPE(value);
    if (type == st->uuid)
        return put_made(w, 'u', PyObject_GetAttr(value, st->text_hex));
    if (type == st->datetime)
        return put_datetime(w, value);
    if (type == st->date)
        return put_made(w, 'D', PyObject_CallMethodNoArgs(value, st->text_isoformat));

    PyErr_Format(PyExc_TypeError,
                 "%U(): argument '%U' has no canonical form in a key: %.100s is none of str, int, "
                 "bool, None, bytes, float, UUID, date, zoned datetime, tuples of these",
                 w->t->function_name, w->name, Py_TYPE(value)->tp_name);
    return -1;
}

static Py_ssize_t write_bound(const struct template *t, PyObject **bound, unsigned char *out)
{
    struct writing w = {t, NULL, writer_of(out, KEY_MAX)};

    put_span(&w.out, span_of(PyBytes_AS_STRING(t->prefix), (size_t)PyBytes_GET_SIZE(t->prefix)));
    for (Py_ssize_t i = 0; i < t->slot_count; i++) {
        w.name = t->parameters[t->slots[i]].name;
        if (i)
            put_u8(&w.out, '/');
        if (put_value(&w, bound[t->slots[i]], 0) < 0)
            return -1;
    }
    if (w.out.failed) {
        PyErr_Format(t->st->errors[-PEERAGE_E_TOO_BIG],
                     "%U(): the arguments make a key above %d bytes", t->function_name, KEY_MAX);
        return -1;
    }
    return (Py_ssize_t)writer_bytes(&w.out);
}

Py_ssize_t template_write(PyObject *self, PyObject *const *args, Py_ssize_t count,
                          PyObject *kwnames, unsigned char out[KEY_MAX])
{
    const struct template *t = (const struct template *)self;
    PyObject *bound[PARAMETERS_MAX];

    if (bind(t, args, count, kwnames, bound) < 0)
        return -1;
    return write_bound(t, bound, out);
}

/* template.key(*args, **kwargs) -> bytes */
static PyObject *key(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *kwnames)
{
    unsigned char out[KEY_MAX];
    Py_ssize_t bytes = template_write(self, args, count, kwnames, out);
    return bytes < 0 ? NULL : PyBytes_FromStringAndSize((char *)out, bytes);
}

/* Reading. */

static PyObject *read_text(const struct state *st, const struct key_item *item)
{
    const char *at = (const char *)item->text.at;
    Py_ssize_t bytes = (Py_ssize_t)item->text.bytes;
    PyObject *text, *value = NULL;

    if (item->type == 's')
        return PyUnicode_DecodeUTF8(at, bytes, NULL);
    if (item->type == 'b') {
        value = PyBytes_FromStringAndSize(NULL, bytes / 2);
        if (value && !key_unhex(item->text, (uint8_t *)PyBytes_AS_STRING(value)))
            Py_CLEAR(value);
        return value;
    }
    if (!(text = PyUnicode_DecodeUTF8(at, bytes, NULL)))
        return NULL;
    if (item->type == 'i')
        value = PyLong_FromUnicodeObject(text, 10);
    else if (item->type == 'd')
        value = PyFloat_FromString(text);
    else if (item->type == 'u')
        value = PyObject_CallOneArg(st->uuid, text);
    else if (item->type == 'D')
        value = PyObject_CallMethodOneArg(st->date, st->text_fromisoformat, text);
    else if (item->type == 'T')
        value = PyObject_CallMethodOneArg(st->datetime, st->text_fromisoformat, text);
    Py_DECREF(text);
    return value;
}

static PyObject *read_value(const struct state *st, struct key_reader *r, uint8_t *scratch,
                            const struct key_item *item, unsigned depth);

static PyObject *read_tuple(const struct state *st, struct key_reader *r, uint8_t *scratch,
                            unsigned depth)
{
    PyObject *members = depth < DEPTH_MAX ? PyList_New(0) : NULL;
    struct key_item item;

    while (members && key_next(r, scratch, &item) && item.type != ')') {
        PyObject *one = read_value(st, r, scratch, &item, depth + 1);
        if (!one || PyList_Append(members, one) < 0)
            Py_CLEAR(members);
        Py_XDECREF(one);
    }
    if (r->failed)
        Py_CLEAR(members);
    PyObject *out = members ? PyList_AsTuple(members) : NULL;
    Py_XDECREF(members);
    return out;
}

static PyObject *read_value(const struct state *st, struct key_reader *r, uint8_t *scratch,
                            const struct key_item *item, unsigned depth)
{
    switch (item->type) {
    case 'n':
        Py_RETURN_NONE;
    case 't':
        Py_RETURN_TRUE;
    case 'f':
        Py_RETURN_FALSE;
    case '(':
        return read_tuple(st, r, scratch, depth);
    default:
        return read_text(st, item);
    }
}

/* The key's values into bound (new references, as many as there are slots). False, with an
 * exception: it is not a key of this template. */
static bool read_slots(const struct template *t, PyObject *bytes, PyObject **values)
{
    uint8_t scratch[2 * KEY_MAX];
    struct span whole = span_of(PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    struct span prefix = span_of(PyBytes_AS_STRING(t->prefix), (size_t)PyBytes_GET_SIZE(t->prefix));
    struct span cache, function;
    struct key_reader r;
    struct key_item item;
    Py_ssize_t read = 0;

    if (whole.bytes > KEY_MAX || whole.bytes < prefix.bytes ||
        memcmp(whole.at, prefix.at, prefix.bytes) != 0 ||
        !key_read(whole, scratch, &cache, &function, &r))
        goto foreign;
    while (read < t->slot_count && key_next(&r, scratch, &item)) {
        if (!(values[read] = read_value(t->st, &r, scratch, &item, 0)))
            goto foreign;
        read++;
    }
    if (read == t->slot_count && !key_next(&r, scratch, &item) && !r.failed)
        return true;

foreign:
    while (read > 0)
        Py_DECREF(values[--read]);
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%.60R is not a key of %U()", bytes, t->function_name);
    return false;
}

/* template.values(key) -> {name: value} of what is in the key */
static PyObject *values_of(PyObject *self, PyObject *bytes)
{
    const struct template *t = (const struct template *)self;
    PyObject *values[PARAMETERS_MAX];

    if (!PyBytes_Check(bytes))
        return PyErr_Format(PyExc_TypeError, "a key is bytes");
    if (!read_slots(t, bytes, values))
        return NULL;
    PyObject *out = PyDict_New();
    for (Py_ssize_t i = 0; i < t->slot_count; i++) {
        if (out && PyDict_SetItem(out, t->parameters[t->slots[i]].name, values[i]) < 0)
            Py_CLEAR(out);
        Py_DECREF(values[i]);
    }
    return out;
}

/* template.arguments(key) -> (args, kwargs) that make the same call; what is not in the key
 * has its default. */
static PyObject *arguments(PyObject *self, PyObject *bytes)
{
    const struct template *t = (const struct template *)self;
    PyObject *named = values_of(self, bytes);
    PyObject *args = PyList_New(0), *kwargs = PyDict_New(), *out = NULL;

    if (!named || !args || !kwargs)
        goto done;
    for (Py_ssize_t i = 0; i < t->parameter_count; i++) {
        const struct parameter *p = &t->parameters[i];
        PyObject *value = PyDict_GetItemWithError(named, p->name);
        if (!value && PyErr_Occurred())
            goto done;
        if (!value)
            value = p->standard;
        if (!value) {
            PyErr_Format(PyExc_TypeError, "%U(): '%U' is not in the key and has no default",
                         t->function_name, p->name);
            goto done;
        }
        if ((p->kind == KEYWORD_ONLY ? PyDict_SetItem(kwargs, p->name, value)
                                     : PyList_Append(args, value)) < 0)
            goto done;
    }
    PyObject *tuple = PyList_AsTuple(args);
    out = tuple ? Py_BuildValue("NO", tuple, kwargs) : NULL;
done:
    Py_XDECREF(named);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return out;
}

/* The type. */

/* (name, kind) or (name, kind, default) */
static int add_parameter(struct template *t, PyObject *tuple)
{
    PyObject *name, *standard = NULL;
    int kind;

    if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "Ui|O", &name, &kind, &standard))
        return -1;
    if (t->parameter_count == PARAMETERS_MAX) {
        PyErr_Format(PyExc_ValueError, "%U() has more than %d parameters", t->function_name,
                     PARAMETERS_MAX);
        return -1;
    }
    struct parameter *p = &t->parameters[t->parameter_count++];
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    *p = (struct parameter){name, Py_XNewRef(standard), kind};
    if (kind != KEYWORD_ONLY)
        t->positional_count = t->parameter_count;
    return 0;
}

static int add_slot(struct template *t, PyObject *name)
{
    Py_ssize_t at = PyUnicode_Check(name) ? find(t, name) : -1;
    if (at < 0 || t->slot_count == PARAMETERS_MAX) {
        PyErr_Format(PyExc_ValueError, "%U() has no parameter %.60R", t->function_name, name);
        return -1;
    }
    t->slots[t->slot_count++] = (uint8_t)at;
    return 0;
}

/* Template(prefix, function_name, parameters, slots, extra_positional, extra_keywords) */
static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *prefix, *function_name, *parameters, *slots;
    int extra_positional, extra_keywords;

    if (kwargs || !PyArg_ParseTuple(args, "SUO!O!pp", &prefix, &function_name, &PyTuple_Type,
                                    &parameters, &PyTuple_Type, &slots, &extra_positional,
                                    &extra_keywords))
        return NULL;
    struct template *t = (struct template *)type->tp_alloc(type, 0);
    if (!t)
        return NULL;
    t->st = state_of(type);
    t->prefix = Py_NewRef(prefix);
    t->function_name = Py_NewRef(function_name);
    t->extra_positional = extra_positional;
    t->extra_keywords = extra_keywords;
    int wrong = 0;
    for (Py_ssize_t i = 0; !wrong && i < PyTuple_GET_SIZE(parameters); i++)
        wrong = add_parameter(t, PyTuple_GET_ITEM(parameters, i));
    for (Py_ssize_t i = 0; !wrong && i < PyTuple_GET_SIZE(slots); i++)
        wrong = add_slot(t, PyTuple_GET_ITEM(slots, i));
    if (wrong)
        Py_CLEAR(t);
    return (PyObject *)t;
}

static int traverse(struct template *t, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(t));
    for (Py_ssize_t i = 0; i < t->parameter_count; i++)
        Py_VISIT(t->parameters[i].standard);
    return 0;
}

static int clear(struct template *t)
{
    for (Py_ssize_t i = 0; i < t->parameter_count; i++)
        Py_CLEAR(t->parameters[i].standard);
    return 0;
}

static void dealloc(struct template *t)
{
    PyTypeObject *type = Py_TYPE(t);
    PyObject_GC_UnTrack(t);
    clear(t);
    for (Py_ssize_t i = 0; i < t->parameter_count; i++)
        Py_CLEAR(t->parameters[i].name);
    Py_XDECREF(t->prefix);
    Py_XDECREF(t->function_name);
    type->tp_free(t);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"key", METHOD_CAST(key), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"values", METHOD_CAST(values_of), METH_O, NULL},
    {"arguments", METHOD_CAST(arguments), METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_new, new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "peerage._native.Template",
    .basicsize = sizeof(struct template),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = type_slots,
};

/* escape(text) -> bytes: text as it stands in a key's prefix */
static PyObject *escape(PyObject *module, PyObject *text)
{
    unsigned char out[3 * KEY_MAX];
    Py_ssize_t bytes;
    (void)module;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &bytes);
    if (!utf8)
        return NULL;
    struct writer w = writer_of(out, sizeof out);
    key_put_text(&w, span_of(utf8, (size_t)bytes));
    if (w.failed)
        return PyErr_Format(PyExc_ValueError, "the name is too long: %.60R", text);
    return PyBytes_FromStringAndSize((char *)out, (Py_ssize_t)writer_bytes(&w));
}

static PyMethodDef functions[] = {
    {"escape", escape, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int template_type_add(PyObject *module, struct state *st)
{
    st->template = type_add(module, &spec, "Template");
    return st->template ? PyModule_AddFunctions(module, functions) : -1;
}
