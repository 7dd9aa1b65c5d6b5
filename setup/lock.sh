#!/bin/sh
# Write the locks anew from pyproject.toml, with hashes and without the name of any package index:
# setup/requirements.txt, every dependency (run time, lab, development, build); setup/requirements-tool.txt, those of it
# that an operator's machine needs (run time, build); setup/requirements-spark.txt, what the data pipeline needs
# besides; and in setup/clients what the client matrix needs besides. Run it after a change of dependencies, then commit the files.
# shellcheck source=setup/tool.sh
. "$(dirname "$0")/tool.sh"
install_tool pip-tools==7.6.2

# compile OUTPUT ARGUMENT...
compile() {
    output=$1
    shift
    CUSTOM_COMPILE_COMMAND=setup/lock.sh "$tools/bin/pip-compile" --quiet --generate-hashes --strip-extras --allow-unsafe \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file "$output" "$@"
}

compile setup/requirements.txt --extra lab --extra dev --build-deps-for editable pyproject.toml
compile setup/requirements-tool.txt --constraint setup/requirements.txt --build-deps-for wheel --no-annotate pyproject.toml
# pyspark is a source distribution, and building it needs setuptools in place: so it is locked and installed apart.
python3 -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["spark"]))' \
    >"$tools/spark.in"
compile setup/requirements-spark.txt --constraint setup/requirements.txt --no-annotate "$tools/spark.in"

# Clients that the set-up does not install. The first confluent-kafka with a wheel for Python 3.11 cannot stand beside
# the one of the load, so each lock gets a folder of its own.
for client in aiokafka 'confluent-kafka==2.0.2'; do
    echo "$client" >"$tools/client.in"
    case $client in aiokafka) name=aiokafka ;; *) name=librdkafka-oldest ;; esac
    compile "setup/clients/$name.txt" --no-annotate "$tools/client.in"
done
