#!/bin/sh
# Finding: DescribeGroups calls a live group of the new consumer protocol Dead, without an error.
#
# Versions: Apache Kafka 4.3.1 (one node, KRaft), confluent-kafka 2.16.1, kafka-python 3.0.12, Java 17; seen 2026-11-28.
# Input:    one consumer with group.protocol=consumer (KIP-848) that has its partition and has not committed;
#           DescribeGroups up to version 5 as kafka-python 3.0.12 sends it, and ListGroups version 5.
# Expected: an error, or the group's state: it has a live member.
# Seen:     DescribeGroups answers error 0, state Dead and no member, as for a group that does not exist. ListGroups tells:
#             described Dead with 0 members, listed Stable of type consumer
# Who meets it: whoever decides by DescribeGroups that a group is gone before deleting, moving or resetting something.
#           Ask ListGroups for state and type first, and ConsumerGroupDescribe for members.
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
env/bin/pip --quiet --disable-pip-version-check install kafka-python==3.0.12 confluent-kafka==2.16.1
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

from confluent_kafka import Consumer
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest

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
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "live", "group.protocol": "consumer"})
consumer.subscribe(["plain"])
until = time.monotonic() + 60
while not consumer.assignment():
    assert time.monotonic() < until, "the consumer got no partition"
    consumer.poll(0.2)


def ask(request):
    return admin._manager.run(lambda: admin._net.call_soon_with_future(admin._manager.send, request, 1))


described = ask(DescribeGroupsRequest(groups=["live"], max_version=5)).groups[0]
listed = next(one for one in ask(ListGroupsRequest(max_version=5)).groups if one.group_id == "live")
assert described.error_code == 0
print(
    f"described {described.group_state} with {len(described.members)} members, "
    f"listed {listed.group_state} of type {listed.group_type.lower()}"
)
consumer.close()
admin.close()
PY
seen=$(env/bin/python seen.py "127.0.0.1:$1" 2>errors) || { cat errors broker.log >&2; exit 1; }
printf '%s\n' "$seen"
[ "$seen" = "described Dead with 0 members, listed Stable of type consumer" ]
