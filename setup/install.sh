#!/bin/sh
# Set up this checkout on a Debian machine: the Debian packages that are missing, a virtual environment in .venv
# with the locked dependencies, and this project in it. A second run finds all of it in place and says nothing.
#
# usage: setup/install.sh [COMMAND]      COMMAND is what to run as root, named when this is not root
set -eu

cd "$(dirname "$0")/.."
command=${1:-setup/install.sh}
begun=$(date +%s)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
log=
beat=

note() {
    printf '[%3d s] %s\n' $(($(date +%s) - begun)) "$1"
}

refuse() {
    printf '%s\n' "$@" >&2
    exit 1
}

end_step() {
    [ -z "$beat" ] || kill "$beat" 2>/dev/null || true
    [ -z "$log" ] || rm -f "$log"
    beat='' log=''
}
trap end_step EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# step WHAT ADVICE COMMAND...: run a command quietly, with a sign of life every 10 s; on failure show how it ended.
step() {
    what=$1 todo=$2
    shift 2
    note "$what"
    log=$(mktemp)
    # The sleep outlives the loop for a moment; it must not hold our output open.
    while sleep 10 >/dev/null; do
        note "  still running: $(grep -v '^WARNING: ' "$log" | tail -n 1 | cut -c 1-100)"
    done 2>/dev/null &
    beat=$!
    status=0
    "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" -ne 0 ]; then
        {
            printf '%s failed.\nran: %s\nexit code: %s\nlast lines:\n' "$what" "$*" "$status"
            tail -n 15 "$log" | sed 's/^/  /'
            printf 'to do: %s\n' "$todo"
        } >&2
        exit 1
    fi
    end_step
}

[ "$(id -u)" -eq 0 ] || refuse \
    "This needs root: it installs Debian packages and starts hosts in namespaces of their own. Run:" \
    "  sudo $command"
[ -f /etc/debian_version ] || refuse \
    "This machine is not Debian (no /etc/debian_version); the set-up knows Debian 12 and 13." \
    "Run it in a Debian machine or virtual machine, as root."

# Debian packages, each by one program or file it brings, so that one from elsewhere counts as well.
missing=
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
need python3 command -v python3
need python3-venv python3 -c 'import ensurepip, venv'
need ca-certificates test -s /etc/ssl/certs/ca-certificates.crt
need mmdebstrap command -v mmdebstrap
need systemd-container command -v systemd-nspawn
need iptables command -v iptables-restore
need ipset command -v ipset
need iproute2 command -v ip
need openssh-client command -v ssh-keygen
need openssh-server command -v sshd
# zkm-host proves with it that this kernel can end a connection; its tests run here, outside the lab.
need netcat-openbsd command -v nc
need e2fsprogs command -v mkfs.ext4
need procps command -v sysctl
need java command -v java
need maven command -v mvn
need shellcheck command -v shellcheck
need gcc command -v gcc
need libc6-dev test -f /usr/include/stdio.h
if [ -n "$missing" ]; then
    advice="check the apt sources and the network of this machine, or install by hand:$missing"
    step "reading the package lists" "$advice" apt-get -o DPkg::Lock::Timeout=120 update
    # Debian 13 has Java 21 and no Java 17.
    for version in 17 21; do
        case $missing in *" java"*)
            [ -n "$(apt-cache show "openjdk-$version-jre-headless" 2>/dev/null)" ] || continue
            missing=$(printf '%s' "$missing" | sed "s/ java/ openjdk-$version-jre-headless/")
            ;;
        esac
    done
    # shellcheck disable=SC2086 # one word per package
    step "installing Debian packages:$missing" "$advice" \
        env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install --yes --no-install-recommends $missing
    # The tests start an sshd of their own; the machine's is none of our business.
    case $missing in *openssh-server*)
        [ ! -d /run/systemd/system ] ||
            step "turning off the ssh service that came with openssh-server" "$advice" systemctl disable --now ssh
        ;;
    esac
fi

version='import sys; sys.exit(sys.version_info < (3, 11))'
python3 -c "$version" || refuse \
    "python3 is $(python3 --version 2>&1). Python 3.11 or newer is needed; Debian 12 has it as /usr/bin/python3."

# The virtual environment holds absolute paths, so a moved checkout gets a new one.
stamp=.venv/.zkmigrate-installed
archive=.venv/share/zkmigrate/spark-classes.jsa
wanted=$(pwd && cat setup/requirements.txt setup/requirements-spark.txt pyproject.toml | sha256sum)
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
    advice="check that pip reaches its package index (pip config list), then run again"
    place=$(head -n 1 "$stamp" 2>/dev/null || pwd)
    if [ "$place" != "$(pwd)" ] || ! .venv/bin/python -c "$version" 2>/dev/null ||
        ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        step "making a virtual environment in .venv" "delete .venv, then run again" python3 -m venv --clear .venv
    fi
    step "installing the locked Python packages" "$advice" \
        .venv/bin/python -m pip --disable-pip-version-check --no-input install --progress-bar off \
        --require-hashes --only-binary :all: --requirement setup/requirements.txt
    # pyspark comes as source; it is built here with the setuptools that have just been installed.
    step "installing the locked Python packages of the data pipeline" "$advice" \
        .venv/bin/python -m pip --disable-pip-version-check --no-input install --progress-bar off \
        --require-hashes --no-build-isolation --only-binary :all: --no-binary pyspark \
        --requirement setup/requirements-spark.txt
    step "installing this project in .venv" "$advice" \
        .venv/bin/python -m pip --disable-pip-version-check --no-input install --progress-bar off \
        --no-build-isolation --no-deps --editable .
    rm -f "$archive"
    printf '%s\n' "$wanted" >"$stamp"
    note "set-up is complete"
fi
[ -f "$archive" ] || step "making an archive of Spark's Java classes, so that analyses start sooner" \
    "check that java is Java 17 or 21, then run again" .venv/bin/python -m zkmigrate.spark.archive
