#!/usr/bin/env bash
# Prepares a Debian or Ubuntu server for a fleet of peerage workers: the packages, and the
# host's own firewall, which then admits the other servers' workers and nobody else to
# the peer ports. Safe to run again, with the same result.
#
#   sudo [PEER_PORT=7946] [PEER_CIDR=10.0.0.0/16[,...]] deploy/bootstrap-server.sh [options]
#
#     --dry-run               print what would be done, change nothing
#     --firewall WHICH        nftables, iptables, ufw; default: what the host uses
#     --engine docker|none    none: no container engine is installed
#
# Two things are done for the ports PEER_PORT to PEER_PORT + 15, UDP and TCP:
#   open    packets from PEER_CIDR are accepted ahead of the rules that are there. On
#           images whose last rule is a REJECT (Oracle Cloud's) a rule behind it would do
#           nothing, and peers would see "No route to host".
#   guard   packets from anywhere else are dropped before destination addresses are
#           translated. Ports that Docker publishes never pass the INPUT rules, so a rule
#           there would not keep anybody out. (ufw hosts: ufw's own default denies, and
#           the compose file publishes on the private address only.)
# Both are written where the host's firewall keeps its rules over reboots.
set -euo pipefail

die()
{
    echo "bootstrap-server.sh: $*" >&2
    exit 1
}

# ---- input, all of it checked before anything changes

dry_run=
firewall=
engine=docker
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry_run=yes ;;
    --firewall) firewall=${2:-} && shift ;;
    --engine) engine=${2:-} && shift ;;
    -h | --help) sed -n '2,/^set -e/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;;
    *) die "unknown option '$1'; takes --dry-run, --firewall, --engine" ;;
    esac
    shift
done
case $firewall in "" | nftables | iptables | ufw) ;; *) die "--firewall got '$firewall', takes nftables, iptables or ufw" ;; esac
case $engine in docker | none) ;; *) die "--engine got '$engine', takes docker or none" ;; esac

readonly PORTS=16
first=${PEER_PORT:-7946}
[[ $first =~ ^[1-9][0-9]{0,4}$ && $first -le $((65536 - PORTS)) ]] ||
    die "PEER_PORT got '$first', takes a port from 1 to $((65536 - PORTS))"
last=$((first + PORTS - 1))

# v4_network A.B.C.D/P: is it one, without host bits?
v4_network()
{
    local octets='([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])' number
    [[ $1 =~ ^$octets\.$octets\.$octets\.$octets/([0-9]|[12][0-9]|3[0-2])$ ]] || return
    number=$(((BASH_REMATCH[1] << 24) | (BASH_REMATCH[2] << 16) | (BASH_REMATCH[3] << 8) | BASH_REMATCH[4]))
    ((BASH_REMATCH[5] == 32 || (number & (0xffffffff >> BASH_REMATCH[5])) == 0))
}

v6_network()
{
    [[ $1 =~ ^[0-9a-fA-F:]*:[0-9a-fA-F:]*/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8])$ ]]
}

networks4=()
networks6=()
IFS=, read -ra networks <<<"${PEER_CIDR-10.0.0.0/16}"
for network in "${networks[@]}"; do
    network=${network//[[:space:]]/}
    if v4_network "$network"; then
        networks4+=("$network")
    elif v6_network "$network"; then
        networks6+=("$network")
    else
        die "PEER_CIDR got '$network', takes networks such as 10.0.0.0/16, without host bits"
    fi
done
[ $((${#networks4[@]} + ${#networks6[@]})) -gt 0 ] ||
    die "PEER_CIDR got '', takes networks such as 10.0.0.0/16, without host bits"

# Another root than / is for tests.
etc=${SYSTEM_ROOT:-}/etc
PATH=$PATH:/usr/sbin:/sbin
[ -n "$dry_run" ] || [ "$(id -u)" -eq 0 ] || die "needs root; --dry-run does not"

# ---- doing, or saying what would be done

say() { echo "$*"; }
has() { command -v "$1" >/dev/null 2>&1; }

run()
{
    if [ -n "$dry_run" ]; then
        printf '+'
        printf ' %q' "$@"
        printf '\n'
    else
        "$@"
    fi
}

# feed COMMAND...: runs it with the standard input given
feed()
{
    if [ -n "$dry_run" ]; then
        printf '+'
        printf ' %q' "$@"
        printf ' <<END\n'
        sed 's/^/    /'
        printf 'END\n'
    else
        "$@"
    fi
}

# write_file PATH: the standard input becomes the file, if it says something else
write_file()
{
    local content
    content=$(cat)
    [ "$(cat "$1" 2>/dev/null)" != "$content" ] || return 0
    if [ -n "$dry_run" ]; then
        printf '+ write %s:\n' "$1"
        printf '%s\n' "$content" | sed 's/^/    /'
    else
        mkdir -p "$(dirname "$1")"
        printf '%s\n' "$content" >"$1.new"
        chmod 644 "$1.new"
        mv "$1.new" "$1"
    fi
}

apt()
{
    run env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a \
        apt-get -y -q -o DPkg::Lock::Timeout=300 "$@"
}

# join SEPARATOR WORD...
join()
{
    local separator=$1 out=$2
    shift 2
    for word in "$@"; do out+=$separator$word; done
    printf '%s' "$out"
}

# ---- packages

install_packages()
{
    local packages=() compose
    if [ "$engine" = docker ]; then
        has docker || packages+=(docker.io)
        if ! docker compose version >/dev/null 2>&1 && ! has docker-compose; then
            # Ubuntu and Docker's own repository have a plugin, Debian the command
            compose=docker-compose
            for name in docker-compose-v2 docker-compose-plugin; do
                if apt-cache show "$name" >/dev/null 2>&1; then
                    compose=$name
                    break
                fi
            done
            packages+=("$compose")
        fi
    fi
    [ "$firewall" != nftables ] || has nft || packages+=(nftables)
    has ip || packages+=(iproute2)
    if [ ${#packages[@]} -eq 0 ]; then
        say "Packages: nothing is missing"
        return
    fi
    say "Packages: installing ${packages[*]}"
    apt update
    apt install "${packages[@]}"
}

# ---- nftables

# The base chains that filter input, out of a ruleset in nft's language: "family table chain"
input_chains()
{
    awk '
        { sub(/#.*/, "") }
        $1 == "table" { family = NF > 3 || $3 != "{" ? $2 : "ip"; table = NF > 3 || $3 != "{" ? $3 : $2 }
        $1 == "chain" { chain = $2 }
        /type filter hook input/ && table != "peerage" { print family, table, chain }
    '
}

# accept FAMILY TABLE CHAIN: the statements that open the ports in it
accept_rules()
{
    local match="meta l4proto { tcp, udp } th dport $first-$last accept comment \"peerage\""
    if [ ${#networks4[@]} -gt 0 ] && [ "$1" != ip6 ]; then
        echo "insert rule $1 $2 $3 ip saddr { $(join ', ' "${networks4[@]}") } $match"
    fi
    if [ ${#networks6[@]} -gt 0 ] && [ "$1" != ip ]; then
        echo "insert rule $1 $2 $3 ip6 saddr { $(join ', ' "${networks6[@]}") } $match"
    fi
}

nft_set()       # NAME TYPE NETWORK...
{
    local name=$1 type=$2
    shift 2
    echo "    set $name {"
    echo "        type $type"
    echo "        flags interval"
    [ $# -eq 0 ] || echo "        elements = { $(join ', ' "$@") }"
    echo "    }"
}

nft_guard()
{
    # declared, deleted, made: so that loading it again replaces it, in one transaction
    echo "table inet peerage"
    echo "delete table inet peerage"
    echo "table inet peerage {"
    nft_set peers4 ipv4_addr ${networks4[@]+"${networks4[@]}"}
    nft_set peers6 ipv6_addr ${networks6[@]+"${networks6[@]}"}
    cat <<END
    chain guard {
        type filter hook prerouting priority -150; policy accept;
        meta l4proto != { tcp, udp } accept
        th dport != $first-$last accept
        fib daddr type != local accept
        iifname "lo" accept
        # containers of this host, on their way to its other workers
        iifname "docker*" accept
        iifname "br-*" accept
        iifname "podman*" accept
        ip saddr @peers4 accept
        ip6 saddr @peers6 accept
        counter drop
    }
}
END
}

use_nftables()
{
    local conf=$etc/nftables.conf ours=$etc/nftables.d/peerage.nft chains live
    chains=$({ cat "$conf" "$etc"/nftables.d/*.nft 2>/dev/null || true; } | input_chains | sort -u)
    live=$(nft list ruleset 2>/dev/null | input_chains | sort -u) || true

    {
        echo "# Written by peerage's bootstrap-server.sh: the peer ports, for peers only."
        nft_guard
        while read -r family table chain; do
            [ -z "$family" ] || accept_rules "$family" "$table" "$chain"
        done <<<"$chains"
    } | write_file "$ours"
    if ! grep -qsE "^ *include \"$etc/nftables.d/(peerage|\*)\.nft\"" "$conf"; then
        { if [ -f "$conf" ]; then cat "$conf"; else printf '#!/usr/sbin/nft -f\nflush ruleset\n'; fi
          printf 'include "%s"\n' "$ours"; } | write_file "$conf"
    fi
    if has systemctl && [ -d /run/systemd/system ] && [ -z "${SYSTEM_ROOT:-}" ]; then
        run systemctl enable nftables.service
    fi

    # Now, in one transaction: away with what an earlier run inserted, then all anew.
    {
        nft -a list ruleset 2>/dev/null | awk '
            $1 == "table" { family = $2; table = $3 }
            $1 == "chain" { chain = $2 }
            table != "peerage" && /comment "peerage"/ { print "delete rule", family, table, chain, "handle", $NF }'
        nft_guard
        # iptables-nft keeps its chains in tables of these names, and can't read rules made by nft
        while read -r family table chain; do
            [ -z "$family" ] || [ "$chain" = INPUT ] || accept_rules "$family" "$table" "$chain"
        done <<<"$live"
    } | feed nft -f -
    while read -r family table chain; do
        if [ -n "$family" ] && ! grep -qxF "$family $table $chain" <<<"$chains"; then
            say "Note: chain $family $table $chain is not in $conf; after a reboot its owner has to open the ports"
        fi
    done <<<"$live"
}

# ---- iptables

# iptables_rules IPTABLES NETWORK...: what iptables-restore --noflush takes to bring the
# rules of this network namespace into the wanted state
iptables_rules()
{
    local tool=$1 network protocol interface
    shift
    echo "*filter"
    echo ":PEERAGE - [0:0]"
    "$tool" -t filter -S INPUT | sed -n '/ -j PEERAGE$/s/^-A/-D/p'
    for network in "$@"; do
        echo "-A PEERAGE -s $network -j ACCEPT"
    done
    for protocol in udp tcp; do
        echo "-I INPUT 1 -p $protocol -m $protocol --dport $first:$last -j PEERAGE"
    done
    echo COMMIT
    echo "*mangle"
    echo ":PEERAGE - [0:0]"
    "$tool" -t mangle -S PREROUTING | sed -n '/ -j PEERAGE$/s/^-A/-D/p'
    # + is iptables' wildcard; containers of this host on their way to its other workers
    for interface in lo docker+ br-+ podman+; do
        echo "-A PEERAGE -i $interface -j RETURN"
    done
    for network in "$@"; do
        echo "-A PEERAGE -s $network -j RETURN"
    done
    echo "-A PEERAGE -j DROP"
    for protocol in tcp udp; do
        echo "-A PREROUTING -p $protocol -m $protocol --dport $first:$last -m addrtype --dst-type LOCAL -j PEERAGE"
    done
    echo COMMIT
}

# The rules file of the host with ours in it. It is loaded into a network namespace that
# exists for this moment only: saving the live rules instead would also freeze those that
# Docker makes at its start.
iptables_file()
{
    local tool=$1 file=$2
    shift 2
    export first last
    # shellcheck disable=SC2016
    unshare --net -- bash -c "set -euo pipefail; $(declare -f iptables_rules)"'
        tool=$1 file=$2
        shift 2
        [ ! -s "$file" ] || "$tool-restore" <"$file"
        iptables_rules "$tool" "$@" | "$tool-restore" --noflush
        "$tool-save" | sed -E "/^#/d; s/ \[[0-9]+:[0-9]+\]$/ [0:0]/"' - "$tool" "$file" "$@"
}

use_iptables()
{
    local tool version
    for version in 4 6; do
        tool=iptables
        local networks=(${networks4[@]+"${networks4[@]}"})
        if [ $version = 6 ]; then
            tool=ip6tables
            networks=(${networks6[@]+"${networks6[@]}"})
            # a kernel without IPv6 needs no rules for it
            "$tool" -S INPUT >/dev/null 2>&1 || continue
        fi
        iptables_rules "$tool" ${networks[@]+"${networks[@]}"} | feed "$tool-restore" --noflush
        if [ -n "$dry_run" ]; then
            say "+ write $etc/iptables/rules.v$version: what it holds now, and these"
        else
            iptables_file "$tool" "$etc/iptables/rules.v$version" ${networks[@]+"${networks[@]}"} |
                write_file "$etc/iptables/rules.v$version"
        fi
    done
    has netfilter-persistent || [ -n "${SYSTEM_ROOT:-}" ] ||
        say "Note: install iptables-persistent, or nothing loads $etc/iptables/rules.v4 at boot"
}

# ---- ufw

use_ufw()
{
    local network protocol wanted=() line
    for network in ${networks4[@]+"${networks4[@]}"} ${networks6[@]+"${networks6[@]}"}; do
        for protocol in udp tcp; do
            wanted+=("allow from $network to any port $first:$last proto $protocol comment 'peerage'")
        done
    done
    # what an earlier run with other networks or ports has opened
    while read -r line; do
        if [[ $line == "ufw "*"comment 'peerage'" ]] &&
            ! printf '%s\n' "${wanted[@]}" | grep -qxF "${line#ufw }"; then
            line=${line#ufw }
            # words of a rule
            # shellcheck disable=SC2086
            run ufw delete ${line% comment *}
        fi
    done < <(ufw show added 2>/dev/null)
    for line in "${wanted[@]}"; do
        # shellcheck disable=SC2086
        run ufw ${line% comment *} comment peerage
    done
}

# ---- which firewall

choose_firewall()
{
    if has ufw && ufw status 2>/dev/null | grep -q '^Status: active'; then
        echo ufw
    elif has netfilter-persistent || [ -s "$etc/iptables/rules.v4" ]; then
        echo iptables
    else
        echo nftables
    fi
}

[ -n "$firewall" ] || firewall=$(choose_firewall)
install_packages
say "Firewall ($firewall): UDP and TCP ports $first to $last for $(join ', ' ${networks4[@]+"${networks4[@]}"} ${networks6[@]+"${networks6[@]}"})"
"use_$firewall"
say "The cloud's own firewall (security list, security group) must allow the same:"
say "UDP and TCP $first-$last from $(join ', ' ${networks4[@]+"${networks4[@]}"} ${networks6[@]+"${networks6[@]}"})"
