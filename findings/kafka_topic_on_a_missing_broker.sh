#!/bin/sh
# Finding: Kafka 2.8.2 with ZooKeeper creates a topic whose replica assignment names a broker that does not exist.
#
# Versions: Apache Kafka 2.8.2 (one broker, id 1) on Apache ZooKeeper 3.5.9, kafka-python 3.0.12, Java 17; seen 2026-11-29.
# Input:    CreateTopics with the assignment of partition 0 to brokers 1 and 77, in a cluster that has only broker 1; first
#           with validate_only, then without. Later releases with KRaft refuse it with INVALID_REPLICA_ASSIGNMENT.
# Expected: the error INVALID_REPLICA_ASSIGNMENT, at the latest from the request that is not only validated.
# Seen:     both requests succeed, and the partition has no second replica for as long as no broker 77 starts:
#             validated: no error
#             created: no error
#             replicas [1, 77], in-sync replicas [1]
# Who meets it: whoever plans replicas by hand and relies on the broker to notice a wrong broker id. Compare the ids of the
#           plan with the brokers that are registered before you send it.
# The script exits with 1 when Kafka behaves otherwise.
set -eu

work=$(mktemp -d)
broker='' zookeeper=''
end() {
    for one in $broker $zookeeper; do
        { kill "$one" 2>/dev/null && wait "$one"; } || true
    done
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
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>2.8.2</version></dependency>
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
cat >zoo.cfg <<CFG
clientPort=$2
clientPortAddress=127.0.0.1
dataDir=$work/zookeeper
admin.enableServer=false
CFG
java -Xmx128m -cp "$work/jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg >zookeeper.log 2>&1 &
zookeeper=$!
cat >server.properties <<PROPERTIES
broker.id=1
zookeeper.connect=127.0.0.1:$2
listeners=PLAINTEXT://127.0.0.1:$1
log.dirs=$work/data
offsets.topic.replication.factor=1
PROPERTIES
java -Xmx256m -cp "$work/jars/*" kafka.Kafka server.properties >broker.log 2>&1 &
broker=$!

cat >seen.py <<'PY'
import sys
import time

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import MetadataRequest

until = time.monotonic() + 60
while True:
    try:
        admin = KafkaAdminClient(bootstrap_servers=sys.argv[1])
        break
    except (KafkaError, OSError):
        if time.monotonic() > until:
            raise
        time.sleep(0.5)


def ask(request, version):
    """Send one request to the only broker, and return its answer."""
    request.API_VERSION = version
    return admin._manager.run(admin._manager.send, request, 1)


topic = CreateTopicsRequest.CreatableTopic
where = topic.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 77])
for what, validate in (("validated", True), ("created", False)):
    own = topic(name="plain", num_partitions=-1, replication_factor=-1, assignments=[where], configs=[])
    answer = ask(CreateTopicsRequest(topics=[own], timeout_ms=10_000, validate_only=validate), 4)
    error = answer.topics[0].error_code
    print(f"{what}: {f'error {error}' if error else 'no error'}")
for _ in range(50):
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="plain")], allow_auto_topic_creation=False)
    found = ask(asked, 5).topics[0].partitions
    if found and found[0].leader_id == 1:
        break
    time.sleep(0.2)
print(f"replicas {list(found[0].replica_nodes)}, in-sync replicas {list(found[0].isr_nodes)}")
admin.close()
PY
seen=$(env/bin/python seen.py "127.0.0.1:$1" 2>errors) || { cat errors broker.log >&2; exit 1; }
printf '%s\n' "$seen"
[ "$seen" = "validated: no error
created: no error
replicas [1, 77], in-sync replicas [1]" ]
