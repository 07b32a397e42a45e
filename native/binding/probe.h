/* probe(secret, label, encryption, allow_cidr, address, timeout_ms, clock_offset_ms)
 * -> (stage, errno, allowed, node_id, ahead_ms, [(address, node_id, started_ms, state,
 * coordinates, warming, draining, observer, speaks_min, speaks_max)] or None) */
#ifndef PEERAGE_BINDING_PROBE_H
#define PEERAGE_BINDING_PROBE_H

#include "binding.h"

PyObject *probe(PyObject *module, PyObject *args);

#endif
