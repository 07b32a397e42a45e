# shellcheck shell=bash
# Servers made of network namespaces, for the bats files of this folder. To be loaded.
# make_lan puts any number on one switch; make_net makes three:
#
#   server -- inside    10.77.0.1 and .2     in the tests' PEER_CIDR, 10.77.0.0/24
#          -- outside   192.0.2.1 and .2     not in it
#
# The names carry this process' id: two runs on one machine don't meet.

ROOT=$(cd "${BATS_TEST_DIRNAME}/../.." && pwd)
export ROOT
# bats before 1.4 has none
: "${BATS_TEST_TMPDIR:=$(mktemp -d "${BATS_TMPDIR:-/tmp}/peerage-bats.XXXXXX")}"
PATH=$PATH:/usr/sbin:/sbin
SERVER=prg$$s
INSIDE=prg$$i
OUTSIDE=prg$$o
NAMESPACES=()

# namespace NAME...
namespace()
{
    local name
    for name in "$@"; do
        ip netns add "$name"
        NAMESPACES+=("$name")
        ip -n "$name" link set lo up
    done
}

need_root_and()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root for network namespaces"
    local command
    for command in ip "$@"; do
        command -v "$command" >/dev/null || skip "needs $command"
    done
    # some containers and chroots have a root that may not
    { ip netns add "prg$$x" && ip netns exec "prg$$x" true; } 2>/dev/null ||
        { ip netns delete "prg$$x" 2>/dev/null; skip "network namespaces cannot be made here"; }
    ip netns delete "prg$$x"
}

# refute COMMAND...: bats does not notice a `!` in the middle of a test
refute()
{
    if "$@"; then
        return 1
    fi
}

# connect A ADDRESS B ADDRESS: a cable between two namespaces
connect()
{
    local device=veth0
    ! ip -n "$1" link show veth0 >/dev/null 2>&1 || device=veth1
    ip link add "$device" netns "$1" type veth peer name veth0 netns "$3"
    ip -n "$1" address add "$2" dev "$device"
    ip -n "$3" address add "$4" dev veth0
    ip -n "$1" link set "$device" up
    ip -n "$3" link set veth0 up
}

make_net()
{
    namespace "$SERVER" "$INSIDE" "$OUTSIDE"
    connect "$SERVER" 10.77.0.1/24 "$INSIDE" 10.77.0.2/24
    connect "$SERVER" 192.0.2.1/24 "$OUTSIDE" 192.0.2.2/24
}

# make_lan NAME...: on one switch, 10.77.0.1 and so on, with a default route to nobody
make_lan()
{
    local switch=prg$$w name number=0
    namespace "$switch" "$@"
    ip -n "$switch" link add lan type bridge
    ip -n "$switch" link set lan up
    for name in "$@"; do
        number=$((number + 1))
        ip link add "port$number" netns "$switch" type veth peer name veth0 netns "$name"
        ip -n "$switch" link set "port$number" master lan up
        ip -n "$name" address add "10.77.0.$number/24" dev veth0
        ip -n "$name" link set veth0 up
        ip -n "$name" route add default via 10.77.0.254
    done
}

drop_net()
{
    local name process
    for name in ${NAMESPACES[@]+"${NAMESPACES[@]}"}; do
        # the processes in our own namespaces are ours
        for process in $(ip netns pids "$name" 2>/dev/null); do
            kill -KILL "$process" 2>/dev/null || true
        done
        ip netns delete "$name" 2>/dev/null || true
    done
    NAMESPACES=()
}

# listen PORT...: answers on them in the server, UDP and TCP, on every address
listen()
{
    ip netns exec "$SERVER" python3 "$BATS_TEST_DIRNAME/echo.py" "$@" 3>&- >"$BATS_TEST_TMPDIR/echo" &
    disown
    local i
    for ((i = 0; i < 100; i++)); do
        ! grep -q ready "$BATS_TEST_TMPDIR/echo" || return 0
        sleep 0.05
    done
    return 1
}

# probe FROM ADDRESS PORT...: one line for each, "udp 7946 open"
probe()
{
    ip netns exec "$1" python3 "$BATS_TEST_DIRNAME/echo.py" --probe "${@:2}"
}
