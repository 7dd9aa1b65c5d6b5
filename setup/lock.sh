#!/bin/sh
# Write setup/requirements.txt anew from pyproject.toml: every dependency (run time, lab, development, build) with
# its hashes and without the name of any package index. Run it after a change of dependencies, then commit the file.
set -eu

cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
python3 -m venv "$tools"
"$tools/bin/python" -m pip --disable-pip-version-check install --quiet pip-tools==7.6.2
CUSTOM_COMPILE_COMMAND=setup/lock.sh "$tools/bin/pip-compile" --quiet --generate-hashes --strip-extras --allow-unsafe \
    --all-extras --build-deps-for editable \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
    --output-file setup/requirements.txt pyproject.toml
