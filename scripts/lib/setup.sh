# shellcheck shell=bash
# Shared by demo.sh and test.sh: from a bare checkout to a virtual environment with
# peerage built into it. To be sourced.
#
# A need is tested by doing what needs it: compile against the header, import the
# module, call the program. Package databases are not asked, because they don't know
# about a Python or a library somebody installed in another way. Only for what failed
# does apt run. pip never runs outside the virtual environment.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-python3}
VENV=$ROOT/.venv
LOGS=$ROOT/build/logs
JOBS=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
[ "$JOBS" -le 8 ] || JOBS=8

STARTED=$SECONDS
say()
{
    printf '[%3d s] %s\n' $((SECONDS - STARTED)) "$*"
}

die()
{
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Whatever runs longer runs in the background, in a process group of its own, and is
# waited for: signals interrupt the wait at once, and the traps end the whole group.
CHILD=
TICKER=

# run COMMAND...: with its output here
run()
{
    local status=0
    start "$@"
    wait "$CHILD" || status=$?
    end_started
    return $status
}

# quietly LOG COMMAND...: the output goes to a file and is shown only when it failed;
# meanwhile a line every 15 s says that it goes on.
quietly()
{
    local log=$LOGS/$1 status=0
    shift
    mkdir -p "$LOGS"
    start "$@" >"$log" 2>&1 </dev/null
    set -m
    (while sleep 15; do say "  still at it, see ${log#"$ROOT"/}"; done) 9>&- &
    TICKER=$!
    set +m
    wait "$CHILD" || status=$?
    end_started
    [ $status -eq 0 ] || tail -n 40 "$log" >&2
    return $status
}

start()
{
    set -m
    # not the lock of lock_setup: a daemon that apt starts would hold it for ever
    "$@" 9>&- &
    CHILD=$!
    set +m
}

end_started()
{
    local group=$CHILD ticker=$TICKER i
    CHILD=
    TICKER=
    [ -z "$ticker" ] || kill -TERM -- "-$ticker" 2>/dev/null || true
    [ -n "$group" ] || return 0
    kill -TERM -- "-$group" 2>/dev/null || return 0
    for ((i = 0; i < 100; i++)); do
        kill -0 -- "-$group" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL -- "-$group" 2>/dev/null || true
}

trap end_started EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# What is needed and not there: Debian packages, and the words for people.
PACKAGES=()
MISSING=()

# need NAME PACKAGES TEST...: notes the packages if the test fails.
need()
{
    local name=$1 packages=$2
    shift 2
    "$@" >/dev/null 2>&1 && return
    MISSING+=("$name")
    # a list of names
    # shellcheck disable=SC2206
    PACKAGES+=($packages)
}

# compiles COMPILER FLAGS < source
compiles()
{
    local program status=0
    program=$(mktemp "${TMPDIR:-/tmp}/peerage-need.XXXXXX")
    # a list of words
    # shellcheck disable=SC2086
    "$1" -x c - -o "$program" $2 || status=1
    rm -f "$program"
    return $status
}

has_command()
{
    local name
    for name in "$@"; do
        # sbin is not in everybody's PATH
        PATH=$PATH:/usr/sbin:/sbin command -v "$name" || return 1
    done
}

has_compiler() { compiles cc "" <<<$'#include <stdio.h>\nint main(void) { return puts("") < 0; }'; }
has_pkg_config() { pkg-config --version; }
has_openssl() { compiles cc -lcrypto <<<$'#include <openssl/evp.h>\nint main(void) { EVP_MAC_free(0); return 0; }'; }
has_sodium() { compiles cc -lsodium <<<$'#include <sodium.h>\nint main(void) { return sodium_init(); }'; }
has_ev() { compiles cc -lev <<<$'#include <ev.h>\nint main(void) { return !ev_loop_new(0); }'; }
has_hiredis() { compiles cc -lhiredis <<<$'#include <hiredis/hiredis.h>\nint main(void) { redisFree(0); return 0; }'; }
has_cmocka()
{
    compiles cc -lcmocka <<<$'#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>
#include <setjmp.h>\n#include <cmocka.h>\nint main(void) { cmocka_set_message_output(0); return 0; }'
}
has_compose() { docker compose version || docker-compose version; }
has_sanitizers() { compiles cc "-fsanitize=address,undefined" <<<'int main(void) { return 0; }'; }
has_fuzzer()
{
    compiles clang "-fsanitize=fuzzer,address,undefined" <<<$'#include <stdint.h>\n#include <stddef.h>
int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n) { return n && d[0] > 255; }'
}
has_faketime() { [ -n "$(compgen -G '/usr/lib/*/faketime/libfaketime.so.1')" ]; }
has_python() { "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; }
has_ensurepip() { "$PYTHON" -c 'import ensurepip, venv'; }
has_python_h()
{
    local include
    include=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))') &&
        compiles cc "-I$include -c" <<<$'#include <Python.h>\nint unused;'
}

needs_build()
{
    need "a C compiler" "gcc libc6-dev" has_compiler
    need make make has_command make
    need pkg-config pkg-config has_pkg_config
    need "OpenSSL's headers" libssl-dev has_openssl
    need "libsodium's headers" libsodium-dev has_sodium
    need "libev's headers" libev-dev has_ev
    need "hiredis' headers" libhiredis-dev has_hiredis

    need "Python 3.10 or newer" python3 has_python
    # A Python of its own version has packages of its own version's name.
    local prefix=python3 version
    version=$("$PYTHON" -c 'import sys; print("python%d.%d" % sys.version_info[:2])' 2>/dev/null) || version=
    if [ -n "$version" ] && [ -e /usr/bin/python3 ] &&
        [ "$(readlink -f /usr/bin/python3)" != "$(readlink -f "/usr/bin/$version")" ]; then
        prefix=$version
    fi
    need "Python's venv" "$prefix-venv" has_ensurepip
    need "Python's headers" "$prefix-dev" has_python_h
}

needs_test()
{
    need cmocka libcmocka-dev has_cmocka
    need "the compiler's sanitizers" "gcc libc6-dev" has_sanitizers
    need "clang with libFuzzer" "clang libclang-rt-dev" has_fuzzer
    need redis-server redis-server has_command redis-server
    need "ip (network namespaces)" iproute2 has_command ip
    need nft nftables has_command nft
    need iptables iptables has_command iptables iptables-restore
    need docker-compose docker-compose has_compose
    need bats bats has_command bats
    need shellcheck shellcheck has_command shellcheck
    need sshd "openssh-server openssh-client" has_command sshd ssh
    need openssl openssl has_command openssl
    need "libfaketime (a wrong clock)" libfaketime has_faketime
}

# apt as root, without questions; waits for another apt that runs.
apt()
{
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a \
        apt-get -y -q -o DPkg::Lock::Timeout=300 "$@"
}

# Installs what needs_... noted; afterwards nothing is missing, or the script has ended.
install_packages()
{
    [ ${#PACKAGES[@]} -gt 0 ] || return 0
    local packages names
    packages=$(printf '%s\n' "${PACKAGES[@]}" | sort -u | tr '\n' ' ')
    names=$(printf ', %s' "${MISSING[@]}")
    names=${names:2}
    has_command apt-get >/dev/null ||
        die "missing: $names. They are in Debian's packages ${packages% }"
    [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null ||
        die "missing: $names. Install them with: sudo apt-get install ${packages% }"
    say "Installing what is missing ($names): apt-get install ${packages% }"
    quietly apt-update.log apt update || die "apt-get update failed, see above"
    # shellcheck disable=SC2086
    quietly apt-install.log apt install --no-install-recommends $packages ||
        die "apt-get install failed, see above"
}

python_identity()
{
    "$PYTHON" -c 'import sys, sysconfig; print(sys.version, sys.base_prefix, sysconfig.get_config_var("SOABI"))'
}

# One set-up at a time in a checkout: demo.sh and test.sh may be started together.
lock_setup()
{
    mkdir -p "$ROOT/build"
    exec 9>"$ROOT/build/setup.lock"
    flock -n 9 || {
        say "Waiting for another set-up in this checkout"
        flock 9
    }
}

unlock_setup()
{
    exec 9>&-
}

make_venv()
{
    local identity
    identity=$(python_identity)
    if [ -x "$VENV/bin/python" ] && [ "$(cat "$VENV/peerage-python" 2>/dev/null)" = "$identity" ] &&
        "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
        return
    fi
    say "Making the virtual environment .venv with $("$PYTHON" --version)"
    rm -rf "$VENV"
    quietly venv.log "$PYTHON" -m venv "$VENV" || die "could not make $VENV, see above"
    printf '%s\n' "$identity" >"$VENV/peerage-python"
}

# hash of all that a build depends on, one line
sources_hash()
{
    (cd "$ROOT" && {
        python_identity
        cat pyproject.toml setup.py
        find native -path native/build -prune -o -type f \
            \( -name '*.[ch]' -o -name Makefile -o -name '*.map' -o -name '*.sh' \) -print0 |
            sort -z | xargs -0 cat
    } | sha256sum)
}

# install_peerage EXTRAS: an editable install with these extras, only if something changed.
install_peerage()
{
    local extras=$1 wanted hash
    wanted="$extras $(sha256sum <"$ROOT/pyproject.toml")"
    hash=$(sources_hash)
    if [ "$(cat "$VENV/peerage-extras-$extras" 2>/dev/null)" != "$wanted" ]; then
        say "Installing Python packages into .venv (extras: $extras)"
        # Building without isolation needs setuptools here, and is what lets objects be kept.
        quietly pip-tools.log "$VENV/bin/python" -m pip install --disable-pip-version-check -U \
            "setuptools>=77" wheel || die "pip could not install setuptools, see above"
        pip_install "[$extras]"
        printf '%s\n' "$wanted" >"$VENV/peerage-extras-$extras"
        printf '%s\n' "$hash" >"$VENV/peerage-sources"
    elif [ "$(cat "$VENV/peerage-sources" 2>/dev/null)" != "$hash" ] ||
        ! "$VENV/bin/python" -c 'import peerage._native' 2>/dev/null; then
        say "Building peerage: its sources changed"
        pip_install ""
        printf '%s\n' "$hash" >"$VENV/peerage-sources"
    fi
}

pip_install()
{
    local options=()
    [ -n "$1" ] || options=(--no-deps)
    PEERAGE_BUILD=$ROOT/native/build/python PEERAGE_WERROR=${PEERAGE_WERROR:-} \
        quietly pip-peerage.log "$VENV/bin/python" -m pip install --disable-pip-version-check \
        --no-build-isolation "${options[@]}" -e "$ROOT$1" || die "peerage could not be built, see above"
}
