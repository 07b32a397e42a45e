#!/usr/bin/env bats
# Two servers, network namespaces on one switch, each with four workers that
# remote-deploy.sh put there without containers: one cluster of eight across the link. The
# load test runs over both, also while the link between them is cut and healed.

load net
load servers

setup()
{
    PYTHON=${PYTHON:-python3}
    need_root_and ssh sshd ssh-keygen unshare bridge
    "$PYTHON" -c 'import peerage._native, gunicorn, uvicorn_worker' || skip "needs peerage with its extras demo and server"
    PYTHON=$("$PYTHON" -c 'import sys; print(sys.executable)')
    make_servers 2
    ONE=root@10.77.0.1
    TWO=root@10.77.0.2
    # the operator's machine, 10.77.0.3, also plays the upstream
    operator "$PYTHON" -m peerage.demo.upstream --host 10.77.0.3 --port 8100 3>&- \
        >"$BATS_TEST_TMPDIR/upstream.log" 2>&1 &
    disown
    echo "DEMO_TTL=4" >"$BATS_TEST_TMPDIR/app.env"
    export REMOTE_PYTHON=$PYTHON DEMO_UPSTREAM=http://10.77.0.3:8100
    export ENABLE_PEERS=true WEB_CONCURRENCY=4 HEALTH_SECONDS=45
    PEER_SECRET=$(openssl rand -hex 32)
    export PEER_SECRET
    unset PEERS PEER_PORT PEER_ALLOW_CIDR APPLICATION WEB_PORT
}

teardown()
{
    local number
    if [ -z "${BATS_TEST_COMPLETED:-}" ]; then
        for number in 1 2; do
            tail -n 30 "$(server_home $number)/peerage/gunicorn.log" || true
        done
    fi
    drop_net
}

members()   # SERVER
{
    operator "$PYTHON" -c "import json, urllib.request as u
print(json.load(u.urlopen('http://10.77.0.$1:8000/readyz', timeout=5))['members'])"
}

wait_for_members()  # COUNT SECONDS: on every worker that answers, several times in a row
{
    local until=$((SECONDS + $2)) agreed=0
    while [ $SECONDS -lt $until ]; do
        if [ "$(members 1)" = "$1" ] && [ "$(members 2)" = "$1" ]; then
            agreed=$((agreed + 1))
            [ $agreed -lt 8 ] || return 0
        else
            agreed=0
            sleep 0.3
        fi
    done
    return 1
}

over_both()
{
    operator "$PYTHON" "$BATS_TEST_DIRNAME/load_over_servers.py" --upstream 10.77.0.3:8100 \
        --ttl 4 --rate 100 "$@" 10.77.0.1:8000 10.77.0.2:8000
}

# expect EXPRESSION: true of the JSON in $result, whose fields are names in it
expect()
{
    "$PYTHON" -c "import json, sys
result = json.loads(sys.argv[1])
sys.exit(not eval(sys.argv[2], result))" "$result" "$1"
}

link_between()      # on or off: the servers reach the operator in any case, and each other
{
    local isolated=off
    [ "$1" = on ] || isolated=on
    bridge -n "prg$$w" link set dev port1 isolated $isolated
    bridge -n "prg$$w" link set dev port2 isolated $isolated
}

@test "a cluster of eight: each key fetched once per TTL, also a cut link costs no error" {
    run deploy --engine process --env-file "$BATS_TEST_TMPDIR/app.env" "$ONE" "$TWO"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"$TWO: replacing what runs, waiting for health and 8 members"* ]]
    wait_for_members 8 20

    result=$(over_both --seconds 12)
    echo "$result"
    expect 'errors == 0 and wrong == 0 and requests == 1200'
    expect 'fetches_per_key_per_ttl <= 1.10'

    over_both --seconds 16 --seed 2 >"$BATS_TEST_TMPDIR/result" 3>&- &
    local loader=$!
    sleep 2
    link_between off
    sleep 8
    link_between on
    wait $loader
    result=$(cat "$BATS_TEST_TMPDIR/result")
    echo "$result"
    expect 'errors == 0 and wrong == 0 and requests == 1600'
    wait_for_members 8 30
}

@test "a roll under load: no request fails at the server that is not replaced" {
    deploy --engine process --env-file "$BATS_TEST_TMPDIR/app.env" "$ONE" "$TWO"
    wait_for_members 8 20
    operator "$PYTHON" "$BATS_TEST_DIRNAME/load_over_servers.py" --upstream 10.77.0.3:8100 \
        --ttl 4 --rate 60 --seconds 15 10.77.0.1:8000 >"$BATS_TEST_TMPDIR/result" 3>&- &
    local loader=$!
    sleep 1
    run deploy --engine process --env-file "$BATS_TEST_TMPDIR/app.env" "$TWO"
    echo "$output"
    [ "$status" -eq 0 ]
    wait $loader
    result=$(cat "$BATS_TEST_TMPDIR/result")
    echo "$result"
    expect 'errors == 0 and wrong == 0 and requests == 900'
}
