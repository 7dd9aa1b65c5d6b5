#!/bin/sh
# Write build/sbom-tool.json (what an operator's machine gets) and build/sbom-spark.json (what analyses need besides) from
# the locks, as CycloneDX: names, versions, hashes.
# shellcheck source=setup/tool.sh
. "$(dirname "$0")/tool.sh"
install_tool cyclonedx-bom==7.5.0
mkdir -p build
for part in tool spark; do
    # A lock does not say which package needs which, and the program warns of that.
    PYTHONWARNINGS=ignore "$tools/bin/cyclonedx-py" requirements --pyproject pyproject.toml --output-reproducible \
        --output-file "build/sbom-$part.json" "setup/requirements-$part.txt"
    echo "build/sbom-$part.json"
done
