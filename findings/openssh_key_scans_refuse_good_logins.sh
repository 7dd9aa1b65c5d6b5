#!/bin/sh
# Finding: after some host-key scans sshd closes the connection of a login with a good key, for a quarter of a minute and more.
#
# Versions: OpenSSH 10.0p2 (Debian 13's openssh-server 1:10.0p1, defaults of the program); MaxStartups 100; seen 2026-11-29.
# Input:    thirty times ssh-keyscan of one host from one address, then a login with a key that is authorized.
# Expected: a scan is a look at a public key, and a login that succeeds shows that the address is a good one.
# Seen:     each scan is a "connection without attempting authentication". It costs its address one second of penalty
#           (PerSourcePenalties, new in OpenSSH 9.8), and logins that succeed take nothing of it back. From 15 s on sshd closes
#           every connection of that address before its banner. The client says "Connection closed by HOST" or "Connection
#           reset by peer", and nothing of a penalty:
#             after 30 scans a good login failed: Connection closed by 127.0.0.1 port 2200
# Who meets it: a tool that collects or checks host keys of many hosts behind one address (one bastion, NAT, a lab), and whoever
#           tries keys until one fits: a failed login costs 5 s. Debian 12 has OpenSSH 9.2, without penalties.
# The script exits with 1 when sshd behaves otherwise. It needs root (a network namespace, chroot) and mmdebstrap.
set -eu

if [ "${1:-}" != inside ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    # shellcheck disable=SC2016 # apt's own words
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Codename: bookworm' | head -n 1)
    # shellcheck disable=SC2086 # without one, mmdebstrap chooses
    mmdebstrap --quiet --variant=extract --include=base-files,dash,openssh-server,openssh-client \
        trixie "$work/root" $mirror 2>"$work/log" || { cat "$work/log"; exit 1; }
    unshare --net --mount --pid --fork --kill-child "$0" inside "$work"
    exit
fi
cd "$2"
work=$(pwd)
version=$(chroot root /usr/sbin/sshd -V 2>&1)
case $version in OpenSSH_10.0p2*) ;; *) echo "another version: $version"; exit 1 ;; esac

printf 'root:x:0:0::/:/usr/bin/dash\nsshd:x:996:65534::/run/sshd:/usr/sbin/nologin\n' >root/etc/passwd
mkdir -p root/run/sshd root/dev root/keys
mount --bind /dev root/dev
ip link set lo up
ssh-keygen -q -t ed25519 -N '' -f root/keys/host
ssh-keygen -q -t ed25519 -N '' -f key
cp key.pub root/keys/authorized
cat >root/keys/config <<'CONFIG'
Port 2200
ListenAddress 127.0.0.1
HostKey /keys/host
PidFile none
AuthorizedKeysFile /keys/authorized
StrictModes no
MaxStartups 100
CONFIG
chroot root /usr/sbin/sshd -D -e -f /keys/config 2>log &

login() {
    ssh -F none -i key -p 2200 -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile="$work/known" -o LogLevel=ERROR \
        root@127.0.0.1 : >said 2>&1
}
tries=0
until login; do
    tries=$((tries + 1))
    [ "$tries" -lt 50 ] || { cat said log; exit 1; }
    sleep 0.1
done

# Each second takes one from the penalty, so the scans come at once: one call asks the same host 30 times.
# shellcheck disable=SC2046 # 30 words
ssh-keyscan -t ed25519 -p 2200 $(seq 30 | sed 's/.*/127.0.0.1/') >/dev/null 2>&1 || true
if login; then
    echo "a login after 30 scans worked"
    exit 1
fi
echo "after 30 scans a good login failed: $(cat said)"
case $(cat said) in *enal*) echo "the client names the penalty"; exit 1 ;; esac
grep -q 'penalty: connections without attempting authentication' log || { cat log; exit 1; }

since=$(date +%s)
until login; do
    [ $(($(date +%s) - since)) -lt 120 ] || { echo "no login works any more"; exit 1; }
    sleep 1
done
waited=$(($(date +%s) - since))
echo "it worked again after $waited s"
[ "$waited" -ge 5 ]
