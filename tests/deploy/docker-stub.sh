#!/bin/sh
# Stands in for the container engine in the tests of remote-deploy.sh: keeps what "runs" in
# $HOME/engine, and a container is a process that gives the health answer its image stands
# for. good: healthy with as many members as STUB_MEMBERS; sick: 503; lonely: one member;
# broken: the engine fails; missing: not to be had.
set -eu
state=$HOME/engine
mkdir -p "$state"
echo "$*" >>"$state/log"

down()
{
    if [ -s "$state/pid" ]; then
        kill "$(cat "$state/pid")" 2>/dev/null || true
        rm -f "$state/pid"
        echo "ended" >>"$state/log"
    fi
}

case "$*" in
version | "compose version" | "image inspect local:"*) ;;
"image inspect "*) exit 1 ;;
"pull "*missing*) echo "manifest unknown" >&2 && exit 1 ;;
"pull "* | "load "*) ;;
"ps -q "*) if [ -s "$state/pid" ] && kill -0 "$(cat "$state/pid")" 2>/dev/null; then echo 0123abcd; fi ;;
"compose -p peerage -f compose.prod.yaml up -d --remove-orphans")
    down
    image=$(sed -n 's/^IMAGE=//p' .env)
    port=$(sed -n 's/^WEB_PORT=//p' .env)
    case $image in
    *broken*) echo "the engine cannot start it" >&2 && exit 1 ;;
    *sick*) set -- 503 0 ;;
    *lonely*) set -- 200 1 ;;
    *) set -- 200 "$(cat "$HOME/members" 2>/dev/null || echo 99)" ;;
    esac
    setsid python3 "$(dirname "$(readlink -f "$0")")/health.py" "$port" "$@" </dev/null >/dev/null 2>&1 &
    echo $! >"$state/pid"
    echo "runs $image" >>"$state/log"
    ;;
"compose -p peerage -f compose.prod.yaml down") down ;;
*) echo "the stub does not know: docker $*" >&2 && exit 1 ;;
esac
