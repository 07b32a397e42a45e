#!/usr/bin/env bash
# The half of remote-deploy.sh that runs on the server; it is sent there by ssh and is of
# no use by hand. Words on standard output are for remote-deploy.sh: "name=value" facts;
# people's words go to standard error. The settings of a release are in its .env.
#
#   on-server.sh facts FOLDER ENGINE WEB_PORT PEER_PORT PEER_PORT_LAST|-
#   on-server.sh replace FOLDER ENGINE SECONDS MEMBERS
#
# FOLDER holds three releases: next/ was just sent, current/ runs, previous/ ran before.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

command=$1
folder=$2
engine=$3
shift 3

fail()
{
    echo "$*" >&2
    exit 1
}

# setting NAME RELEASE [DEFAULT]: out of a release's .env
setting()
{
    local value
    value=$(sed -n "s/^$1=//p" "$folder/$2/.env" 2>/dev/null) || value=
    printf '%s' "${value:-${3:-}}"
}

# ---- engines: engine_check, engine_running, engine_up RELEASE, engine_down RELEASE

compose_command()
{
    if docker compose version >/dev/null 2>&1; then
        echo docker compose
    elif command -v docker-compose >/dev/null 2>&1; then
        echo docker-compose
    else
        return 1
    fi
}

# in_compose RELEASE ARGUMENTS...
in_compose()
{
    local release=$1 compose
    shift
    read -ra compose <<<"$(compose_command)"
    # the variables of the release and of nothing else
    (cd "$folder/$release" && env -i HOME="${HOME:-/root}" PATH="$PATH" \
        ${DOCKER_HOST:+DOCKER_HOST="$DOCKER_HOST"} \
        "${compose[@]}" -p peerage -f compose.prod.yaml "$@" >&2)
}

compose_check()
{
    command -v docker >/dev/null || fail "docker is not installed; run deploy/bootstrap-server.sh there"
    docker version >/dev/null 2>&1 || fail "docker does not answer; is it running, and may $(id -un) use it?"
    compose_command >/dev/null || fail "docker compose is not installed; run deploy/bootstrap-server.sh there"
}

compose_running()
{
    [ -n "$(docker ps -q --filter label=com.docker.compose.project=peerage 2>/dev/null)" ]
}

compose_prepare()
{
    if [ -f "$folder/next/image.tar" ]; then
        docker load -q -i "$folder/next/image.tar" >&2
        rm -f "$folder/next/image.tar"
    elif ! docker image inspect "$(setting IMAGE next)" >/dev/null 2>&1 || [ "$(setting PULL next)" = true ]; then
        docker pull -q "$(setting IMAGE next)" >&2
    fi
}

# A container whose configuration changed is told to end (it drains, see
# stop_grace_period), and then replaced.
compose_up() { in_compose "$1" up -d --remove-orphans; }
compose_down() { in_compose "$1" down; }

# Without containers: gunicorn as a daemon, for servers that have neither Docker nor
# systemd, and for trying things out.
process_python() { setting PYTHON "$1" "$folder/venv/bin/python"; }

process_check()
{
    command -v python3 >/dev/null || fail "python3 is not installed"
}

process_running()
{
    [ -s "$folder/gunicorn.pid" ] && kill -0 "$(cat "$folder/gunicorn.pid")" 2>/dev/null
}

process_prepare()
{
    local wheel=("$folder"/next/*.whl)
    [ -e "${wheel[0]}" ] || return 0
    python3 -m venv "$folder/next/venv" >&2
    "$folder/next/venv/bin/pip" install -q "${wheel[0]}[demo,prometheus,server]" >&2
    echo "PYTHON=$folder/current/venv/bin/python" >>"$folder/next/.env"
}

process_up()
{
    local python
    process_down
    python=$(process_python "$1")
    # the variables of the release and of nothing else
    (
        cd "$folder/$1"
        mapfile -t settings < <(grep -hvE '^(#|$)' app.env .env)
        env -i HOME="${HOME:-/root}" PATH="$PATH" "${settings[@]}" \
            "$python" -m gunicorn -c gunicorn.conf.py --daemon \
            --pid "$folder/gunicorn.pid" --error-logfile "$folder/gunicorn.log" --capture-output >&2
    )
}

process_down()
{
    local pid i
    process_running || return 0
    pid=$(cat "$folder/gunicorn.pid")
    kill -TERM "$pid"
    for ((i = 0; i < 300; i++)); do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
}

# ---- facts, asked before anything is changed

# The private address: what the kernel would send from by the default route. Nothing is sent.
own_address()
{
    ip -4 route get 1.1.1.1 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p' | head -n 1
}

# listening: one line "port" for each that somebody listens on, UDP and TCP
listening()
{
    ss -Hlntu | awk '{ n = split($5, part, ":"); print part[n] }' | sort -un
}

facts()
{
    local web_port=$1 first=$2 last=$3 address wanted=() ours=() port
    "${engine}_check"
    address=$(own_address)
    [ -n "$address" ] || fail "no default route, so no address to tell the other servers"
    echo "address=$address"

    wanted=("$web_port")
    if [ "$last" != - ]; then
        mapfile -t -O 1 wanted < <(seq "$first" "$last")
    fi
    if [ -f "$folder/current/.env" ] && "${engine}_running"; then
        # ports that the release before uses are free as soon as it goes
        ours=("$(setting WEB_PORT current 8000)")
        if [ "$(setting ENABLE_PEERS current)" = true ]; then
            mapfile -t -O 1 ours < <(seq "$(setting PEER_PORT current 7946)" "$(setting PEER_PORT_LAST current 7950)")
            echo "members=$(setting WEB_CONCURRENCY current 4)"
        fi
    fi
    for port in "${wanted[@]}"; do
        if ! printf '%s\n' ${ours[@]+"${ours[@]}"} | grep -qx "$port" && listening | grep -qx "$port"; then
            fail "port $port is taken by another program"
        fi
    done
}

# ---- replacing

# health RELEASE: the body of the health answer; status 1 while there is none
health()
{
    local address port path answer
    address=$(setting WEB_BIND "$1" 0.0.0.0)
    [ "$address" != 0.0.0.0 ] || address=127.0.0.1
    port=$(setting WEB_PORT "$1" 8000)
    path=$(setting HEALTH_PATH "$1" /readyz)
    # bash's own TCP: nothing has to be installed for it
    # shellcheck disable=SC2016
    answer=$(timeout 3 bash -c '
        exec 3<>"/dev/tcp/$1/$2"
        printf "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n" "$3" "$1" >&3
        cat <&3' - "$address" "$port" "$path" 2>/dev/null) || return 1
    [[ $answer == HTTP/1.?" "200* ]] || return 1
    printf '%s' "$answer"
}

# wait_healthy RELEASE SECONDS MEMBERS: healthy, and a member among that many. An
# application whose health answer has no number of members is taken at its word.
wait_healthy()
{
    local release=$1 deadline=$((SECONDS + $2)) members=$3 answer seen=none
    while [ $SECONDS -lt $deadline ]; do
        if answer=$(health "$release"); then
            seen=
            if [[ $answer =~ \"members\":\ *([0-9]+) ]]; then
                seen=${BASH_REMATCH[1]}
            fi
            [ -n "$seen" ] && [ "$members" -gt 0 ] && [ "$seen" -lt "$members" ] || return 0
        fi
        sleep 0.5
    done
    case $seen in
    none) echo "no healthy answer from port $(setting WEB_PORT "$release" 8000) within $2 s" >&2 ;;
    *) echo "it answers, but sees $seen members instead of $members after $2 s" >&2 ;;
    esac
    return 1
}

replace()
{
    local seconds=$1 members=$2
    [ -d "$folder/next" ] || fail "no release was sent"
    "${engine}_prepare" || {
        rm -rf "$folder/next"
        fail "the release could not be prepared; the one that runs was left alone"
    }
    # without a current one, a run before this one was cut short: its previous one counts
    if [ -d "$folder/current" ]; then
        rm -rf "$folder/previous"
        mv "$folder/current" "$folder/previous"
    fi
    mv "$folder/next" "$folder/current"
    if "${engine}_up" current && wait_healthy current "$seconds" "$members"; then
        echo "result=healthy"
        return
    fi
    if [ -d "$folder/previous" ]; then
        echo "going back to the release before" >&2
        mv "$folder/current" "$folder/failed.$$"
        mv "$folder/previous" "$folder/current"
        if "${engine}_up" current && wait_healthy current "$seconds" 0; then
            rm -rf "$folder/failed.$$"
            echo "result=rolled-back"
        else
            rm -rf "$folder/failed.$$"
            echo "result=down"
        fi
    else
        "${engine}_down" current || true
        rm -rf "$folder/current"
        echo "result=stopped"
    fi
}

case $engine in compose | process) ;; *) fail "unknown engine $engine" ;; esac
# This script comes in by standard input: nothing it runs may read from there.
case $command in
facts) facts "$@" ;;
replace) replace "$@" ;;
*) fail "unknown command $command" ;;
esac </dev/null
