#!/usr/bin/env bash
# Sets everything up for the tests and runs all of them: the native ones (also under
# sanitizers), the checks on the tree itself, and the Python ones with real processes.
# The last line is pytest's summary, which covers all of them.
#
#   scripts/test.sh [arguments of pytest]
#
# Tests mostly wait, so there is one process of them more than there are processors (-n 0: one
# process, one test after the other); those that measure have the machine to themselves.
#
# Safe to run again: what is there is kept. PYTHON=... picks the Python.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
cd "$ROOT"
export PEERAGE_WERROR=1

lock_setup
say "Looking at what this machine has"
needs_build
needs_test
install_packages
make_venv
install_peerage test
say "Building the native tests"
quietly make-tests.log make -C native -j"$JOBS" build-check ||
    die "the native tests could not be built, see above"
unlock_setup

say "Running all tests"
status=0
run "$VENV/bin/python" -m pytest -n $((JOBS + 1)) --dist worksteal "$@" || status=$?
exit $status
