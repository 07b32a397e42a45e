#!/usr/bin/env bash
# Runs a part of the Python tests that goes through all of the native code (fleets, deletes,
# forks, attacks on running nodes) with the extension built under ASan and UBSan. What they
# find ends the process that did it, and so its test.
#
#   scripts/sanitize.sh [arguments of pytest]
#   SANITIZER=thread scripts/sanitize.sh        under TSan, and fewer tests: it allows no
#                                               threads after a fork
#
# About two minutes; arguments may name other tests. Tests that start a Python of their own
# in an environment of their own can't run here: the sanitizers' library has to come first in
# every process.
#
# Older ASan hold a lock of their heap over a fork: test_a_fork_while_threads_are_asking then hangs
# in malloc, once in some forty runs (gdb on the child says so), and that is no finding.
#
# Leaks are looked for in the C tests (make -C native sanitize): Python itself leaves too
# much behind at its exit for a leak of ours to show.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
cd "$ROOT"

lock_setup
say "Looking at what this machine has"
needs_build
needs_test
install_packages
make_venv
install_peerage test
case ${SANITIZER:=address} in
    address)
        flags="-fsanitize=address,undefined -fno-sanitize-recover=all"
        libraries="libasan.so libubsan.so"
        tests="tests/test_attacks_wire.py tests/test_attacks_membership.py tests/test_peers.py"
        tests+=" tests/test_fork.py tests/test_asking.py tests/test_futures.py"
        tests+=" tests/test_unix_sockets.py"
        ;;
    thread)
        flags=-fsanitize=thread
        libraries=libtsan.so
        tests="tests/test_cache.py tests/test_failures.py"
        ;;
    *) die "SANITIZER is $SANITIZER, and takes address or thread" ;;
esac
flags+=" -fno-omit-frame-pointer"
say "Building the extension with $flags"
build=$ROOT/build/sanitized-$SANITIZER
CFLAGS="-O1 -g $flags" LDFLAGS="$flags" PEERAGE_BUILD=$build/native quietly sanitize-build.log \
    "$VENV/bin/python" setup.py -q build --build-base "$build" --build-lib "$build/lib" ||
    die "the sanitized extension could not be built, see above"
unlock_setup

# lists of names
# shellcheck disable=SC2086
[[ " $*" == *" tests/"* ]] || set -- "$@" $tests
say "Running: $*"
LD_PRELOAD=
for library in $libraries; do
    LD_PRELOAD+=${LD_PRELOAD:+:}$(cc -print-file-name="$library")
done
export LD_PRELOAD
# Python itself knows nothing of TSan, so nothing is said of it.
export TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1:report_signal_unsafe=0
export ASAN_OPTIONS=detect_leaks=0:handle_abort=1:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export PYTHONMALLOC=malloc PYTHONPATH=$build/lib
status=0
# older sanitizers find no room for their shadow where a kernel randomizes addresses widely
run setarch -R "$VENV/bin/python" -m pytest -n $((JOBS + 1)) --dist worksteal "$@" || status=$?
exit $status
