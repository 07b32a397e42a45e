#!/usr/bin/env bats
# remote-deploy.sh against real sshds in network namespaces, with a stub for the container
# engine: success, failed health and the way back, and wrong input before any change.

load net
load servers

setup()
{
    need_root_and ssh sshd ssh-keygen unshare python3
    make_servers 2
    local number
    for number in 1 2; do
        ln -s "$BATS_TEST_DIRNAME/docker-stub.sh" "$(server_home $number)/bin/docker"
    done
    ONE=root@10.77.0.1
    TWO=root@10.77.0.2
    export IMAGE=registry.example/app:good-1 ENABLE_PEERS=true WEB_CONCURRENCY=4 HEALTH_SECONDS=2
    PEER_SECRET=$(printf '0123456789abcdef%.0s' 1 2 3 4)
    export PEER_SECRET
    unset PEERS PEER_PORT PEER_ALLOW_CIDR APPLICATION DEMO_UPSTREAM WEB_PORT
}

teardown()
{
    drop_net
}

env_of() { cat "$(server_home "$1")/peerage/current/.env"; }
engine_log() { cat "$(server_home "$1")/engine/log"; }
running() { engine_log "$1" | grep '^runs' | tail -n 1; }

nothing_changed()
{
    local number
    for number in 1 2; do
        [ ! -e "$(server_home $number)/peerage" ]
        refute grep -q -E 'up|pull|load' "$(server_home $number)/engine/log"
    done
}

@test "two servers: each gets its own address, the ports of its workers and one more" {
    run deploy "$ONE" "$TWO"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"All 2 servers run the new release"* ]]
    [ "$(running 1)" = "runs registry.example/app:good-1" ]
    [ "$(running 2)" = "runs registry.example/app:good-1" ]
    for wanted in PEER_BIND=10.77.0.1 PEER_ADVERTISE_ADDR=10.77.0.1 PEERS=10.77.0.1,10.77.0.2 \
        PEER_PORT=7946 PEER_PORT_LAST=7950 PEER_PORT_RANGE=5 WEB_CONCURRENCY=4 ENABLE_PEERS=true; do
        env_of 1 | grep -qx "$wanted"
    done
    env_of 2 | grep -qx PEER_BIND=10.77.0.2
    env_of 2 | grep -qx PEER_ADVERTISE_ADDR=10.77.0.2
}

@test "the secret: on the server for its owner only, never printed, in no command line" {
    run deploy "$ONE"
    [ "$status" -eq 0 ]
    [[ $output != *"$PEER_SECRET"* ]]
    env_of 1 | grep -qx "PEER_SECRET=$PEER_SECRET"
    [ "$(stat -c %a "$(server_home 1)/peerage/current/.env")" = 600 ]
    refute grep -q "$PEER_SECRET" "$(server_home 1)/engine/log"
    for wrong in "${PEER_SECRET}0" "${PEER_SECRET:1}" "${PEER_SECRET:1}x" "$PEER_SECRET," "$PEER_SECRET;$PEER_SECRET"; do
        run env PEER_SECRET="$wrong" "$ROOT/deploy/remote-deploy.sh" "$ONE"
        [ "$status" -eq 1 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ $output == *"PEER_SECRET got ${#wrong} characters, takes 64 hex"* ]]
        [[ $output != *"${wrong:0:20}"* ]]
    done
}

@test "two secrets, for a rotation, are taken" {
    PEER_SECRET=$PEER_SECRET,${PEER_SECRET//a/b} run deploy "$ONE"
    [ "$status" -eq 0 ]
    env_of 1 | grep -q "^PEER_SECRET=$PEER_SECRET,"
}

@test "without the layer no peer setting and no secret reaches the server" {
    ENABLE_PEERS=false run deploy "$ONE"
    [ "$status" -eq 0 ]
    env_of 1 | grep -qx ENABLE_PEERS=false
    refute grep -q PEER_ "$(server_home 1)/peerage/current/.env"
}

@test "a written CIDR list also admits the containers' own network" {
    PEER_ALLOW_CIDR=10.77.0.0/24 run deploy "$ONE"
    [ "$status" -eq 0 ]
    env_of 1 | grep -qx PEER_ALLOW_CIDR=10.77.0.0/24,172.31.77.0/24
}

@test "the application's own settings travel in a file of their own" {
    printf '# ours\nDATABASE_URL=postgres://db/x\n' >"$BATS_TEST_TMPDIR/own.env"
    run deploy --env-file "$BATS_TEST_TMPDIR/own.env" "$ONE"
    [ "$status" -eq 0 ]
    grep -qx 'DATABASE_URL=postgres://db/x' "$(server_home 1)/peerage/current/app.env"
    [ "$(stat -c %a "$(server_home 1)/peerage/current/app.env")" = 600 ]
    echo "no assignment" >>"$BATS_TEST_TMPDIR/own.env"
    run deploy --env-file "$BATS_TEST_TMPDIR/own.env" "$ONE"
    [ "$status" -eq 1 ]
    [[ $output == *"line 3 of "*" is not NAME=value" ]]
}

@test "failed health: back to the release before, and the next server is left alone" {
    deploy "$ONE" "$TWO"
    IMAGE=registry.example/app:sick-2 run deploy "$ONE" "$TWO"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $output == *"$ONE: the new release is not healthy (no healthy answer from port 8000 within 2 s); rolled back to the one before; 0 of 2 servers"* ]]
    [ "$(running 1)" = "runs registry.example/app:good-1" ]
    env_of 1 | grep -qx IMAGE=registry.example/app:good-1
    [ "$(operator python3 -c 'import urllib.request as u; print(u.urlopen("http://10.77.0.1:8000/readyz").status)')" = 200 ]
    [ "$(engine_log 2 | grep -c '^runs')" -eq 1 ]
}

@test "a release that is healthy and no member is not taken either" {
    deploy "$ONE" "$TWO"
    IMAGE=registry.example/app:lonely-2 run deploy "$ONE" "$TWO"
    [ "$status" -eq 1 ]
    [[ $output == *"sees 1 members instead of 8 after 2 s); rolled back"* ]]
    [ "$(running 1)" = "runs registry.example/app:good-1" ]
}

@test "the first release fails: it is stopped, and the server is as it was" {
    IMAGE=registry.example/app:sick-1 run deploy "$ONE"
    [ "$status" -eq 1 ]
    [[ $output == *"stopped, there was none before"* ]]
    [ -z "$(on_server 1 'docker ps -q --filter x')" ]
    [ ! -e "$(server_home 1)/peerage/current" ]
}

@test "an image that cannot be had, an engine that fails" {
    deploy "$ONE"
    IMAGE=registry.example/app:missing run deploy "$ONE"
    [ "$status" -eq 1 ]
    [[ $output == *"could not be prepared; the one that runs was left alone"* ]]
    [ "$(engine_log 1 | grep -c ended)" -eq 0 ]
    IMAGE=registry.example/app:broken run deploy "$ONE"
    [ "$status" -eq 1 ]
    [[ $output == *"rolled back to the one before"* ]]
    [ "$(running 1)" = "runs registry.example/app:good-1" ]
}

@test "an update of a running fleet, twice" {
    deploy "$ONE" "$TWO"
    IMAGE=registry.example/app:good-2 run deploy "$ONE" "$TWO"
    [ "$status" -eq 0 ]
    IMAGE=registry.example/app:good-2 run deploy "$ONE" "$TWO"
    [ "$status" -eq 0 ]
    [ "$(running 1)" = "runs registry.example/app:good-2" ]
    grep -qx IMAGE=registry.example/app:good-2 "$(server_home 1)/peerage/previous/.env"
}

@test "wrong input stops with one line before anything is changed" {
    try()
    {
        run operator env "$@"
        echo "$output"
        [ "$status" -eq 1 ] && [ "${#lines[@]}" -eq 1 ]
    }
    local script=$ROOT/deploy/remote-deploy.sh
    try -u PEER_SECRET "$script" "$ONE"
    [[ $output == *"PEER_SECRET is not set, takes 64 hex characters"* ]]
    try "$script"
    [[ $output == *"no host is named"* ]]
    try -u IMAGE "$script" "$ONE"
    [[ $output == *"IMAGE is not set"* ]]
    try PEER_PORT=70000 "$script" "$ONE"
    [[ $output == *"PEER_PORT got '70000', takes a number"* ]]
    try WEB_CONCURRENCY=many "$script" "$ONE"
    [[ $output == *"WEB_CONCURRENCY got 'many'"* ]]
    try ENABLE_PEERS=yes "$script" "$ONE"
    [[ $output == *"ENABLE_PEERS got 'yes', takes true or false"* ]]
    try WEB_PORT=7948 "$script" "$ONE"
    [[ $output == *"one of the peer ports"* ]]
    # shellcheck disable=SC2016
    try PEERS='10.0.0.1$(id)' "$script" "$ONE"
    [[ $output == *"PEERS has a character"* ]]
    nothing_changed
}

@test "an unknown host stops before the known one is changed" {
    run deploy "$ONE" root@10.77.0.99
    [ "$status" -eq 1 ]
    [[ ${lines[-1]} == *"root@10.77.0.99: ssh failed: "* ]]
    nothing_changed
}

@test "a port that another program has stops before anything is changed" {
    ip netns exec "${SERVERS[1]}" python3 "$BATS_TEST_DIRNAME/echo.py" 7950 3>&- >/dev/null &
    disown
    sleep 0.5
    run deploy "$ONE" "$TWO"
    [ "$status" -eq 1 ]
    [[ ${lines[-1]} == *"$TWO: port 7950 is taken by another program" ]]
    nothing_changed
}

@test "a server with a public address needs PEER_ALLOW_CIDR" {
    ip -n "${SERVERS[0]}" address add 198.51.100.7/24 dev veth0
    ip -n "${SERVERS[0]}" route replace default via 198.51.100.1
    run deploy "$ONE"
    [ "$status" -eq 1 ]
    [[ $output == *"198.51.100.7 is not private; PEER_ALLOW_CIDR has to name"* ]]
    nothing_changed
}

@test "--dry-run checks everything and changes nothing" {
    run deploy --dry-run "$ONE" "$TWO"
    [ "$status" -eq 0 ]
    [[ $output == *"nothing was changed"* ]]
    nothing_changed
}
