#!/usr/bin/env bats
# Stubs are written in single quotes on purpose:
# shellcheck disable=SC2016
# The set-up that demo.sh and test.sh share: needs are tested by doing them, apt runs only
# for what failed, nothing is built twice, and signals end everything that was started.

setup()
{
    ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    : "${BATS_TEST_TMPDIR:=$(mktemp -d "${BATS_TMPDIR:-/tmp}/peerage-bats.XXXXXX")}"
    STUBS=$BATS_TEST_TMPDIR/bin
    mkdir -p "$STUBS" "$BATS_TEST_TMPDIR/tree/scripts/lib" "$BATS_TEST_TMPDIR/tree/native/core"
    # a tree of its own, so that nothing of the real one is touched
    TREE=$BATS_TEST_TMPDIR/tree
    cp "$ROOT/scripts/lib/setup.sh" "$TREE/scripts/lib/"
    printf '[project]\nname = "x"\n' >"$TREE/pyproject.toml"
    echo "# nothing" >"$TREE/setup.py"
    echo "int x;" >"$TREE/native/core/x.c"
    export APT_LOG=$BATS_TEST_TMPDIR/apt.log
    stub apt-get 'echo "$DEBIAN_FRONTEND $NEEDRESTART_MODE apt-get $*" >>"$APT_LOG"'
}

# stub NAME SHELL: a command ahead of the real one
stub()
{
    printf '#!/bin/sh\n%s\n' "$2" >"$STUBS/$1"
    chmod +x "$STUBS/$1"
}

# script SHELL: run as a script that uses the library, from the tree
# Signals as a terminal's shell has them, whatever started the tests: one that is ignored from
# the start (nohup) no script could catch.
script()
{
    printf '#!/usr/bin/env bash\nset -euo pipefail\n. "%s/scripts/lib/setup.sh"\n%s\n' "$TREE" "$1" \
        >"$BATS_TEST_TMPDIR/script.sh"
    PATH=$STUBS:$PATH env --default-signal bash "$BATS_TEST_TMPDIR/script.sh"
}

# A compiler that finds every header but libev's.
without_libev()
{
    stub cc 'case "$*" in *"-lev"*) exit 1 ;; esac
cat >/dev/null
for word do [ "$last" != -o ] || : >"$word"; last=$word; done'
}

@test "apt installs what failed and nothing else, after one update, without questions" {
    [ "$(id -u)" -eq 0 ] || stub sudo 'shift; exec "$@"'
    without_libev
    stub pkg-config ''
    run script 'needs_build; install_packages'
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"Installing what is missing (libev's headers): apt-get install libev-dev"* ]]
    [ "$(wc -l <"$APT_LOG")" -eq 2 ]
    [ "$(head -n 1 "$APT_LOG")" = "noninteractive a apt-get -y -q -o DPkg::Lock::Timeout=300 update" ]
    [ "$(tail -n 1 "$APT_LOG")" = "noninteractive a apt-get -y -q -o DPkg::Lock::Timeout=300 install --no-install-recommends libev-dev" ]
}

@test "nothing is missing: apt does not run" {
    stub cc 'cat >/dev/null'
    stub pkg-config ''
    run script 'needs_build; install_packages'
    [ "$status" -eq 0 ]
    [ ! -e "$APT_LOG" ]
}

@test "not root and no sudo: one line with the exact command" {
    without_libev
    stub pkg-config ''
    stub id 'echo 1000'
    stub sudo 'echo "sudo: a password is required" >&2; exit 1'
    run script 'needs_build; install_packages'
    [ "$status" -eq 1 ]
    [ "$output" = "script.sh: missing: libev's headers. Install them with: sudo apt-get install libev-dev" ]
    [ ! -e "$APT_LOG" ]
}

@test "not root with sudo: apt runs through it" {
    without_libev
    stub pkg-config ''
    stub id 'echo 1000'
    stub sudo 'echo "sudo $*" >>"$APT_LOG"; [ "$1" = -n ] && shift; exec "$@"'
    run script 'needs_build; install_packages'
    [ "$status" -eq 0 ]
    grep -q "^sudo -n env DEBIAN_FRONTEND=noninteractive .* install --no-install-recommends libev-dev" "$APT_LOG"
}

@test "apt fails: its last lines and one that says what failed" {
    [ "$(id -u)" -eq 0 ] || stub sudo 'shift; exec "$@"'
    without_libev
    stub pkg-config ''
    stub apt-get 'echo "E: no network" >&2; exit 100'
    run script 'needs_build; install_packages'
    [ "$status" -eq 1 ]
    [[ $output == *"E: no network"* ]]
    [ "${lines[-1]}" = "script.sh: apt-get update failed, see above" ]
}

@test "the virtual environment is kept, and made anew when its Python changed" {
    run script make_venv
    [ "$status" -eq 0 ]
    [[ $output == *"Making the virtual environment"* ]]
    touch "$TREE/.venv/kept"
    run script make_venv
    [ "$status" -eq 0 ]
    [ "$output" = "" ]
    [ -e "$TREE/.venv/kept" ]
    echo "another Python" >"$TREE/.venv/peerage-python"
    run script make_venv
    [ "$status" -eq 0 ]
    [[ $output == *"Making the virtual environment"* ]]
    [ ! -e "$TREE/.venv/kept" ]
}

@test "builds only where something changed" {
    mkdir -p "$TREE/.venv/bin"
    export PIP_LOG=$BATS_TEST_TMPDIR/pip.log
    printf '#!/bin/sh\n[ "$2" != pip ] || echo "$*" >>"$PIP_LOG"\n' >"$TREE/.venv/bin/python"
    chmod +x "$TREE/.venv/bin/python"
    script 'install_peerage demo'
    first=$(wc -l <"$PIP_LOG")
    [ "$first" -eq 2 ]
    script 'install_peerage demo'
    [ "$(wc -l <"$PIP_LOG")" -eq "$first" ]
    # a source: built again, nothing fetched
    echo "int y;" >"$TREE/native/core/x.c"
    script 'install_peerage demo'
    [ "$(wc -l <"$PIP_LOG")" -eq $((first + 1)) ]
    tail -n 1 "$PIP_LOG" | grep -q -- --no-deps
    # something made by a build is no source
    mkdir -p "$TREE/native/build"
    echo "int z;" >"$TREE/native/build/z.c"
    script 'install_peerage demo'
    [ "$(wc -l <"$PIP_LOG")" -eq $((first + 1)) ]
    # the packages it needs
    echo "# more" >>"$TREE/pyproject.toml"
    script 'install_peerage demo'
    [ "$(wc -l <"$PIP_LOG")" -eq $((first + 3)) ]
}

ended()
{
    local i
    for ((i = 0; i < 50; i++)); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.1
    done
    return 1
}

@test "a signal ends what was started, and what that started" {
    for signal in TERM INT HUP; do
        rm -f "$BATS_TEST_TMPDIR/pids"
        # with job control, as from a terminal: a shell starts background jobs deaf to INT
        set -m
        script "run bash -c 'sleep 300 & echo \$\$ \$! >\"$BATS_TEST_TMPDIR/pids\"; wait'" 3>&- >/dev/null 2>&1 &
        set +m
        for ((i = 0; i < 50; i++)); do
            [ ! -s "$BATS_TEST_TMPDIR/pids" ] || break
            sleep 0.1
        done
        read -r child grandchild <"$BATS_TEST_TMPDIR/pids"
        kill -0 "$child" && kill -0 "$grandchild"
        kill -"$signal" "$(awk '{ print $4 }' "/proc/$child/stat")"
        ended "$child"
        ended "$grandchild"
    done
}

@test "what is left running by a command that ended is ended too" {
    script "run bash -c 'sleep 300 & echo \$! >\"$BATS_TEST_TMPDIR/pid\"'"
    ended "$(cat "$BATS_TEST_TMPDIR/pid")"
}

@test "run passes the status on" {
    run script 'status=0; run bash -c "exit 7" || status=$?; echo "status $status"'
    [ "$output" = "status 7" ]
}
