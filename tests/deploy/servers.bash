# shellcheck shell=bash
# Servers one can ssh into, for the bats files of this folder: a network namespace with an
# sshd, where root's home is a folder of the test. To be loaded after net.

# make_servers COUNT: prg...1 and so on at 10.77.0.1 and so on, and an operator behind them
make_servers()
{
    local count=$1 number folder i
    SERVERS=()
    for ((number = 1; number <= count; number++)); do
        SERVERS+=("prg$$-$number")
    done
    OPERATOR=prg$$-op
    make_lan "${SERVERS[@]}" "$OPERATOR"

    KEYS=$BATS_TEST_TMPDIR/keys
    mkdir -p "$KEYS"
    ssh-keygen -q -t ed25519 -N "" -f "$KEYS/host"
    ssh-keygen -q -t ed25519 -N "" -f "$KEYS/operator"
    for ((number = 1; number <= count; number++)); do
        folder=$(server_home "$number")
        mkdir -p "$folder/bin"
        cat >"$KEYS/sshd$number" <<END
Port 22
HostKey $KEYS/host
AuthorizedKeysFile $KEYS/operator.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PidFile none
SetEnv PATH=$folder/bin:$PATH
END
        sed "s|^root:.*|root:x:0:0::$folder:/bin/bash|" /etc/passwd >"$KEYS/passwd$number"
        # a /run and a passwd of its own
        # shellcheck disable=SC2016
        ip netns exec "${SERVERS[number - 1]}" unshare --mount -- sh -c '
            mount --bind "$1" /etc/passwd
            mount -t tmpfs tmpfs /run
            mkdir -p /run/sshd
            exec "$2" -D -e -f "$3"' - "$KEYS/passwd$number" "$(command -v sshd)" "$KEYS/sshd$number" \
            >"$BATS_TEST_TMPDIR/sshd$number.log" 2>&1 3>&- &
        disown
    done
    export SSH_OPTIONS="-F none -i $KEYS/operator -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    for ((number = 1; number <= count; number++)); do
        for ((i = 0; i < 100; i++)); do
            on_server "$number" true 2>/dev/null && break
            sleep 0.1
        done
        on_server "$number" true
    done
}

server_home() { echo "$BATS_TEST_TMPDIR/home$1"; }

operator() { ip netns exec "$OPERATOR" "$@"; }

# on_server NUMBER COMMAND
on_server()
{
    # shellcheck disable=SC2029,SC2086
    operator ssh $SSH_OPTIONS "root@10.77.0.$1" "$2" </dev/null
}

deploy() { operator "$ROOT/deploy/remote-deploy.sh" "$@"; }
