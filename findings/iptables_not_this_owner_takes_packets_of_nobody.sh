#!/bin/sh
# Finding: `-m owner ! --uid-owner ROOT` matches packets that no user's socket sends, also those of root's own connections.
#
# Versions: iptables 1.8.9 (Debian 12's iptables 1.8.9-2, nf_tables), Linux 6.18; seen 2026-11-30.
# Input:    a network namespace with root's processes only; root connects to a port where nothing listens, and to one where
#           root listens, and closes both ends.
# Expected: `--uid-owner 0` and `! --uid-owner 0` divide local packets into root's and other users'. Here all are root's.
# Seen:     the kernel's RST for the refused connection has no socket, so it is "not root's". The handshake is root's:
#             RST: root's 0, not root's 1
#             SYN: root's 3, not root's 0
#           The manual says that packets of kernel threads have no owner; it does not say that a negated owner takes them.
# Who meets it: who lets one user pass and rejects or drops "all others". Peers of that user then miss the RST of a closed
#           or refused connection, and wait for a timeout. Let RST pass above such a rule, or add `--socket-exists`.
# The script exits with 1 when iptables behaves otherwise. It needs root (a network namespace, chroot) and mmdebstrap.
set -eu

if [ "${1:-}" != inside ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    # shellcheck disable=SC2016 # apt's own words
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Codename: bookworm' | head -n 1)
    # shellcheck disable=SC2086 # without one, mmdebstrap chooses
    mmdebstrap --quiet --variant=extract --include=base-files,dash,iptables bookworm "$work/root" $mirror 2>"$work/log" ||
        { cat "$work/log"; exit 1; }
    unshare --net --mount --pid --fork --kill-child "$0" inside "$work"
    exit
fi
cd "$2"
rules() { chroot root /usr/sbin/xtables-nft-multi iptables "$@"; }
version=$(rules --version)
case $version in *v1.8.9*) ;; *) echo "another version: $version"; exit 1 ;; esac

ip link set lo up
for flag in RST SYN; do
    rules -A OUTPUT -p tcp --tcp-flags $flag $flag -m owner --uid-owner 0 -m comment --comment "$flag-root"
    rules -A OUTPUT -p tcp --tcp-flags $flag $flag -m owner ! --uid-owner 0 -m comment --comment "$flag-others"
done
python3 - <<'PYTHON'
import socket

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
server.close()
client.close()
address = listener.getsockname()
listener.close()
try:
    socket.create_connection(address)
except ConnectionRefusedError:
    pass
else:
    raise SystemExit("something listens there")
PYTHON

count() { rules -L OUTPUT -vnx | awk -v what="$1" '$0 ~ what { print $1 }'; }
seen="RST: root's $(count RST-root), not root's $(count RST-others)
SYN: root's $(count SYN-root), not root's $(count SYN-others)"
echo "$seen"
[ "$seen" = "RST: root's 0, not root's 1
SYN: root's 3, not root's 0" ] || { echo "it is otherwise now"; exit 1; }
