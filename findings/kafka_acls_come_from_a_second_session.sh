#!/bin/sh
# Finding: a Kafka broker writes ACLs to ZooKeeper by a second session, which owns no znode that would show whose it is.
#
# Versions: Apache Kafka 3.9.1 with its ZooKeeper 3.8.4, kafka-python 3.0.12, Java 17; seen 2026-11-30.
# Input:    one broker with AclAuthorizer; one ACL is created through the broker.
# Expected: the write comes from the session that registered the broker: a broker is one client of ZooKeeper.
# Seen:     ZooKeeper's log has the ACL under another session, and no ephemeral belongs to that one:
#             the ACL was written by the broker's session: no; ephemerals of the session that wrote it: 0
# Who meets it: whoever tells brokers from other clients by the owner of /brokers/ids in ZooKeeper's log or list of
#           sessions, for example to find programs that still write to an ensemble that is about to be switched off.
# The script exits with 1 when Kafka behaves otherwise.
set -eu

work=$(mktemp -d)
servers=
end() {
    for one in $servers; do
        { kill "$one" 2>/dev/null && wait "$one"; } || true
    done
    rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM
cd "$work"
python3 -m venv env
env/bin/pip --quiet --disable-pip-version-check install kafka-python==3.0.12 kazoo==2.10.0
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>servers</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>3.9.1</version></dependency>
    <dependency><groupId>commons-cli</groupId><artifactId>commons-cli</artifactId><version>1.5.0</version></dependency>
  </dependencies>
</project>
XML
mvn --quiet --batch-mode -Dmaven.repo.local="$work/m2" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$work/jars" >maven.log 2>&1 || { cat maven.log >&2; exit 1; }

# shellcheck disable=SC2046 # two words
set -- $(python3 -c 'import socket
held = [socket.socket() for _ in range(2)]
[one.bind(("127.0.0.1", 0)) for one in held]
print(*(one.getsockname()[1] for one in held))')
cat >zoo.cfg <<CFG
dataDir=$work/zookeeper
clientPort=$1
clientPortAddress=127.0.0.1
admin.enableServer=false
CFG
cat >server.properties <<PROPERTIES
broker.id=0
zookeeper.connect=127.0.0.1:$1
listeners=PLAINTEXT://127.0.0.1:$2
log.dirs=$work/data
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:ANONYMOUS
PROPERTIES
java -Xmx128m -cp "$work/jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg >zookeeper.log 2>&1 &
servers="$!"
java -Xmx256m -cp "$work/jars/*" kafka.Kafka server.properties >broker.log 2>&1 &
servers="$! $servers"

cat >seen.py <<'PY'
import re
import subprocess
import sys
import time
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import KafkaError
from kazoo.client import KazooClient

zookeeper, broker = sys.argv[1:]
until = time.monotonic() + 90
while True:
    try:
        admin = KafkaAdminClient(bootstrap_servers=[broker])
        break
    except (KafkaError, OSError):
        if time.monotonic() > until:
            raise
        time.sleep(1)
right = (ACLOperation.READ, ACLPermissionType.ALLOW)
admin.create_acls([ACL("User:reader", "*", *right, ResourcePattern(ResourceType.TOPIC, "orders"))])

client = KazooClient(hosts=zookeeper)
client.start(timeout=60)
until = time.monotonic() + 60
while not client.exists("/kafka-acl/Topic/orders"):
    assert time.monotonic() < until, "the ACL is not in ZooKeeper"
    time.sleep(0.3)
created = client.get("/kafka-acl/Topic/orders")[1].czxid
registered = client.get("/brokers/ids/0")[1].ephemeralOwner


def ephemerals(path, owner):
    found = client.exists(path)
    own = int(found is not None and found.ephemeralOwner == owner)
    return own + sum(ephemerals(f"{path.rstrip('/')}/{name}", owner) for name in client.get_children(path))


(log,) = Path("zookeeper/version-2").glob("log.*")
toolkit = ["java", "-cp", "jars/*", "org.apache.zookeeper.server.persistence.TxnLogToolkit", "--dump", str(log)]
dumped = subprocess.run(toolkit, capture_output=True, text=True, timeout=120, check=True).stdout
(writer,) = re.findall(rf"session 0x([0-9a-f]+) cxid 0x[0-9a-f]+ zxid 0x{created:x} ", dumped)
same = "yes" if int(writer, 16) == registered else "no"
print(
    f"the ACL was written by the broker's session: {same}; "
    f"ephemerals of the session that wrote it: {ephemerals('/', int(writer, 16))}"
)
client.stop()
PY
seen=$(env/bin/python seen.py "127.0.0.1:$1" "127.0.0.1:$2" 2>errors) || { cat errors >&2; exit 1; }
printf '%s\n' "$seen"
[ "$seen" = "the ACL was written by the broker's session: no; ephemerals of the session that wrote it: 0" ]
