/* What a node says about itself: members, owners, the coordinator, counters. */
#include "binding.h"

#include <stdlib.h>

#define MEMBERS_ROOM 64         /* more are asked for again with as much room as there are */
#define RANKS 3
#define STATS_ROOM 256

static PyStructSequence_Field member_fields[] = {
    {"address", NULL}, {"node_id", NULL}, {"started_ms", NULL}, {"self", NULL}, {"live", NULL},
    {"coordinates", NULL}, {"warming", NULL}, {"draining", NULL}, {"observer", NULL},
    {"owns", "takes part in the contest for channels"}, {NULL, NULL},
};
static PyStructSequence_Desc member_desc = {
    "peerage.Member", "What this node knows of one member.", member_fields, 10};

int look_types_add(PyObject *module, struct state *st)
{
    st->member = PyStructSequence_NewType(&member_desc);
    return st->member ? PyModule_AddObjectRef(module, "Member", (PyObject *)st->member) : -1;
}

static PyObject *member(const struct state *st, const struct peerage_member *m)
{
    PyObject *out = PyStructSequence_New(st->member);
    if (!out)
        return NULL;
    const int flags[] = {m->self, m->live, m->coordinates, m->warming, m->draining, m->observer,
                         m->owns};
    PyStructSequence_SetItem(out, 0, PyUnicode_FromString(m->address));
    PyStructSequence_SetItem(out, 1, PyLong_FromUnsignedLongLong(m->node_id));
    PyStructSequence_SetItem(out, 2, PyLong_FromUnsignedLongLong(m->started_ms));
    for (Py_ssize_t i = 0; i < 7; i++)
        PyStructSequence_SetItem(out, 3 + i, PyBool_FromLong(flags[i]));
    if (PyErr_Occurred())
        Py_CLEAR(out);
    return out;
}

PyObject *look_members(struct node *self, PyObject *unused)
{
    (void)unused;
    const struct state *st = state_of(Py_TYPE(self));
    struct engine *e = node_engine(self);
    if (!e)
        return NULL;

    struct peerage_member *found = NULL;
    int room = MEMBERS_ROOM, count;
    for (;;) {
        struct peerage_member *more = realloc(found, (size_t)room * sizeof *more);
        if (!more) {
            free(found);
            return PyErr_NoMemory();
        }
        found = more;
        count = peerage_members(e->p, found, room);
        if (count <= room)
            break;
        room = count + 16;
    }
    PyObject *out = PyList_New(0);
    for (int i = 0; out && i < count; i++) {
        PyObject *one = member(st, &found[i]);
        if (!one || PyList_Append(out, one) < 0)
            Py_CLEAR(out);
        Py_XDECREF(one);
    }
    free(found);
    return out;
}

/* The ranks of a channel: [(member, score)], best first. */
PyObject *look_owner(struct node *self, PyObject *channel)
{
    const struct state *st = state_of(Py_TYPE(self));
    struct peerage_member ranks[RANKS];
    uint64_t scores[RANKS];

    if (!PyBytes_Check(channel))
        return PyErr_Format(PyExc_TypeError, "the channel must be bytes");
    struct engine *e = node_engine(self);
    if (!e)
        return NULL;
    int count = peerage_owner(e->p, PyBytes_AS_STRING(channel), (size_t)PyBytes_GET_SIZE(channel),
                              ranks, scores, RANKS);
    if (count < 0)
        return errors_raise(st, count, NULL);
    PyObject *out = PyList_New(0);
    for (int i = 0; out && i < count && i < RANKS; i++) {
        PyObject *one = member(st, &ranks[i]);
        PyObject *pair = one ? Py_BuildValue("NK", one, (unsigned long long)scores[i]) : NULL;
        if (!pair || PyList_Append(out, pair) < 0)
            Py_CLEAR(out);
        Py_XDECREF(pair);
    }
    return out;
}

PyObject *look_coordinator(struct node *self, PyObject *unused)
{
    (void)unused;
    struct peerage_member found;
    struct engine *e = node_engine(self);
    if (!e)
        return NULL;
    if (peerage_coordinator(e->p, &found) != 1)
        Py_RETURN_NONE;
    return member(state_of(Py_TYPE(self)), &found);
}

PyObject *look_address(struct node *self, PyObject *unused)
{
    (void)unused;
    char out[56] = "";
    struct engine *e = node_engine(self);
    if (!e)
        return NULL;
    peerage_address(e->p, out);
    return PyUnicode_FromString(out);
}

PyObject *look_stats(struct node *self, PyObject *unused)
{
    (void)unused;
    struct peerage_stat stats[STATS_ROOM];
    struct engine *e = node_engine(self);
    if (!e)
        return NULL;
    int count = peerage_stats(e->p, stats, STATS_ROOM);
    PyObject *out = PyDict_New();
    for (int i = 0; out && i < count && i < STATS_ROOM; i++) {
        double value = stats[i].value;
        /* Counters are whole numbers, and read better so. */
        PyObject *number = value == (double)(long long)value && value < 9e15 && value > -9e15
                               ? PyLong_FromLongLong((long long)value)
                               : PyFloat_FromDouble(value);
        if (!number || PyDict_SetItemString(out, stats[i].name, number) < 0)
            Py_CLEAR(out);
        Py_XDECREF(number);
    }
    return out;
}
