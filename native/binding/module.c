/* peerage._native: the module and its state.
 *
 * One interpreter only: foreign owners are dropped by whichever thread comes by with the
 * GIL, which would be the wrong interpreter's as soon as there were two. Said through the
 * slot where Python knows it (3.12), and checked by hand before that.
 */
#include "binding.h"
#include "probe.h"

#include <stddef.h>

static struct PyModuleDef definition;

struct state *state_of(PyTypeObject *type)
{
    return PyType_GetModuleState(type);
}

PyTypeObject *type_add(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (!type || (name && PyModule_AddObjectRef(module, name, type) < 0)) {
        Py_XDECREF(type);
        return NULL;
    }
    return (PyTypeObject *)type;
}

static PyObject *attribute(const char *module, const char *name)
{
    PyObject *from = PyImport_ImportModule(module);
    PyObject *found = from ? PyObject_GetAttrString(from, name) : NULL;
    Py_XDECREF(from);
    return found;
}

/* json.JSONEncoder(...).encode, once: the options say what of Python is JSON for us. */
static PyObject *json_encoder(void)
{
    PyObject *class = attribute("json", "JSONEncoder");
    PyObject *none = PyTuple_New(0);
    PyObject *options = Py_BuildValue("{s:O,s:O,s:(s,s)}", "allow_nan", Py_False, "ensure_ascii",
                                      Py_False, "separators", ",", ":");
    PyObject *encoder = class && none && options ? PyObject_Call(class, none, options) : NULL;
    PyObject *encode = encoder ? PyObject_GetAttrString(encoder, "encode") : NULL;
    Py_XDECREF(class);
    Py_XDECREF(none);
    Py_XDECREF(options);
    Py_XDECREF(encoder);
    return encode;
}

static void add_json_decoder(struct state *st)
{
    PyObject *class = attribute("json", "JSONDecoder");
    PyObject *decoder = class ? PyObject_CallNoArgs(class) : NULL;
    st->json_decode = decoder ? PyObject_GetAttrString(decoder, "decode") : NULL;
    st->json_raw_decode = decoder ? PyObject_GetAttrString(decoder, "raw_decode") : NULL;
    Py_XDECREF(class);
    Py_XDECREF(decoder);
}

static int add_texts(struct state *st)
{
    static const char *const tiers[] = {"local", "owner", "heir", "redis", "load"};
    static const struct {
        size_t at;
        const char *text;
    } texts[] = {
        {offsetof(struct state, text_call_soon), "call_soon"},
        {offsetof(struct state, text_throw), "throw"},
        {offsetof(struct state, text_close), "close"},
        {offsetof(struct state, text_wrapped), "__wrapped__"},
        {offsetof(struct state, text_qualname), "__qualname__"},
        {offsetof(struct state, text_rebuild), "rebuild"},
        {offsetof(struct state, text_hex), "hex"},
        {offsetof(struct state, text_isoformat), "isoformat"},
        {offsetof(struct state, text_fromisoformat), "fromisoformat"},
        {offsetof(struct state, text_utcoffset), "utcoffset"},
    };
    for (size_t i = 0; i < sizeof tiers / sizeof tiers[0]; i++)
        if (!(st->tiers[i] = PyUnicode_InternFromString(tiers[i])))
            return -1;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        PyObject *text = PyUnicode_InternFromString(texts[i].text);
        if (!text)
            return -1;
        *(PyObject **)((char *)st + texts[i].at) = text;
    }
    return 0;
}

static int add_imports(struct state *st)
{
    st->json_encode = json_encoder();
    add_json_decoder(st);
    st->pickle_dumps = attribute("pickle", "dumps");
    st->pickle_loads = attribute("pickle", "loads");
    st->uuid = attribute("uuid", "UUID");
    st->date = attribute("datetime", "date");
    st->datetime = attribute("datetime", "datetime");
    st->running_loop = attribute("asyncio", "get_running_loop");
    st->cancelled_error = attribute("asyncio", "CancelledError");
    st->names_context = Py_BuildValue("(s)", "context");
    return st->json_encode && st->json_decode && st->json_raw_decode && st->pickle_dumps &&
           st->pickle_loads && st->uuid && st->date && st->datetime && st->running_loop && st->cancelled_error &&
           st->names_context ? 0 : -1;
}

static int add_chain(PyObject *module, struct state *st)
{
    PyObject *none = PyTuple_New(0);
    st->chain = none ? PyContextVar_New("peerage_chain", none) : NULL;
    Py_XDECREF(none);
    return st->chain ? PyModule_AddObjectRef(module, "chain", st->chain) : -1;
}

static int add_constants(PyObject *module)
{
    static const struct {
        const char *name;
        long value;
    } constants[] = {
        {"LOADS", PEERAGE_LOADS}, {"FRESH", PEERAGE_FRESH}, {"NO_WAIT", PEERAGE_NO_WAIT},
        {"NOTICE_LOG", PEERAGE_NOTICE_LOG}, {"NOTICE_MEMBERS", PEERAGE_NOTICE_MEMBERS},
        {"NOTICE_COORDINATOR", PEERAGE_NOTICE_COORDINATOR}, {"NOTICE_POOL", PEERAGE_NOTICE_POOL},
        {"NOTICE_RELEASE", PEERAGE_NOTICE_RELEASE},
    };
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0)
            return -1;
    return PyModule_AddStringConstant(module, "VERSION", PEERAGE_VERSION_TEXT);
}

static int execute(PyObject *module)
{
    struct state *st = PyModule_GetState(module);

    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "peerage works in the main interpreter only, not in a subinterpreter");
        return -1;
    }
    if (add_texts(st) < 0 || add_imports(st) < 0 || add_chain(module, st) < 0 ||
        add_constants(module) < 0 ||
        errors_add(module, st) < 0 || release_start() < 0)
        return -1;
    if (value_types_add(module, st) < 0 || look_types_add(module, st) < 0 ||
        node_type_add(module, st) < 0 || port_types_add(module, st) < 0 ||
        template_type_add(module, st) < 0 || ready_type_add(module, st) < 0 ||
        future_type_add(module, st) < 0 ||
        asking_type_add(module, st) < 0 || function_type_add(module, st) < 0 ||
        fast_type_add(module, st) < 0)
        return -1;
    return 0;
}

/* encode(value, pickle) -> (type, bytes) */
static PyObject *encode(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "encode takes value, pickle");
    PyObject *out = NULL;
    int type = value_encode(PyModule_GetState(module), args[0], args[1] == Py_True, &out);
    return type < 0 ? NULL : Py_BuildValue("iN", type, out);
}

/* decode(type, bytes, pickle) -> value */
static PyObject *decode(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyLong_Check(args[0]) || !PyBytes_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "decode takes type, bytes, pickle");
    if (PyLong_AsLong(args[0]) == PEERAGE_BYTES && PyBytes_CheckExact(args[1]))
        return Py_NewRef(args[1]);
    return value_decode(PyModule_GetState(module), (int)PyLong_AsLong(args[0]),
                        PyBytes_AS_STRING(args[1]), (size_t)PyBytes_GET_SIZE(args[1]),
                        args[2] == Py_True);
}

static PyMethodDef functions[] = {
    {"encode", METHOD_CAST(encode), METH_FASTCALL, NULL},
    {"decode", METHOD_CAST(decode), METH_FASTCALL, NULL},
    {"probe", probe, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* Every object of the state, for the collector. */
static int traverse(PyObject *module, visitproc visit, void *arg)
{
    struct state *st = PyModule_GetState(module);
    if (!st)
        return 0;
    for (size_t i = 0; i < sizeof *st / sizeof(PyObject *); i++)
        Py_VISIT(((PyObject **)st)[i]);
    return 0;
}

static int clear(PyObject *module)
{
    struct state *st = PyModule_GetState(module);
    if (!st)
        return 0;
    for (size_t i = 0; i < sizeof *st / sizeof(PyObject *); i++)
        Py_CLEAR(((PyObject **)st)[i]);
    return 0;
}

static void release_module(void *module)
{
    clear(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "peerage._native",
    .m_doc = "The native part of peerage. Private: use the package.",
    .m_size = sizeof(struct state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = release_module,
};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
