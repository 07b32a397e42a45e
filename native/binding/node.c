/* The Node type: a native node, and the one place that notices a fork.
 *
 * A native node lives in an `engine` that counts who is inside: calls that have let the GIL
 * go, and ports. So a Node can be given a fresh native node (after a fork, or when a closed
 * one is started again) while some thread is still on its way out of the old one.
 */
#include "binding.h"

#include <stddef.h>
#include <stdlib.h>
#include <structmember.h>

/* Options. */

enum option_type { OPTION_FLAG, OPTION_INT, OPTION_TEXT, OPTION_SECONDS, OPTION_BYTES };

static const struct {
    const char *name;
    enum option_type type;
    size_t at;
} options[] = {
#define OPTION(name, type) {#name, type, offsetof(struct peerage_options, name)}
    OPTION(enabled, OPTION_FLAG), OPTION(secret, OPTION_TEXT), OPTION(peers, OPTION_TEXT),
    OPTION(port, OPTION_INT), OPTION(port_range, OPTION_INT), OPTION(listen, OPTION_TEXT),
    OPTION(advertise, OPTION_TEXT), OPTION(allow_cidr, OPTION_TEXT),
    OPTION(encryption, OPTION_FLAG), OPTION(label, OPTION_TEXT),
    OPTION(timeout_s, OPTION_SECONDS), OPTION(load_timeout_s, OPTION_SECONDS),
    OPTION(heir, OPTION_FLAG), OPTION(coordinate, OPTION_FLAG),
    OPTION(unix_sockets, OPTION_FLAG), OPTION(spin_us, OPTION_INT),
    OPTION(observer, OPTION_FLAG),
    OPTION(cache_bytes, OPTION_BYTES), OPTION(redis_url, OPTION_TEXT),
    OPTION(redis_prefix, OPTION_TEXT),
#undef OPTION
};

/* Borrows texts from `value`. */
static int set_option(struct peerage_options *o, size_t i, PyObject *value)
{
    void *at = (char *)o + options[i].at;
    switch (options[i].type) {
    case OPTION_FLAG:
        *(int *)at = PyObject_IsTrue(value);
        break;
    case OPTION_INT:
        *(int *)at = (int)PyLong_AsLong(value);
        break;
    case OPTION_TEXT:
        *(const char **)at = PyUnicode_AsUTF8(value);
        break;
    case OPTION_SECONDS:
        *(double *)at = PyFloat_AsDouble(value);
        break;
    case OPTION_BYTES:
        *(uint64_t *)at = PyLong_AsUnsignedLongLong(value);
        break;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int read_options(PyObject *dict, struct peerage_options *o)
{
    peerage_options_default(o);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        PyObject *value = PyDict_GetItemString(dict, options[i].name);
        if (value && value != Py_None && set_option(o, i, value) < 0)
            return -1;
    }
    return 0;
}

/* Engines. */

static struct engine *make(const struct state *st, PyObject *dict)
{
    struct peerage_options o;
    char line[PEERAGE_LINE_MAX] = "";
    struct engine *e = calloc(1, sizeof *e);

    if (!e) {
        PyErr_NoMemory();
        return NULL;
    }
    if (read_options(dict, &o) < 0) {
        free(e);
        return NULL;
    }
    int rc = peerage_new(&o, &e->p, line);
    if (rc < 0) {
        free(e);
        errors_raise(st, rc, line);
        return NULL;
    }
    e->fork_count = peerage_fork_count;
    e->users = 1;
    return e;
}

void engine_leave(struct engine *e)
{
    if (--e->users > 0)
        return;
    release_ring_unset(e->p);
    if (e->fork_count == peerage_fork_count) {
        /* Joins the loop thread, which never wants the GIL; still it may take a moment. */
        Py_BEGIN_ALLOW_THREADS
        peerage_free(e->p);
        Py_END_ALLOW_THREADS
    } else {
        peerage_forget(e->p);
    }
    free(e);
}

struct engine *node_enter(struct node *self)
{
    release_check();
    struct engine *e = node_engine(self);
    if (e)
        e->users++;
    return e;
}

static struct engine *replace(struct node *self)
{
    struct engine *old = self->engine;
    struct engine *fresh = make(state_of(Py_TYPE(self)), self->options);
    if (!fresh)
        return NULL;
    self->engine = fresh;
    if (old)
        engine_leave(old);
    return fresh;
}

struct engine *node_renew(struct node *self)
{
    struct engine *e = replace(self);
    if (!e)
        return NULL;
    PyObject *done = self->renewed ? PyObject_CallNoArgs(self->renewed) : Py_NewRef(Py_None);
    if (!done)
        return NULL;
    Py_DECREF(done);
    return self->engine;
}

/* Life. */

/* Node(options: dict, renewed: callable) */
static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *dict, *renewed;

    if (kwargs || !PyArg_ParseTuple(args, "O!O", &PyDict_Type, &dict, &renewed))
        return NULL;
    struct node *self = (struct node *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->options = PyDict_Copy(dict);
    self->renewed = Py_NewRef(renewed);
    if (!self->options || !(self->engine = make(state_of(type), self->options)))
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* start(demanded): by name, or only because a question came */
static PyObject *start(struct node *self, PyObject *demanded)
{
    int by_name = PyObject_IsTrue(demanded);
    char line[PEERAGE_LINE_MAX] = "";
    int rc;
    if (by_name < 0)
        return NULL;
    struct engine *e = node_enter(self);
    if (!e)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = by_name ? peerage_start(e->p, line) : peerage_start_quietly(e->p, line);
    Py_END_ALLOW_THREADS
    if (rc >= 0 && e == self->engine)
        release_ring_set(e->p);
    engine_leave(e);
    if (rc < 0)
        return errors_raise(state_of(Py_TYPE(self)), rc, line);
    Py_RETURN_NONE;
}

/* close(drain_ms). In a fork's child there is nothing to close. */
static PyObject *close_node(struct node *self, PyObject *drain_ms)
{
    unsigned long wait = PyLong_AsUnsignedLong(drain_ms);
    struct engine *e = self->engine;

    if (wait == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    release_check();
    if (!e || e->fork_count != peerage_fork_count)
        Py_RETURN_NONE;
    e->users++;
    Py_BEGIN_ALLOW_THREADS
    peerage_close(e->p, (uint32_t)(wait > UINT32_MAX ? UINT32_MAX : wait));
    Py_END_ALLOW_THREADS
    release_ring_unset(e->p);
    engine_leave(e);
    release_check();
    Py_RETURN_NONE;
}

/* A closed node starts again as a new one, with an empty store. */
static PyObject *reopen(struct node *self, PyObject *unused)
{
    (void)unused;
    if (!replace(self))
        return NULL;
    Py_RETURN_NONE;
}

/* Is what self holds this process's own? Never renews. */
static PyObject *inherited(struct node *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(self->engine && self->engine->fork_count != peerage_fork_count);
}

static PyObject *state_number(struct node *self, PyObject *unused)
{
    (void)unused;
    struct engine *e = node_engine(self);
    return e ? PyLong_FromLong(peerage_state(e->p)) : NULL;
}

/* Asking. */

static int bytes_of(PyObject *object, const void **at, size_t *bytes, const char *what)
{
    if (!PyBytes_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be bytes, not %.100s", what,
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    *at = PyBytes_AS_STRING(object);
    *bytes = (size_t)PyBytes_GET_SIZE(object);
    return 0;
}

static int uint32_of(PyObject *object, uint32_t *out)
{
    unsigned long value = PyLong_AsUnsignedLong(object);
    if (value == (unsigned long)-1 && PyErr_Occurred())
        return -1;
    *out = (uint32_t)(value > UINT32_MAX ? UINT32_MAX : value);
    return 0;
}

int node_ask_arguments(PyObject *const *args, struct peerage_ask *ask, bool *pickle)
{
    *ask = (struct peerage_ask){0};
    if (bytes_of(args[0], &ask->key, &ask->key_bytes, "the key") < 0 ||
        bytes_of(args[1], &ask->channel, &ask->channel_bytes, "the channel") < 0 ||
        bytes_of(args[2], &ask->loader, &ask->loader_bytes, "the loader") < 0 ||
        uint32_of(args[3], &ask->ttl_ms) < 0 || uint32_of(args[4], &ask->stale_ms) < 0 ||
        uint32_of(args[5], &ask->load_timeout_ms) < 0 ||
        uint32_of(args[6], &ask->timeout_ms) < 0)
        return -1;
    uint32_t flags;
    if (uint32_of(args[7], &flags) < 0)
        return -1;
    ask->flags = flags;
    *pickle = args[8] == Py_True;
    return 0;
}

int node_ask_chain(const struct state *st, struct peerage_ask *ask, uint64_t chain[8])
{
    PyObject *links;

    if (PyContextVar_Get(st->chain, NULL, &links) < 0)
        return -1;
    if (!PyTuple_Check(links) || PyTuple_GET_SIZE(links) > 8) {
        Py_DECREF(links);
        PyErr_SetString(PyExc_TypeError, "the chain must be a tuple of at most 8");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(links); i++)
        chain[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(links, i));
    ask->chain = chain;
    ask->chain_count = (unsigned)PyTuple_GET_SIZE(links);
    Py_DECREF(links);
    return PyErr_Occurred() ? -1 : 0;
}

int node_change_arguments(PyObject *const *args, struct peerage_ask *ask,
                          struct peerage_item *item, bool *has_item, int *by_channel)
{
    *ask = (struct peerage_ask){0};
    if (bytes_of(args[0], &ask->key, &ask->key_bytes, "the key") < 0 ||
        bytes_of(args[1], &ask->channel, &ask->channel_bytes, "the channel") < 0 ||
        uint32_of(args[4], &ask->timeout_ms) < 0)
        return -1;
    *by_channel = PyObject_IsTrue(args[3]);
    *has_item = args[2] != Py_None;
    return *has_item ? value_item(args[2], item) : 0;
}

static PyObject *wrong_count(const char *name, int wanted)
{
    return PyErr_Format(PyExc_TypeError, "%s takes %d arguments", name, wanted);
}

/* The local store alone; `made` turns what is there into what Python sees. A loader's error
 * that is kept is no value. */
static PyObject *look_here(struct node *self, const char *name, PyObject *const *args,
                           Py_ssize_t count, PyObject *(*made)(const struct state *, peerage *, const void *,
                                             size_t, struct peerage_answer *, bool))
{
    const struct state *st = state_of(Py_TYPE(self));
    struct peerage_answer answer;

    if (count != 2)
        return wrong_count(name, 2);
    if (!PyBytes_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "the key must be bytes");
    release_check();
    struct engine *e = node_engine(self);
    if (!e)
        return NULL;
    const void *key = PyBytes_AS_STRING(args[0]);
    size_t bytes = (size_t)PyBytes_GET_SIZE(args[0]);
    if (peerage_get(e->p, key, bytes, &answer) != 1)
        return Py_NewRef(st->miss);
    if (answer.value_type == PEERAGE_ERROR) {
        peerage_blob_free(answer.blob);
        return Py_NewRef(st->miss);
    }
    return made(st, e->p, key, bytes, &answer, args[1] == Py_True);
}

/* get(key, pickle) -> value or MISS */
static PyObject *get(struct node *self, PyObject *const *args, Py_ssize_t count)
{
    return look_here(self, "get", args, count, value_take);
}

/* peek(key, pickle) -> Hit or MISS: as get, with what is known of the value */
static PyObject *peek(struct node *self, PyObject *const *args, Py_ssize_t count)
{
    return look_here(self, "peek", args, count, value_answer);
}

/* A signal cut the wait: its handler runs here, and what it raises ends the question. */
int node_interrupted(void *argument)
{
    PyThreadState **saved = argument;
    PyEval_RestoreThread(*saved);
    int raised = PyErr_CheckSignals();
    *saved = PyEval_SaveThread();
    return raised;
}

/* ask(key, channel, loader, ttl_ms, stale_ms, load_timeout_ms, timeout_ms, flags, pickle)
 * -> Hit, MISS, Load or Failed; the calling thread waits. */
static PyObject *ask(struct node *self, PyObject *const *args, Py_ssize_t count)
{
    struct peerage_ask question;
    struct peerage_answer answer;
    uint64_t chain[8];
    bool pickle;

    if (count != ASK_ARGUMENTS)
        return wrong_count("ask", ASK_ARGUMENTS);
    const struct state *st = state_of(Py_TYPE(self));
    if (node_ask_arguments(args, &question, &pickle) < 0 ||
        node_ask_chain(st, &question, chain) < 0)
        return NULL;
    struct engine *e = node_enter(self);
    if (!e)
        return NULL;
    PyThreadState *saved = PyEval_SaveThread();
    peerage_ask(e->p, &question, &answer, node_interrupted, &saved);
    PyEval_RestoreThread(saved);
    PyObject *out = value_answer(st, e->p, question.key, question.key_bytes, &answer, pickle);
    engine_leave(e);
    return out;
}

/* Loads. */

#define ITEMS_MAX 256

/* finish(load_id, [(key, type, bytes, ttl_ms, stale_ms)]) -> was it small enough to share */
static PyObject *finish(struct node *self, PyObject *const *args, Py_ssize_t count)
{
    struct peerage_item items[ITEMS_MAX];
    unsigned made = 0;

    if (count != 2 || !PyList_Check(args[1]))
        return wrong_count("finish", 2);
    if (PyList_GET_SIZE(args[1]) > ITEMS_MAX)
        return PyErr_Format(PyExc_ValueError, "a load makes at most %d entries", ITEMS_MAX);
    uint64_t load_id = PyLong_AsUnsignedLongLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    struct engine *e = node_enter(self);
    if (!e)
        return NULL;
    PyObject *out = NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[1]); i++, made++)
        if (value_item(PyList_GET_ITEM(args[1], i), &items[made]) < 0)
            goto wrong;
    int rc = peerage_finish(e->p, load_id, items, made);
    out = rc < 0 && rc != PEERAGE_E_TOO_BIG
              ? errors_raise(state_of(Py_TYPE(self)), rc, NULL)
              : PyBool_FromLong(rc != PEERAGE_E_TOO_BIG);
    engine_leave(e);
    return out;

wrong:
    while (made > 0)
        Py_XDECREF((PyObject *)items[--made].owner);
    engine_leave(e);
    return NULL;
}

/* fail(load_id, error, negative_ttl_ms) */
static PyObject *fail(struct node *self, PyObject *const *args, Py_ssize_t count)
{
    const void *error;
    size_t bytes;
    uint32_t negative_ttl_ms;

    if (count != 3)
        return wrong_count("fail", 3);
    uint64_t load_id = PyLong_AsUnsignedLongLong(args[0]);
    if (PyErr_Occurred() || bytes_of(args[1], &error, &bytes, "the error") < 0 ||
        uint32_of(args[2], &negative_ttl_ms) < 0)
        return NULL;
    struct engine *e = node_enter(self);
    if (!e)
        return NULL;
    int rc = peerage_fail(e->p, load_id, error, bytes, negative_ttl_ms);
    engine_leave(e);
    return rc < 0 ? errors_raise(state_of(Py_TYPE(self)), rc, NULL) : Py_NewRef(Py_None);
}

static PyObject *lose(struct node *self, PyObject *id)
{
    uint64_t load_id = PyLong_AsUnsignedLongLong(id);
    if (PyErr_Occurred())
        return NULL;
    struct engine *e = node_enter(self);
    if (!e)
        return NULL;
    peerage_lose(e->p, load_id);
    engine_leave(e);
    Py_RETURN_NONE;
}

/* register(loader, is_async, early_ms) */
static PyObject *register_loader(struct node *self, PyObject *const *args, Py_ssize_t count)
{
    const void *loader;
    size_t bytes;
    uint32_t early_ms;

    if (count != 3)
        return wrong_count("register", 3);
    if (bytes_of(args[0], &loader, &bytes, "the loader") < 0 || uint32_of(args[2], &early_ms) < 0)
        return NULL;
    struct engine *e = node_engine(self);
    if (!e)
        return NULL;
    int rc = peerage_register(e->p, loader, bytes, args[1] == Py_True);
    if (rc == 0)
        rc = peerage_refresh_early(e->p, loader, bytes, early_ms);
    return rc < 0 ? errors_raise(state_of(Py_TYPE(self)), rc, NULL) : Py_NewRef(Py_None);
}

/* take(timeout_ms) -> Load, or None when there was none; ClosedError: the thread may end */
static PyObject *take(struct node *self, PyObject *timeout)
{
    const struct state *st = state_of(Py_TYPE(self));
    struct peerage_load load;
    uint32_t timeout_ms;
    int rc;

    if (uint32_of(timeout, &timeout_ms) < 0)
        return NULL;
    struct engine *e = node_enter(self);
    if (!e)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = peerage_take(e->p, timeout_ms, &load);
    Py_END_ALLOW_THREADS
    PyObject *out = NULL;
    if (rc == 1) {
        out = value_load(st, &load);
        if (!out)
            peerage_lose(e->p, load.load_id);
        peerage_load_free(&load);
    }
    engine_leave(e);
    if (rc < 0)
        return errors_raise(st, rc, NULL);
    return rc == 1 ? out : Py_NewRef(Py_None);
}

/* attend(timeout_ms) -> (kind, level, line) or None; ClosedError: the thread may end */
static PyObject *attend(struct node *self, PyObject *timeout)
{
    struct peerage_notice notice;
    uint32_t timeout_ms;
    int rc;

    if (uint32_of(timeout, &timeout_ms) < 0)
        return NULL;
    struct engine *e = node_enter(self);
    if (!e)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = peerage_attend(e->p, timeout_ms, &notice);
    Py_END_ALLOW_THREADS
    engine_leave(e);
    release_check();
    if (rc < 0)
        return errors_raise(state_of(Py_TYPE(self)), rc, NULL);
    if (rc == 0)
        Py_RETURN_NONE;
    PyObject *line = PyUnicode_DecodeUTF8(notice.line, (Py_ssize_t)strlen(notice.line), "replace");
    return line ? Py_BuildValue("iiN", notice.kind, notice.level, line) : NULL;
}

/* port(loop) -> the Port of an event loop, or None; never renews */
static PyObject *port_of_loop(struct node *self, PyObject *loop)
{
    struct engine *e = self->engine;
    PyObject *port = e && e->fork_count == peerage_fork_count ? port_of(e, loop) : NULL;
    return Py_NewRef(port ? port : Py_None);
}

/* start_port(port or None): the port that runs the registered async loaders */
static PyObject *start_port(struct node *self, PyObject *port)
{
    struct state *st = state_of(Py_TYPE(self));
    if (port != Py_None && !Py_IS_TYPE(port, st->port))
        return PyErr_Format(PyExc_TypeError, "start_port takes a Port or None");
    struct engine *e = node_engine(self);
    if (!e)
        return NULL;
    peerage_start_port(e->p, port == Py_None ? NULL : port_native(port));
    Py_RETURN_NONE;
}

/* change(key, channel, item or None, by_channel, timeout_ms) -> (acknowledged, unreached) */
static PyObject *change(struct node *self, PyObject *const *args, Py_ssize_t count)
{
    struct peerage_ask name;
    struct peerage_item item;
    struct peerage_report report = {0};
    bool has_item;
    int by_channel, rc;

    if (count != CHANGE_ARGUMENTS)
        return wrong_count("change", CHANGE_ARGUMENTS);
    struct engine *e = node_enter(self);
    if (!e)
        return NULL;
    if (node_change_arguments(args, &name, &item, &has_item, &by_channel) < 0) {
        engine_leave(e);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    rc = peerage_change(e->p, &name, has_item ? &item : NULL, by_channel, &report);
    Py_END_ALLOW_THREADS
    engine_leave(e);
    if (rc < 0) {
        peerage_report_free(&report);
        return errors_raise(state_of(Py_TYPE(self)), rc, NULL);
    }
    return value_report(&report);
}

/* The type. */

static int traverse(struct node *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->options);
    Py_VISIT(self->renewed);
    return 0;
}

static int clear(struct node *self)
{
    Py_CLEAR(self->renewed);
    return 0;
}

static void dealloc(struct node *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weakrefs)
        PyObject_ClearWeakRefs((PyObject *)self);
    clear(self);
    Py_CLEAR(self->options);
    if (self->engine)
        engine_leave(self->engine);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"start", METHOD_CAST(start), METH_O, NULL},
    {"close", METHOD_CAST(close_node), METH_O, NULL},
    {"reopen", METHOD_CAST(reopen), METH_NOARGS, NULL},
    {"inherited", METHOD_CAST(inherited), METH_NOARGS, NULL},
    {"state", METHOD_CAST(state_number), METH_NOARGS, NULL},
    {"get", METHOD_CAST(get), METH_FASTCALL, NULL},
    {"peek", METHOD_CAST(peek), METH_FASTCALL, NULL},
    {"ask", METHOD_CAST(ask), METH_FASTCALL, NULL},
    {"finish", METHOD_CAST(finish), METH_FASTCALL, NULL},
    {"fail", METHOD_CAST(fail), METH_FASTCALL, NULL},
    {"lose", METHOD_CAST(lose), METH_O, NULL},
    {"register", METHOD_CAST(register_loader), METH_FASTCALL, NULL},
    {"take", METHOD_CAST(take), METH_O, NULL},
    {"attend", METHOD_CAST(attend), METH_O, NULL},
    {"port", METHOD_CAST(port_of_loop), METH_O, NULL},
    {"start_port", METHOD_CAST(start_port), METH_O, NULL},
    {"change", METHOD_CAST(change), METH_FASTCALL, NULL},
    {"tally_add", METHOD_CAST(counting_add), METH_FASTCALL, NULL},
    {"tally_take", METHOD_CAST(counting_take), METH_FASTCALL, NULL},
    {"members", METHOD_CAST(look_members), METH_NOARGS, NULL},
    {"owner", METHOD_CAST(look_owner), METH_O, NULL},
    {"coordinator", METHOD_CAST(look_coordinator), METH_NOARGS, NULL},
    {"address", METHOD_CAST(look_address), METH_NOARGS, NULL},
    {"stats", METHOD_CAST(look_stats), METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct node, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "peerage._native.Node",
    .basicsize = sizeof(struct node),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

int node_type_add(PyObject *module, struct state *st)
{
    st->node = type_add(module, &spec, "Node");
    return st->node ? 0 : -1;
}
