#!/bin/sh
# Write the locks anew from pyproject.toml, with hashes and without the name of any package index:
# setup/requirements.txt, every dependency (run time, lab, development, build); setup/requirements-tool.txt, those of it
# that an operator's machine needs (run time, build); setup/requirements-spark.txt, what the data pipeline needs
# besides; and in setup/clients what the client matrix needs besides. Run it after a change of dependencies, then commit the files.
# shellcheck source=setup/tool.sh
. "$(dirname "$0")/tool.sh"
install_tool uv==0.13.9

project() {
    python3 -c 'import functools, sys, tomllib
found = functools.reduce(lambda at, key: at[key], sys.argv[1:], tomllib.load(open("pyproject.toml", "rb")))
print("\n".join(found))' "$@"
}

# compile OUTPUT ARGUMENT...: for Linux and every Python from 3.11 on; versions that are locked stay.
compile() {
    output=$1
    shift
    "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
        --no-emit-index-url --no-emit-find-links --custom-compile-command setup/lock.sh --output-file "$output" "$@"
}

project build-system requires >"$tools/build.in"
compile setup/requirements.txt --extra lab --extra dev pyproject.toml "$tools/build.in"
compile setup/requirements-tool.txt --constraint setup/requirements.txt pyproject.toml "$tools/build.in"
# pyspark is a source distribution, and building it needs setuptools in place: so it is locked and installed apart.
project project optional-dependencies spark >"$tools/spark.in"
compile setup/requirements-spark.txt --constraint setup/requirements.txt "$tools/spark.in"

# Clients that the set-up does not install. The first confluent-kafka with a wheel for Python 3.11 cannot stand beside
# the one of the load, so each lock gets a folder of its own.
for client in aiokafka 'confluent-kafka==2.0.2'; do
    echo "$client" >"$tools/client.in"
    case $client in aiokafka) name=aiokafka ;; *) name=librdkafka-oldest ;; esac
    compile "setup/clients/$name.txt" "$tools/client.in"
done
