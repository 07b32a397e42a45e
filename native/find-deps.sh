#!/bin/sh
# Finds the libraries peerage stands on and prints them as make variables.
#
#   find-deps.sh CC      DEPS_CFLAGS, DEPS_LIBS, REDIS and REDIS_TLS (1 or empty) on stdout,
#                        or status 1 and one line on stderr that names what is
#                        missing together with its Debian package.
#
# pkg-config is asked first, where the library ships a .pc file. Else, or without
# pkg-config, a program that includes the header and calls into the library is
# compiled and linked: the only test that libev, which has no .pc, leaves, and one
# that no package database can answer better.
set -eu

cc=${1:-cc}
work=$(mktemp -d "${TMPDIR:-/tmp}/peerage-deps.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

cflags=
libs=
redis=
redis_tls=
missing=

# links LIBS HEADER CALL: does a program with this header and call compile and link?
links()
{
    printf '#include <stddef.h>\n#include %s\nint main(void)\n{\n    %s;\n    return 0;\n}\n' \
        "$2" "$3" >"$work/try.c"
    # CC, CFLAGS and LDFLAGS are lists of words, as everywhere in make
    # shellcheck disable=SC2086
    $cc ${CPPFLAGS:-} ${CFLAGS:-} "$work/try.c" -o "$work/try" ${LDFLAGS:-} $1 >/dev/null 2>&1
}

# find PC VERSION LIBS HEADER CALL: adds to cflags and libs; status 1 when absent
find()
{
    if [ -n "$1" ] && command -v pkg-config >/dev/null 2>&1 &&
        pkg-config --exists "$1${2:+ >= $2}" 2>/dev/null; then
        cflags="$cflags $(pkg-config --cflags "$1")"
        libs="$libs $(pkg-config --libs "$1")"
    elif links "$3" "$4" "$5"; then
        libs="$libs $3"
    else
        return 1
    fi
}

need()      # NAME DEBIAN_PACKAGE, then what find takes
{
    name=$1 package=$2
    shift 2
    find "$@" || missing="$missing${missing:+, }$name (Debian package $package)"
}

if ! command -v "${cc%% *}" >/dev/null 2>&1; then
    missing="a C compiler, '$cc' (Debian package gcc)"
else
    need 'OpenSSL 3 or newer' libssl-dev libcrypto 3.0 -lcrypto '<openssl/evp.h>' \
        'EVP_MAC_free(EVP_MAC_fetch(NULL, "HMAC", NULL))'
    need libsodium libsodium-dev libsodium '' -lsodium '<sodium.h>' 'return sodium_init() < 0'
    need libev libev-dev '' '' -lev '<ev.h>' 'return ev_loop_new(EVFLAG_AUTO) == NULL'
    if find hiredis '' -lhiredis '<hiredis/hiredis.h>' 'redisFree(NULL)'; then
        redis=1
        # its TLS part came with 1.0, and stands on OpenSSL's
        if find hiredis_ssl '' -lhiredis_ssl '<hiredis/hiredis_ssl.h>' 'redisInitOpenSSL()' &&
            find libssl 3.0 -lssl '<openssl/ssl.h>' 'SSL_CTX_free(NULL)'; then
            redis_tls=1
        fi
    fi
fi

if [ -n "$missing" ]; then
    echo "peerage: missing $missing" >&2
    exit 1
fi
printf 'DEPS_CFLAGS := %s\nDEPS_LIBS := %s\nREDIS := %s\nREDIS_TLS := %s\n' "$cflags" "$libs" "$redis" "$redis_tls"
