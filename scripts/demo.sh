#!/usr/bin/env bash
# Sets everything up and shows the main job: a recorded upstream, a fleet of web workers
# with the peer layer off and on, the same load on both, and a table to compare them.
#
#   scripts/demo.sh [options of scripts/coalescing_load.py]
#
# Needs neither Redis nor a configuration. Safe to run again: what is there is kept.
# PYTHON=... picks the Python.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/setup.sh"
cd "$ROOT"

lock_setup
say "Looking at what this machine has"
needs_build
install_packages
make_venv
install_peerage demo
unlock_setup

# A rate that two cores carry together with everything else that runs on them.
[ $# -gt 0 ] || set -- --nodes 4 --seconds 12 --rate 100
say "Running the same load without and with the peer layer: coalescing_load.py --compare none,peers $*"
status=0
run "$VENV/bin/python" scripts/coalescing_load.py --compare none,peers "$@" || status=$?
case $status in
0) say "Done. Without the layer every worker fetches for itself; with it the fleet fetches each key once per TTL." ;;
1) die "the load test counted errors, see the table; on a machine that is busy otherwise some answers come too late" ;;
*) die "the load test could not be run, see above" ;;
esac
