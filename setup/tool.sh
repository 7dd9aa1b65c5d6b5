#!/bin/sh
# Read by lock.sh and sbom.sh: goes to the top of the checkout, and installs a program in $tools, which is removed at the end.
set -eu

cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# install_tool PACKAGE
install_tool() {
    python3 -m venv "$tools"
    "$tools/bin/python" -m pip --disable-pip-version-check install --quiet "$1"
}
