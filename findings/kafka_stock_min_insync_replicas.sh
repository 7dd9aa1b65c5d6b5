#!/bin/sh
# Finding: on a stock Kafka 4.3.1 cluster min.insync.replicas of every topic counts as set dynamically, not as a default.
#
# Versions: Apache Kafka 4.3.1 (one node, KRaft, formatted without options), kafka-python 3.0.12, Java 17; seen 2026-11-28.
# Input:    a topic without any setting, on a cluster in which nobody has altered a setting; DescribeConfigs of that topic.
# Expected: min.insync.replicas has the source DEFAULT_CONFIG, since nobody has set it.
# Seen:     the source is DYNAMIC_DEFAULT_BROKER_CONFIG: formatting enables eligible leader replicas (KIP-966), and that
#           writes the setting for the whole cluster:
#             min.insync.replicas=1 from DYNAMIC_DEFAULT_BROKER_CONFIG
# Who meets it: whoever compares "settings that differ from the default" between a cluster of 3.9 or older and a new one.
#           Compare effective values, whatever their source.
# The script exits with 1 when Kafka behaves otherwise.
set -eu

work=$(mktemp -d)
broker=
end() {
    [ -z "$broker" ] || { kill "$broker" 2>/dev/null && wait "$broker"; } || true
    rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM
cd "$work"
python3 -m venv env
env/bin/pip --quiet --disable-pip-version-check install kafka-python==3.0.12
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>servers</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
  </dependencies>
</project>
XML
mvn --quiet --batch-mode -Dmaven.repo.local="$work/m2" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$work/jars" >maven.log 2>&1 || { cat maven.log >&2; exit 1; }

free_ports() {
    python3 -c 'import socket
held = [socket.socket() for _ in range(2)]
[one.bind(("127.0.0.1", 0)) for one in held]
print(*(one.getsockname()[1] for one in held))'
}
# shellcheck disable=SC2046 # two words
set -- $(free_ports)
cat >server.properties <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$2
listeners=PLAINTEXT://127.0.0.1:$1,CONTROLLER://127.0.0.1:$2
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$work/data
offsets.topic.replication.factor=1
PROPERTIES
java -cp "$work/jars/*" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c server.properties >format.log 2>&1
java -Xmx256m -cp "$work/jars/*" kafka.Kafka server.properties >broker.log 2>&1 &
broker=$!

cat >seen.py <<'PY'
import sys
import time

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource
from kafka.errors import KafkaError

until = time.monotonic() + 60
while True:
    try:
        admin = KafkaAdminClient(bootstrap_servers=sys.argv[1])
        break
    except (KafkaError, OSError):
        if time.monotonic() > until:
            raise
        time.sleep(0.5)
admin.create_topics({"plain": {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
told = admin.describe_configs([ConfigResource("topic", "plain")], config_filter="all")["topic"]["plain"]
one = told["min.insync.replicas"]
print(f"min.insync.replicas={one['value']} from {one['config_source']}")
admin.close()
PY
seen=$(env/bin/python seen.py "127.0.0.1:$1" 2>errors) || { cat errors broker.log >&2; exit 1; }
printf '%s\n' "$seen"
[ "$seen" = "min.insync.replicas=1 from DYNAMIC_DEFAULT_BROKER_CONFIG" ]
