#!/bin/sh
# Write setup/requirements.txt anew from pyproject.toml: every dependency (run time, lab, development, build) with
# its hashes and without the name of any package index; and setup/requirements-spark.txt, what the data pipeline needs
# besides. Run it after a change of dependencies, then commit the files.
set -eu

cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
python3 -m venv "$tools"
"$tools/bin/python" -m pip --disable-pip-version-check install --quiet pip-tools==7.6.2

# compile OUTPUT ARGUMENT...
compile() {
    output=$1
    shift
    CUSTOM_COMPILE_COMMAND=setup/lock.sh "$tools/bin/pip-compile" --quiet --generate-hashes --strip-extras --allow-unsafe \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file "$output" "$@"
}

compile setup/requirements.txt --extra lab --extra dev --build-deps-for editable pyproject.toml
# pyspark is a source distribution, and building it needs setuptools in place: so it is locked and installed apart.
python3 -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["spark"]))' \
    >"$tools/spark.in"
compile setup/requirements-spark.txt --constraint setup/requirements.txt --no-annotate "$tools/spark.in"
