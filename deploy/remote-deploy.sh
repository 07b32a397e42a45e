#!/usr/bin/env bash
# Puts a release on one server after the other, over ssh: checks everything first, then on
# each server replaces the running release (which drains), waits until the new one is
# healthy and a member of the cluster again, and goes back to the old one if it is not.
# The first failure ends the roll: the servers behind it keep what they have.
#
#   IMAGE=registry/app:tag ENABLE_PEERS=true PEER_SECRET=... deploy/remote-deploy.sh HOST...
#
#     --engine compose|process   containers (the default), or gunicorn without any
#     --send-image               send the local image over ssh instead of pulling it there
#     --env-file FILE            the application's own settings, NAME=value lines
#     --wheel FILE               process: install this wheel into a new environment
#     --dry-run                  check everything, change nothing
#
# HOST as ssh takes it; ~/.ssh/config and SSH_OPTIONS say the rest. Settings, from the
# environment:
#   IMAGE                  compose: the image
#   APPLICATION            module:app, if it is not the demo
#   WEB_PORT               8000, published on WEB_BIND (0.0.0.0)
#   WEB_CONCURRENCY        4 workers on each server
#   ENABLE_PEERS           false; with true:
#   PEER_SECRET            64 hex characters, or two such: new,old. Never printed
#   PEERS                  default: the servers of this command line
#   PEER_PORT              7946; each server uses one per worker and one more
#   PEER_ALLOW_CIDR        default: private networks
#   PEER_ENCRYPTION, PEER_LABEL, PEER_CACHE_BYTES, REDIS_URL, DEMO_UPSTREAM
#   REMOTE_DIR             peerage, in the home there
#   REMOTE_PYTHON          process, without --wheel: a Python there that has all installed
#   HEALTH_PATH            /readyz
#   HEALTH_SECONDS         60
#
# PEER_BIND and PEER_ADVERTISE_ADDR become each server's private address: the source
# address of its default route.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

die()
{
    echo "remote-deploy.sh: $*" >&2
    exit 1
}

# ---- input

engine=compose
send_image=
wheel=
env_file=
dry_run=
hosts=()
while [ $# -gt 0 ]; do
    case $1 in
    --engine) engine=${2:-} && shift ;;
    --send-image) send_image=yes ;;
    --wheel) wheel=${2:-} && shift ;;
    --env-file) env_file=${2:-} && shift ;;
    --dry-run) dry_run=yes ;;
    -h | --help) sed -n '2,/^set -e/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;;
    -*) die "unknown option '$1', see --help" ;;
    *) hosts+=("$1") ;;
    esac
    shift
done

number()        # NAME VALUE LOW HIGH
{
    [[ $2 =~ ^[0-9]{1,6}$ && $2 -ge $3 && $2 -le $4 ]] || die "$1 got '$2', takes a number from $3 to $4"
}

truth()         # NAME VALUE
{
    case $2 in true | false) ;; *) die "$1 got '$2', takes true or false" ;; esac
}

IMAGE=${IMAGE:-}
APPLICATION=${APPLICATION:-}
WEB_BIND=${WEB_BIND:-0.0.0.0}
WEB_PORT=${WEB_PORT:-8000}
WEB_CONCURRENCY=${WEB_CONCURRENCY:-4}
ENABLE_PEERS=${ENABLE_PEERS:-false}
PEER_SECRET=${PEER_SECRET:-}
PEERS=${PEERS:-}
PEER_PORT=${PEER_PORT:-7946}
PEER_ALLOW_CIDR=${PEER_ALLOW_CIDR:-}
PEER_ENCRYPTION=${PEER_ENCRYPTION:-}
PEER_DOCKER_SUBNET=${PEER_DOCKER_SUBNET:-172.31.77.0/24}
REMOTE_DIR=${REMOTE_DIR:-peerage}
HEALTH_PATH=${HEALTH_PATH:-/readyz}
HEALTH_SECONDS=${HEALTH_SECONDS:-60}

[ ${#hosts[@]} -gt 0 ] || die "no host is named, see --help"
case $engine in compose | process) ;; *) die "--engine got '$engine', takes compose or process" ;; esac
[ "$engine" = process ] || [ -n "$IMAGE" ] || die "IMAGE is not set, takes the image to run"
[ -z "$wheel" ] || [ -f "$wheel" ] || die "--wheel got '$wheel', takes a file"
if [ -n "$env_file" ]; then
    [ -f "$env_file" ] || die "--env-file got '$env_file', takes a file"
    wrong=$(grep -nvE '^[A-Za-z_][A-Za-z0-9_]*=|^#|^$' "$env_file" | head -n 1 | cut -d: -f1) || true
    [ -z "$wrong" ] || die "--env-file: line $wrong of $env_file is not NAME=value"
fi
number WEB_PORT "$WEB_PORT" 1 65535
number WEB_CONCURRENCY "$WEB_CONCURRENCY" 1 256
number HEALTH_SECONDS "$HEALTH_SECONDS" 1 3600
number PEER_PORT "$PEER_PORT" 1 $((65535 - WEB_CONCURRENCY))
truth ENABLE_PEERS "$ENABLE_PEERS"
[ -z "$PEER_ENCRYPTION" ] || truth PEER_ENCRYPTION "$PEER_ENCRYPTION"
[[ $REMOTE_DIR =~ ^[A-Za-z0-9._/-]+$ ]] || die "REMOTE_DIR got '$REMOTE_DIR', takes a path of letters, digits, . _ - /"
if [ "$ENABLE_PEERS" = true ]; then
    [ -n "$PEER_SECRET" ] || die "PEER_SECRET is not set, takes 64 hex characters (openssl rand -hex 32)"
    [[ $PEER_SECRET =~ ^[0-9a-fA-F]{64}(,[0-9a-fA-F]{64})?$ ]] ||
        die "PEER_SECRET got ${#PEER_SECRET} characters, takes 64 hex characters, or two such with a comma between (it is not shown here)"
fi
port_count=$((WEB_CONCURRENCY + 1))
peer_last=$((PEER_PORT + WEB_CONCURRENCY))
if [ "$ENABLE_PEERS" = true ] && [ "$WEB_PORT" -ge "$PEER_PORT" ] && [ "$WEB_PORT" -le $peer_last ]; then
    die "WEB_PORT got $WEB_PORT, which is one of the peer ports $PEER_PORT to $peer_last"
fi

# The value of a setting becomes a line of an environment file as it is.
for name in IMAGE APPLICATION WEB_BIND PEERS PEER_ALLOW_CIDR PEER_LABEL PEER_CACHE_BYTES REDIS_URL DEMO_UPSTREAM HEALTH_PATH; do
    [[ ${!name:-} != *[$'\n\r\'"$`\\#']* ]] || die "$name has a character that cannot be passed on: quotes, \$, \`, \\, # or a line end"
done

# ---- the servers

# on HOST COMMAND: words of one command line for the shell there; standard input is passed
on()
{
    # SSH_OPTIONS is a list of words, as for ssh in make or git
    # shellcheck disable=SC2029,SC2086
    ssh -o BatchMode=yes -o ConnectTimeout=10 ${SSH_OPTIONS:-} -- "$1" "$2"
}

# server_script HOST ARGUMENT...: our other half, run there
server_script()
{
    local host=$1 words
    shift
    words=$(printf ' %q' "$@")
    on "$host" "bash -s --$words" <"$here/on-server.sh"
}

say() { echo "$*"; }
last_line() { tail -n 1 "$errors"; }

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# is this address of a private network? (the default of PEER_ALLOW_CIDR)
private()
{
    [[ $1 =~ ^(10\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.|127\.) ]]
}

declare -A address folder members
for host in "${hosts[@]}"; do
    [ -z "${address[$host]:-}" ] || die "$host is named twice"
    # shellcheck disable=SC2016
    home=$(on "$host" 'pwd' 2>"$errors" </dev/null) || die "$host: ssh failed: $(last_line)"
    folder[$host]=$REMOTE_DIR
    [[ $REMOTE_DIR == /* ]] || folder[$host]=$home/$REMOTE_DIR
    last=-
    [ "$ENABLE_PEERS" != true ] || last=$peer_last
    facts=$(server_script "$host" facts "${folder[$host]}" "$engine" "$WEB_PORT" "$PEER_PORT" "$last" 2>"$errors") ||
        die "$host: $(last_line)"
    address[$host]=$(sed -n 's/^address=//p' <<<"$facts")
    members[$host]=$(sed -n 's/^members=//p' <<<"$facts")
    if [ "$ENABLE_PEERS" = true ] && [ -z "$PEER_ALLOW_CIDR" ] && ! private "${address[$host]}"; then
        die "$host: its address ${address[$host]} is not private; PEER_ALLOW_CIDR has to name the servers' network"
    fi
    say "$host: ready, its address is ${address[$host]}"
done

if [ -z "$PEERS" ]; then
    for host in "${hosts[@]}"; do
        PEERS+=${PEERS:+,}${address[$host]}
    done
fi
if [ -n "$dry_run" ]; then
    say "Everything is in order; nothing was changed"
    exit 0
fi

# ---- the roll

line()          # NAME VALUE: left out when empty
{
    [ -z "$2" ] || printf '%s=%s\n' "$1" "$2"
}

# The release's settings. PEER_ALLOW_CIDR gets the network of the containers as well:
# packets of a server's workers to each other come through its gateway.
environment()
{
    local allow=$PEER_ALLOW_CIDR profile=
    [ -z "$allow" ] || [ "$engine" != compose ] || allow+=,$PEER_DOCKER_SUBNET
    [ -n "$APPLICATION" ] || [ -n "${DEMO_UPSTREAM:-}" ] || profile=demo
    line IMAGE "$IMAGE"
    line COMPOSE_PROFILES "$profile"
    line APPLICATION "$APPLICATION"
    line DEMO_UPSTREAM "${DEMO_UPSTREAM:-}"
    line WEB_BIND "$WEB_BIND"
    line WEB_PORT "$WEB_PORT"
    [ "$engine" != process ] || line WEB_LISTEN "$WEB_BIND:$WEB_PORT"
    line WEB_CONCURRENCY "$WEB_CONCURRENCY"
    line HEALTH_PATH "$HEALTH_PATH"
    line REDIS_URL "${REDIS_URL:-}"
    line PYTHON "${REMOTE_PYTHON:-}"
    [ -n "$send_image" ] || line PULL true
    line ENABLE_PEERS "$ENABLE_PEERS"
    [ "$ENABLE_PEERS" = true ] || return 0
    line PEER_SECRET "$PEER_SECRET"
    line PEERS "$PEERS"
    line PEER_PORT "$PEER_PORT"
    line PEER_PORT_RANGE "$port_count"
    line PEER_PORT_LAST "$peer_last"
    line PEER_BIND "${address[$1]}"
    line PEER_ADVERTISE_ADDR "${address[$1]}"
    line PEER_ALLOW_CIDR "$allow"
    line PEER_ENCRYPTION "$PEER_ENCRYPTION"
    line PEER_LABEL "${PEER_LABEL:-}"
    line PEER_CACHE_BYTES "${PEER_CACHE_BYTES:-}"
}

# send HOST: the release into next/, readable by its owner only
send()
{
    local next
    next=$(printf %q "${folder[$1]}/next")
    environment "$1" | on "$1" "umask 077 && rm -rf $next && mkdir -p $next && cat >$next/.env"
    { [ -z "$env_file" ] || cat "$env_file"; } | on "$1" "umask 077 && cat >$next/app.env"
    tar -C "$here" -cf - compose.prod.yaml gunicorn.conf.py | on "$1" "umask 077 && tar -C $next -xf -"
    [ -z "$wheel" ] || tar -C "$(dirname "$wheel")" -cf - "$(basename "$wheel")" | on "$1" "tar -C $next -xf -"
    [ -z "$send_image" ] || docker save "$IMAGE" | on "$1" "cat >$next/image.tar"
}

done_hosts=()
for host in "${hosts[@]}"; do
    rest="${#done_hosts[@]} of ${#hosts[@]} servers were replaced, the others keep what they have"
    # whom it must see: its own workers, and those of every server that runs the layer
    wanted=0
    if [ "$ENABLE_PEERS" = true ]; then
        members[$host]=$WEB_CONCURRENCY
        for other in "${hosts[@]}"; do
            wanted=$((wanted + ${members[$other]:-0}))
        done
    fi
    say "$host: sending the release"
    send "$host" 2>"$errors" || die "$host: the release could not be sent: $(last_line); $rest"
    say "$host: replacing what runs, waiting for health${members[$host]:+ and $wanted members}"
    outcome=$(server_script "$host" replace "${folder[$host]}" "$engine" "$HEALTH_SECONDS" "$wanted" 2>"$errors") || outcome=
    why=$(last_line)
    case $outcome in
    result=healthy)
        say "$host: healthy"
        done_hosts+=("$host")
        ;;
    result=rolled-back)
        why=$(grep -v '^going back' "$errors" | tail -n 1)
        die "$host: the new release is not healthy ($why); rolled back to the one before; $rest"
        ;;
    result=stopped) die "$host: the new release is not healthy ($why); stopped, there was none before; $rest" ;;
    result=down) die "$host: neither the new release nor the one before is healthy ($why); look there; $rest" ;;
    *) die "$host: the release could not be replaced: $why; $rest" ;;
    esac
done
say "All ${#hosts[@]} servers run the new release"
