#!/usr/bin/env bats
# The compose file as a compose command reads it, with and without the layer.

load net

setup()
{
    if docker compose version >/dev/null 2>&1; then
        compose="docker compose"
    elif command -v docker-compose >/dev/null && docker-compose version >/dev/null 2>&1; then
        compose=docker-compose
    else
        skip "neither docker compose nor docker-compose is there"
    fi
    cp "$ROOT/deploy/compose.prod.yaml" "$BATS_TEST_TMPDIR/"
    cd "$BATS_TEST_TMPDIR" || return
    echo "OWN_SETTING=something" >app.env
}

# what a person asks of the rendering, whichever command made it: "host:port->port/protocol"
render()
{
    # shellcheck disable=SC2086
    env -i PATH="$PATH" HOME="$BATS_TEST_TMPDIR" $compose -p peerage -f compose.prod.yaml config >rendered
    "${PYTHON:-python3}" - <<'END'
import os

import yaml

with open("rendered") as file:
    rendered = yaml.safe_load(file)
web = rendered["services"]["web"]
for port in web["ports"]:
    if isinstance(port, str):
        host, outer, inner = port.split(":")
        inner, _, protocol = inner.partition("/")
    else:
        host, outer, inner, protocol = (
            port["host_ip"], port["published"], port["target"], port["protocol"])
    print(f"{host}:{outer}->{inner}/{protocol or 'tcp'}")
for name, value in sorted(web["environment"].items()):
    if value is not None:
        print(f"{name}={value}")
print("read_only", web["read_only"])
# version 1 also shows what no profile asks for, and would not start it
asked = os.environ.get("PROFILE")
print("starts", *sorted(
    name for name, service in rendered["services"].items()
    if not service.get("profiles") or asked in service["profiles"]))
END
}

@test "without the layer: the web port, and peer ports on loopback only" {
    run render
    echo "$output"
    [ "$status" -eq 0 ]
    grep -qx '0.0.0.0:8000->8000/tcp' <<<"$output"
    grep -qx 'ENABLE_PEERS=false' <<<"$output"
    grep -qx 'OWN_SETTING=something' <<<"$output"
    grep -qx 'read_only True' <<<"$output"
    [ "$(grep -c '^127.0.0.1:79' <<<"$output")" -eq 10 ]
    [ "$(grep -c -- '->' <<<"$output")" -eq 11 ]
    [[ $output != *PEER_SECRET* ]]
}

@test "with the layer: one port per worker and one more, UDP and TCP, on PEER_BIND" {
    cat >.env <<'END'
IMAGE=registry.example/app:1
ENABLE_PEERS=true
PEER_SECRET=00000000000000000000000000000000000000000000000000000000000000ff
PEERS=10.0.0.107,10.0.0.108
PEER_PORT=7000
PEER_PORT_LAST=7002
PEER_PORT_RANGE=3
WEB_CONCURRENCY=2
WEB_PORT=80
PEER_BIND=10.0.0.107
PEER_ADVERTISE_ADDR=10.0.0.107
END
    run render
    echo "$output"
    [ "$status" -eq 0 ]
    for port in 7000 7001 7002; do
        grep -qx "10.0.0.107:$port->$port/tcp" <<<"$output"
        grep -qx "10.0.0.107:$port->$port/udp" <<<"$output"
    done
    [ "$(grep -c -- '->' <<<"$output")" -eq 7 ]
    grep -qx '0.0.0.0:80->8000/tcp' <<<"$output"
    for wanted in ENABLE_PEERS=true PEERS=10.0.0.107,10.0.0.108 PEER_PORT=7000 PEER_PORT_RANGE=3 \
        WEB_CONCURRENCY=2 PEER_ADVERTISE_ADDR=10.0.0.107 \
        PEER_SECRET=00000000000000000000000000000000000000000000000000000000000000ff; do
        grep -qx "$wanted" <<<"$output"
    done
}

@test "the demo's upstream is there where it is asked for" {
    run render
    grep -qx "starts web" <<<"$output"
    echo COMPOSE_PROFILES=demo >.env
    PROFILE=demo run render
    grep -qx "starts upstream web" <<<"$output"
}
