#!/bin/sh
# Finding: in ZooKeeper 3.8.4 `exists` of a znode needs its READ right; the same client works with 3.5.8.
#
# Versions: Apache ZooKeeper 3.5.8 and 3.8.4, each one server alone, kazoo 2.11.0, Java 17; seen 2026-11-30.
# Input:    a znode whose ACL is digest:owner:cdrwa and nothing else; a second client without an identity asks `exists` for it,
#           and for a name that does not exist.
# Expected: the same answer from both releases: the programmer's guide lists READ for getData and getChildren only.
# Seen:     3.5.8 answers with the znode's stat, 3.8.4 refuses; a missing name is "missing" for both:
#             3.5.8: there: a stat; missing: none
#             3.8.4: there: NoAuthError; missing: none
# Who meets it: who moves to a newer ensemble a client that looks with `exists` whether another one's znode is there, such as
#           a lock or a registration under an ACL of its owner. Give that client READ before the move.
# The script exits with 1 when ZooKeeper behaves otherwise.
set -eu

work=$(mktemp -d)
servers=''
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
env/bin/pip --quiet --disable-pip-version-check install kazoo==2.11.0

# jars RELEASE FURTHER: the server's jars, and what only its distribution has
jars() {
    mkdir "$1"
    cat >"$1/pom.xml" <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>server</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>$1</version></dependency>
    <dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.1.12.1</version></dependency>
    <dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.5</version></dependency>
  </dependencies>
</project>
XML
    mvn --quiet --batch-mode --file="$1/pom.xml" -Dmaven.repo.local="$work/m2" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$work/$1/jars" >maven.log 2>&1 || { cat maven.log >&2; exit 1; }
}

cat >seen.py <<'PY'
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl


def told(client, path):
    """Say what the server answers to exists."""
    try:
        return "none" if client.exists(path) is None else "a stat"
    except NoAuthError as error:
        return type(error).__name__


owner, stranger = KazooClient(sys.argv[1], timeout=30), KazooClient(sys.argv[1], timeout=30)
for client in (owner, stranger):
    client.start(timeout=60)
owner.add_auth("digest", "owner:word")
owner.create("/there", b"", acl=[make_digest_acl("owner", "word", all=True)])
print(f"{sys.argv[2]}: there: {told(stranger, '/there')}; missing: {told(stranger, '/missing')}")
for client in (owner, stranger):
    client.stop()
PY

seen=''
for release in 3.5.8 3.8.4; do
    jars "$release"
    port=$(python3 -c 'import socket
with socket.socket() as held:
    held.bind(("127.0.0.1", 0))
    print(held.getsockname()[1])')
    cat >"$release/zoo.cfg" <<CFG
clientPort=$port
clientPortAddress=127.0.0.1
dataDir=$work/$release/data
admin.enableServer=false
CFG
    java -Xmx128m -cp "$work/$release/jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain "$release/zoo.cfg" \
        >"$release/log" 2>&1 &
    servers="$servers $!"
    seen="$seen$(env/bin/python seen.py "127.0.0.1:$port" "$release" 2>errors)
" || { cat errors "$release/log" >&2; exit 1; }
done
printf '%s' "$seen"
[ "$seen" = "3.5.8: there: a stat; missing: none
3.8.4: there: NoAuthError; missing: none
" ]
