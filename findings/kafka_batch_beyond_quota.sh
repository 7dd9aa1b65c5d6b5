#!/bin/sh
# Finding: a consumer with a byte-rate quota never gets a batch that is larger than the quota's window, and gets no error.
#
# Versions: Apache Kafka 4.3.1 (one node, KRaft, quota window of 11 times 1 s as shipped), kafka-python 3.0.12 for the
#           messages, Java 17; seen 2026-11-29.
# Input:    a record of 100 kB, a quota consumer_byte_rate of 1,000 bytes a second for the client id "reader", and the same
#           FETCH (version 11, without a session) of it three times, 12 s apart, so that the window is empty each time.
# Expected: the batch comes, late: a broker sends the first batch of a FETCH whole, however few bytes are asked for.
# Seen:     each answer has error 0, throttle_time_ms above 0, and not even the partition that was asked for. A record of
#           100 bytes comes at once, so the quota lets this client read:
#             small: error 0, partitions 1, records, not throttled
#             large: error 0, partitions 0, no records, throttled    (three times)
# Who meets it: whoever gives copiers or consumers a small quota: they stand still for ever without a word. And whoever
#           takes a partition that a FETCH answer leaves out for one without new records: it is unknown.
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
import socket
import struct
import sys
import time

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError
from kafka.protocol.admin import AlterClientQuotasRequest
from kafka.protocol.consumer import FetchRequest, FetchResponse

until = time.monotonic() + 60
while True:
    try:
        admin = KafkaAdminClient(bootstrap_servers=sys.argv[1], client_id="admin")
        break
    except (KafkaError, OSError):
        if time.monotonic() > until:
            raise
        time.sleep(0.5)


def exactly(wire, size):
    """Return the next bytes of a connection."""
    found = b""
    while len(found) < size:
        found += wire.recv(size - len(found)) or sys.exit("the broker closed the connection")
    return found


one = {"num_partitions": 1, "replication_factor": 1}
admin.create_topics({"small": one, "large": one}, wait_for_metadata=True)
producer = KafkaProducer(bootstrap_servers=sys.argv[1], client_id="writer")
producer.send("small", b"x" * 100).get(timeout=30)
producer.send("large", b"x" * 100_000).get(timeout=30)
producer.close()
entry = AlterClientQuotasRequest.EntryData
quota = entry(
    entity=[entry.EntityData(entity_type="client-id", entity_name="reader")],
    ops=[entry.OpData(key="consumer_byte_rate", value=1000.0, remove=False)],
)
change = AlterClientQuotasRequest(entries=[quota], validate_only=False)
change.API_VERSION = 0
answer = admin._manager.run(admin._manager.send, change, 1)
assert answer.entries[0].error_code == 0, answer
admin.close()
time.sleep(2)
topic = FetchRequest.FetchTopic
host, port = sys.argv[1].split(":")
for what in ("small", "large", "large", "large"):
    wire = socket.create_connection((host, int(port)), 30)
    part = topic.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, log_start_offset=-1, partition_max_bytes=1_000_000
    )
    asked = FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1_000_000, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[topic(topic=what, partitions=[part])], forgotten_topics_data=[], rack_id="",
    )
    asked.API_VERSION = 11
    asked.with_header(1, "reader")
    wire.sendall(asked.encode(version=11, header=True, framed=True))
    [size] = struct.unpack(">i", exactly(wire, 4))
    answer = FetchResponse.decode(exactly(wire, size), version=11, header=True)
    parts = [one for each in answer.responses for one in each.partitions]
    throttled = "throttled" if answer.throttle_time_ms else "not throttled"
    records = "records" if any(one.records for one in parts) else "no records"
    print(f"{what}: error {answer.error_code}, partitions {len(parts)}, {records}, {throttled}")
    wire.close()
    if what == "large":
        time.sleep(12)
PY
seen=$(env/bin/python seen.py "127.0.0.1:$1" 2>errors) || { cat errors broker.log >&2; exit 1; }
printf '%s\n' "$seen"
[ "$seen" = "small: error 0, partitions 1, records, not throttled
large: error 0, partitions 0, no records, throttled
large: error 0, partitions 0, no records, throttled
large: error 0, partitions 0, no records, throttled" ]
