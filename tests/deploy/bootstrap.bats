#!/usr/bin/env bats
# bootstrap-server.sh for real: its rules are applied in a network namespace that plays the
# server, and probed from one inside the CIDR and one outside, over UDP and TCP, at the
# first and last port and the ones beside them. Files go to a folder instead of /etc.

load net

setup()
{
    need_root_and nft iptables iptables-restore unshare python3
    export SYSTEM_ROOT=$BATS_TEST_TMPDIR/root PEER_PORT=20100 PEER_CIDR=10.77.0.0/24
    mkdir -p "$SYSTEM_ROOT/etc"
    make_net
    listen 20099 20100 20115 20116
}

teardown()
{
    drop_net
}

bootstrap()
{
    ip netns exec "$SERVER" "$ROOT/deploy/bootstrap-server.sh" --engine none "$@"
}

in_server()
{
    ip netns exec "$SERVER" "$@"
}

# The state a test is about, without counters and handles.
state()
{
    in_server nft list ruleset | sed 's/counter packets [0-9]* bytes [0-9]*/counter/'
    find "$SYSTEM_ROOT" -type f -print -exec cat {} +
}

all()       # STATE PORT...
{
    local word=$1 port
    shift
    for port in "$@"; do
        printf 'udp %s %s\ntcp %s %s\n' "$port" "$word" "$port" "$word"
    done
}

# On a host that lets nothing in: the sixteen ports are open for the CIDR, nothing else is.
check_closed_host()
{
    [ "$(probe "$INSIDE" 10.77.0.1 20100 20115)" = "$(all open 20100 20115)" ]
    [ "$(probe "$INSIDE" 10.77.0.1 20099 20116)" = "$(all closed 20099 20116)" ]
    [ "$(probe "$OUTSIDE" 192.0.2.1 20100 20115 20099 20116)" = "$(all closed 20100 20115 20099 20116)" ]
    [ "$(probe "$SERVER" 127.0.0.1 20100)" = "$(all open 20100)" ]
}

nftables_host()
{
    cat >"$SYSTEM_ROOT/etc/nftables.conf" <<'END'
#!/usr/sbin/nft -f
flush ruleset
table inet filter {
    chain input {
        type filter hook input priority filter; policy drop;
        iif lo accept
        ct state established,related accept
        reject with icmpx type admin-prohibited
    }
    chain forward {
        type filter hook forward priority filter; policy drop;
    }
}
END
    in_server nft -f "$SYSTEM_ROOT/etc/nftables.conf"
    [ "$(probe "$INSIDE" 10.77.0.1 20100)" = "$(all closed 20100)" ]
}

# As Oracle Cloud's images come: a last rule that rejects.
iptables_host()
{
    mkdir -p "$SYSTEM_ROOT/etc/iptables"
    cat >"$SYSTEM_ROOT/etc/iptables/rules.v4" <<'END'
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT
-A INPUT -j REJECT --reject-with icmp-host-prohibited
-A FORWARD -j REJECT --reject-with icmp-host-prohibited
COMMIT
END
    in_server iptables-restore "$SYSTEM_ROOT/etc/iptables/rules.v4"
    [ "$(probe "$INSIDE" 10.77.0.1 20100)" = "$(all closed 20100)" ]
}

@test "nftables: open for the CIDR ahead of the rules that are there, for nobody else" {
    nftables_host
    bootstrap
    check_closed_host
}

@test "nftables: run twice, the same result" {
    nftables_host
    bootstrap
    before=$(state)
    bootstrap
    [ "$(state)" = "$before" ]
    check_closed_host
}

@test "nftables: the rules survive a reboot" {
    nftables_host
    bootstrap
    in_server nft flush ruleset
    in_server nft -f "$SYSTEM_ROOT/etc/nftables.conf"
    check_closed_host
}

@test "nftables: with another port the old ones are closed again" {
    nftables_host
    PEER_PORT=20000 bootstrap
    [ "$(probe "$INSIDE" 10.77.0.1 20100)" = "$(all closed 20100)" ]
    bootstrap
    check_closed_host
    [[ $(in_server nft list ruleset) != *20000* ]]
    refute grep -r 20000 "$SYSTEM_ROOT"
}

@test "a host that lets everything in: the peer ports are for the CIDR, the others stay open" {
    bootstrap --firewall nftables
    [ "$(probe "$INSIDE" 10.77.0.1 20100 20115)" = "$(all open 20100 20115)" ]
    [ "$(probe "$OUTSIDE" 192.0.2.1 20100 20115)" = "$(all closed 20100 20115)" ]
    [ "$(probe "$OUTSIDE" 192.0.2.1 20099 20116)" = "$(all open 20099 20116)" ]
    in_server nft flush ruleset
    in_server nft -f "$SYSTEM_ROOT/etc/nftables.conf"
    [ "$(probe "$OUTSIDE" 192.0.2.1 20100 20115)" = "$(all closed 20100 20115)" ]
}

@test "iptables: open ahead of the final REJECT, for nobody else" {
    iptables_host
    run bootstrap
    [ "$status" -eq 0 ]
    [[ $output == *"Firewall (iptables)"* ]]
    check_closed_host
    # what was allowed still is, in its place
    in_server iptables -S INPUT | grep -q -- '--dport 22 -j ACCEPT'
    [ "$(in_server iptables -S INPUT | tail -n 1)" = "-A INPUT -j REJECT --reject-with icmp-host-prohibited" ]
}

@test "iptables: run twice, the same result" {
    iptables_host
    bootstrap
    before=$(in_server iptables -S; in_server iptables -t mangle -S; state)
    bootstrap
    [ "$(in_server iptables -S; in_server iptables -t mangle -S; state)" = "$before" ]
    check_closed_host
}

@test "iptables: the rules survive a reboot, and live rules of others are not saved with them" {
    iptables_host
    in_server iptables -N DOCKER
    bootstrap
    refute grep DOCKER "$SYSTEM_ROOT/etc/iptables/rules.v4"
    in_server nft flush ruleset
    in_server iptables-restore "$SYSTEM_ROOT/etc/iptables/rules.v4"
    check_closed_host
}

@test "iptables: with another port the old ones are closed again" {
    iptables_host
    PEER_PORT=20000 bootstrap
    bootstrap
    check_closed_host
    refute grep -r 20000 "$SYSTEM_ROOT"
}

@test "ufw: the commands, and none a second time for what changed" {
    mkdir -p "$BATS_TEST_TMPDIR/bin"
    cat >"$BATS_TEST_TMPDIR/bin/ufw" <<'END'
#!/bin/sh
# Stands in for ufw, which would write into /etc: keeps its rules in a file.
rules=$SYSTEM_ROOT/ufw-rules
touch "$rules"
case "$1 $2" in
status*) echo "Status: active" ;;
"show added") echo "Added user rules (see 'ufw status' for running firewall):"; cat "$rules" ;;
delete*)
    shift
    grep -F "ufw $*" "$rules" >/dev/null || { echo "Could not delete non-existent rule" >&2; exit 1; }
    grep -vF "ufw $*" "$rules" >"$rules.new"
    mv "$rules.new" "$rules" ;;
*)
    line=$(echo "ufw $*" | sed "s/comment \(.*\)/comment '\1'/")
    grep -qxF "$line" "$rules" || echo "$line" >>"$rules" ;;
esac
END
    chmod +x "$BATS_TEST_TMPDIR/bin/ufw"
    export PATH=$BATS_TEST_TMPDIR/bin:$PATH
    run bootstrap
    [[ $output == *"Firewall (ufw)"* ]]
    wanted="ufw allow from 10.77.0.0/24 to any port 20100:20115 proto udp comment 'peerage'
ufw allow from 10.77.0.0/24 to any port 20100:20115 proto tcp comment 'peerage'"
    [ "$(cat "$SYSTEM_ROOT/ufw-rules")" = "$wanted" ]
    echo "ufw allow 22/tcp" >>"$SYSTEM_ROOT/ufw-rules"
    PEER_PORT=20000 bootstrap
    bootstrap
    [ "$(sort "$SYSTEM_ROOT/ufw-rules")" = "$(printf '%s\nufw allow 22/tcp\n' "$wanted" | sort)" ]
}

@test "--dry-run says what it would do and does nothing" {
    nftables_host
    before=$(state)
    run bootstrap --dry-run
    [ "$status" -eq 0 ]
    [[ $output == *"th dport 20100-20115 accept"* ]]
    [[ $output == *"security list"* ]]
    [ "$(state)" = "$before" ]
    run bootstrap --dry-run --firewall iptables
    [ "$status" -eq 0 ]
    [[ $output == *"-A PEERAGE -s 10.77.0.0/24 -j ACCEPT"* ]]
    [ "$(state)" = "$before" ]
}

@test "several networks, IPv6 among them" {
    nftables_host
    PEER_CIDR=10.77.0.0/24,192.0.2.2/32,fd00:77::/64 bootstrap
    [ "$(probe "$OUTSIDE" 192.0.2.1 20100 20115)" = "$(all open 20100 20115)" ]
    in_server nft list ruleset | grep -q 'ip6 saddr fd00:77::/64.*accept'
    before=$(state)
    PEER_CIDR=10.77.0.0/24,192.0.2.2/32,fd00:77::/64 bootstrap
    [ "$(state)" = "$before" ]
}

@test "wrong input stops with one line before anything is changed" {
    nftables_host
    before=$(state)
    for wrong in PEER_CIDR=10.77.0.1/24 PEER_CIDR=everybody PEER_CIDR= PEER_CIDR=10.77.0.0/33 \
        PEER_CIDR=300.0.0.0/8 PEER_PORT=70000 PEER_PORT=0 PEER_PORT=65530 PEER_PORT=abc; do
        run ip netns exec "$SERVER" env "$wrong" "$ROOT/deploy/bootstrap-server.sh" --engine none
        [ "$status" -eq 1 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ $output == *"${wrong%%=*} got '${wrong#*=}', takes "* ]]
    done
    run bootstrap --firewall pf
    [ "$status" -eq 1 ]
    [[ $output == *"--firewall got 'pf', takes"* ]]
    [ "$(state)" = "$before" ]
}
