#!/usr/bin/env bash
# Both commands of the README on a system that has nothing yet: debootstraps Debian into
# a folder, copies a fresh clone in, and runs scripts/demo.sh and scripts/test.sh there
# by chroot. As root, with debootstrap and a network; takes some minutes, so it is run by
# hand and in a workflow, not with every test.
#
#   scripts/clean_room.sh [SUITE [FOLDER]]      default: bookworm, a new folder in /var/tmp
#
# MIRROR=url picks the archive; KEEP=1 leaves the folder there.
set -euo pipefail

suite=${1:-bookworm}
folder=${2:-$(mktemp -d /var/tmp/peerage-clean-room.XXXXXX)}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die()
{
    echo "clean_room.sh: $*" >&2
    exit 1
}

[ "$(id -u)" -eq 0 ] || die "needs root (chroot, mount)"
command -v debootstrap >/dev/null || die "missing: debootstrap (Debian package debootstrap)"
[ -z "$(ls -A "$folder" 2>/dev/null)" ] || die "$folder is not empty"

mounted=()
end()
{
    local i
    for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do
        umount "${mounted[i]}" 2>/dev/null || umount -l "${mounted[i]}" || true
    done
    mounted=()
    if [ -n "${KEEP:-}" ]; then
        echo "left in $folder"
    elif ! grep -qE " ${folder}[/ ]" /proc/mounts; then
        # what is still mounted there is not ours to delete
        rm -rf --one-file-system "$folder"
    fi
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

attach()
{
    mount "$@" && mounted+=("${*: -1}")
}

echo "Making a clean Debian $suite in $folder"
debootstrap --variant=minbase --include=ca-certificates "$suite" "$folder" \
    ${MIRROR:+"$MIRROR"} >"$folder.log" 2>&1 || {
    tail -n 20 "$folder.log" >&2
    die "debootstrap failed"
}
rm -f "$folder.log"
# `ip netns exec` wants / to be a mount
attach --bind "$folder" "$folder"
attach -t proc proc "$folder/proc"
attach -t sysfs sysfs "$folder/sys"
attach --bind /dev "$folder/dev"
attach -t devpts devpts "$folder/dev/pts"
attach -t tmpfs tmpfs "$folder/dev/shm"
attach -t tmpfs tmpfs "$folder/run"
cp /etc/resolv.conf "$folder/etc/resolv.conf"
cp /etc/hosts "$folder/etc/hosts"
# How this machine reaches its packages is how the clean one does: proxies, indexes and
# the certificates they need are not what is tested here.
outside=()
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL; do
    [ -z "${!name:-}" ] || outside+=("$name=${!name}")
done
certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}
if [ -n "$certificates" ]; then
    cp "$certificates" "$folder/etc/outside-certificates.pem"
    outside+=(PIP_CERT=/etc/outside-certificates.pem SSL_CERT_FILE=/etc/outside-certificates.pem)
fi
# No daemon starts because its package is installed.
printf '#!/bin/sh\nexit 101\n' >"$folder/usr/sbin/policy-rc.d"
chmod +x "$folder/usr/sbin/policy-rc.d"

git -c safe.directory="$root" clone -q --no-hardlinks "$root" "$folder/root/peerage"

inside()
{
    chroot "$folder" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
        TERM="${TERM:-dumb}" "${outside[@]}" /bin/bash -c "cd /root/peerage && $1"
}
for command in scripts/demo.sh scripts/test.sh; do
    echo "=== $command in the clean $suite ==="
    inside "$command" || die "$command failed in the clean $suite"
done
echo "Both commands run from a clean Debian $suite"
