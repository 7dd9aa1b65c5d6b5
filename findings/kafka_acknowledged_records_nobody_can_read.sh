#!/bin/sh
# Finding: below min.insync.replicas a leader acknowledges records with acks=1 that no consumer sees and no end offset counts.
#
# Versions: Apache Kafka 4.3.1 (two nodes, KRaft), kafka-python 3.0.12, Java 17; seen 2026-11-28.
# Input:    a topic of two replicas with min.insync.replicas=2; the follower is killed and leaves the in-sync replicas; then
#           three records with acks=1.
# Expected: either the records are refused, or they can be read: the leader is the only in-sync replica.
# Seen:     all three are acknowledged with their offsets. The high watermark stands still (KIP-966), so ListOffsets tells
#           the same end as before, and a consumer's lag is 0, until a second replica is in sync again:
#             acknowledged at 1 to 3, end of the log as consumers are told 1
# Who meets it: whoever takes the end that ListOffsets tells for all that producers were promised, before a switch or a copy.
#           Look at the in-sync replicas as well.
# The script exits with 1 when Kafka behaves otherwise.
set -eu

work=$(mktemp -d)
brokers=
end() {
    for one in $brokers; do
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
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
  </dependencies>
</project>
XML
mvn --quiet --batch-mode -Dmaven.repo.local="$work/m2" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$work/jars" >maven.log 2>&1 || { cat maven.log >&2; exit 1; }

free_ports() {
    python3 -c 'import socket
held = [socket.socket() for _ in range(3)]
[one.bind(("127.0.0.1", 0)) for one in held]
print(*(one.getsockname()[1] for one in held))'
}
# shellcheck disable=SC2046 # three words
set -- $(free_ports)
for node in 1 2; do
    roles=broker
    listeners="PLAINTEXT://127.0.0.1:$3"
    if [ "$node" = 1 ]; then
        roles=broker,controller
        listeners="PLAINTEXT://127.0.0.1:$1,CONTROLLER://127.0.0.1:$2"
    fi
    cat >"server$node.properties" <<PROPERTIES
process.roles=$roles
node.id=$node
controller.quorum.voters=1@127.0.0.1:$2
listeners=$listeners
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$work/data$node
PROPERTIES
    java -cp "$work/jars/*" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c "server$node.properties" \
        >"format$node.log" 2>&1
    java -Xmx256m -cp "$work/jars/*" kafka.Kafka "server$node.properties" >"broker$node.log" 2>&1 &
    brokers="$brokers $!"
done
# shellcheck disable=SC2086 # one word per process
set -- "$1" "$3" $brokers

cat >seen.py <<'PY'
import os
import signal
import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

leader, follower, _, second = sys.argv[1:]
until = time.monotonic() + 90
while True:
    try:
        admin = KafkaAdminClient(bootstrap_servers=[leader, follower])
        topic = {"num_partitions": -1, "assignments": {0: [1, 2]}, "configs": {"min.insync.replicas": "2"}}
        admin.create_topics({"plain": topic}, wait_for_metadata=True)
        break
    except (KafkaError, OSError):
        if time.monotonic() > until:
            raise
        time.sleep(1)


def wait_for_replicas(count):
    until = time.monotonic() + 90
    while len(admin.describe_topics(["plain"])[0]["partitions"][0]["isr_nodes"]) != count:
        assert time.monotonic() < until, f"not {count} replicas in sync"
        time.sleep(0.3)


wait_for_replicas(2)
KafkaProducer(bootstrap_servers=leader, acks="all").send("plain", b"0").get(60)
os.kill(int(second), signal.SIGKILL)
wait_for_replicas(1)
producer = KafkaProducer(bootstrap_servers=leader, acks=1, enable_idempotence=False)
offsets = [producer.send("plain", b"%d" % n).get(60).offset for n in (1, 2, 3)]
consumer = KafkaConsumer(bootstrap_servers=leader)
part = TopicPartition("plain", 0)
end = consumer.end_offsets([part])[part]
print(f"acknowledged at {offsets[0]} to {offsets[-1]}, end of the log as consumers are told {end}")
PY
seen=$(env/bin/python seen.py "127.0.0.1:$1" "127.0.0.1:$2" "$3" "$4" 2>errors) || { cat errors >&2; exit 1; }
printf '%s\n' "$seen"
[ "$seen" = "acknowledged at 1 to 3, end of the log as consumers are told 1" ]
