"""The playbook kafka_clean_leftovers on real brokers and a real ZooKeeper: what Kafka 2.8.2 leaves behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from tests.servers.brokers import Broker, serve
from tests.servers.process import ADDRESS, START_SECONDS
from tests.servers.test_versions import zookeeper
from zkmigrate.cluster.reassign.throttle import LEADER_LIST
from zkmigrate.kafka.changes import KAFKA, AlterTopicConfig
from zkmigrate.kafka.clients import admin, log_dirs, topics
from zkmigrate.kafka.clients.znodes import Alter
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.zookeeper.changes import ZNODES, CreateZnode, DeleteZnode
from zkmigrate.zookeeper.clients.subtree import Server

VERSION = "2.8.2"
ANYBODY = ((31, "world", "anyone"),)


def inventory(folder: Path, at: str, zookeeper_port: int, *remove: str) -> Path:
    told = topics.names([at])
    assert isinstance(told, Seen)
    address, _, port = at.partition(":")
    named = "".join(f'    - "{name}"\n' for name in remove)
    file = folder / f"leftovers{len(remove)}.yml"
    file.write_text(
        f"version: 1\nname: leftovers\nkafka:\n  cluster_id: {told.value.cluster_id}\n  brokers:\n"
        f"    - {{name: broker1, address: {address}, port: {port}, id: 1}}\n"
        f"leftovers:\n  zookeeper: {ADDRESS}:{zookeeper_port}/kafka\n  older_than_s: 1\n"
        + (f"  remove:\n{named}" if remove else "")
    )
    return file


def zkmigrate(folder: Path, file: Path, verb: str) -> tuple[int, str]:
    words = [sys.executable, "-m", "zkmigrate", verb, "-i", str(file), "--playbook", "kafka_clean_leftovers"]
    done = subprocess.run(
        [*words, *(["--yes"] if verb in ("run", "rollback") else [])],
        env={**os.environ, "ZKMIGRATE_RUNS": str(folder / "runs")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, done.stdout


def test_p11_leftovers_of_real_servers_are_found_removed_by_name_and_put_back(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    broker = Broker(VERSION, "offsets.topic.replication.factor=1\n", log_dirs=str(logs), session_ms=18_000)
    at = broker.address
    with zookeeper("3.5.8", tmp_path) as zk_port:
        client = KazooClient(f"{ADDRESS}:{zk_port}")
        client.start()
        with serve(tmp_path, zk_port, broker):
            kafka = KafkaAdminClient(bootstrap_servers=[at])
            kafka.create_topics([NewTopic(name, 1, 1) for name in ("live", "gone")])
            wait_until("a log of topic gone", lambda: None if (logs / "gone-0").is_dir() else "no", 30)
            shutil.copytree(logs / "gone-0", tmp_path / "gone-0")
            kafka.delete_topics(["gone"])
            wait_until("topic gone deleted", lambda: there(client, "gone"), 30)
            kafka.close()
        # While the broker is down a directory comes back, from a backup or with a disk.
        shutil.copytree(tmp_path / "gone-0", logs / "gone-0")
        with serve(tmp_path, zk_port, broker):
            acl = [make_digest_acl("admin", "secret", all=True), *client.get_acls("/kafka/brokers")[0]]
            client.create("/kafka/config/topics/stray", b'{"version":1,"config":{"retention.ms":"1"}}', acl)
            client.create("/kafka/brokers/topics/empty", b"no json")
            client.create("/kafka/admin/reassign_partitions", b"no json")
            alter = admin.Alter([at])
            # A broker that has just started does not know its topics until its controller informs it.
            limit = AlterTopicConfig(KAFKA, "live", LEADER_LIST, "0:1", None)
            wait_until("a broker that knows topic live", lambda: refused(alter, limit), START_SECONDS)
            alter.close()
            disk = log_dirs.log_dirs([at], (1,), None)
            assert isinstance(disk, Seen), "the broker holds a log of a topic that nobody knows"
            before = tree(client)

            def old() -> str | None:
                code, text = zkmigrate(tmp_path, inventory(tmp_path, at, zk_port), "preflight")
                assert code == 0, text
                names = ("/config/topics/stray", "/brokers/topics/empty", "/admin/reassign_partitions")
                return None if all(name in text for name in names) else text

            wait_until("leftovers older than a second", old, 60)
            code, text = zkmigrate(tmp_path, inventory(tmp_path, at, zk_port), "preflight")
            assert f"broker1:{logs}/gone-0" in text, text
            assert "topic gone does not exist" in text
            assert "topic/live/leader.replication.throttled.replicas" in text
            assert "/config/topics/live" not in text
            assert "live-0" not in text
            assert tree(client) == before, "it only looks"

            gone = {"/config/topics/stray", "/brokers/topics/empty", "/admin/reassign_partitions"}
            file = inventory(tmp_path, at, zk_port, *sorted(gone), "topic/live/*")
            code, text = zkmigrate(tmp_path, file, "run")
            assert code == 0, text
            assert {path for path in before if path not in tree(client)} == gone
            assert client.exists("/kafka/controller")
            kafka = KafkaAdminClient(bootstrap_servers=[at])
            kafka.create_topics([NewTopic("empty", 1, 1)])  # refused before: it existed
            kafka.delete_topics(["empty"])
            kafka.close()
            wait_until("topic empty deleted", lambda: there(client, "empty"), 30)
            code, text = zkmigrate(tmp_path, file, "rollback")
            assert code == 0, text
            after = tree(client)
            assert {path for path in before if path not in after} == {"/admin/reassign_partitions"}
            assert after["/config/topics/stray"] == before["/config/topics/stray"], "data and ACL"
            own = topics.settings([at], LEADER_LIST, ("live",))
            assert isinstance(own, Seen)
            setting = own.value["live"]
            assert isinstance(setting, Seen)
            assert setting.value.own == "0:1"

            # What the playbook rests on.
            sender = Alter([Server(ADDRESS, zk_port)])
            stat = client.exists("/kafka/controller")
            mark = f"{stat.czxid:x} {stat.mzxid:x} {stat.version}"
            code, why = sender(DeleteZnode(ZNODES, "/kafka", "/controller", b"", ANYBODY, mark))
            assert (code, why) == (
                1,
                "nothing was sent: /controller is not a znode that operations leave behind",
            )
            assert client.exists("/kafka/controller")
            code, why = sender(DeleteZnode(ZNODES, "/kafka", "/config/topics/stray", b"", ANYBODY, "1 1 0"))
            assert (code, why.endswith("so it was not deleted")) == (1, True)
            assert sender(CreateZnode(ZNODES, "/kafka", "/config/topics/stray", b"x", ANYBODY))[0] == 0
            assert client.get("/kafka/config/topics/stray")[0] != b"x", "what exists stays"
            sender.close()
        client.stop()
        client.close()


def refused(alter: admin.Alter, change: AlterTopicConfig) -> str | None:
    """Why Kafka does not take the change; None once it has."""
    code, why = alter(change)
    return why if code else None


def there(client: KazooClient, topic: str) -> str | None:
    """What is left to delete of a topic."""
    return "its znode" if client.exists(f"/kafka/brokers/topics/{topic}") else None


def tree(client: KazooClient) -> dict[str, tuple[bytes, object]]:
    """Data and ACL of Kafka's znodes below the folders with leftovers, by path below the chroot."""
    found = {}
    for folder in ("/config/topics", "/brokers/topics", "/admin"):
        for name in client.get_children(f"/kafka{folder}"):
            path = f"{folder}/{name}"
            found[path] = (client.get(f"/kafka{path}")[0], client.get_acls(f"/kafka{path}")[0])
    return found
