"""Every server version the lab offers starts from the fetched jars: standalone, on loopback.

The releases of Kafka that other tests start are theirs to show."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.ports import free_port
from tests.servers.process import ADDRESS, RELEASES, START_SECONDS, server, wait_for
from zkmigrate.lab import provision
from zkmigrate.lab.readiness import four_letter_word
from zkmigrate.lab.shape import LAST_ZOOKEEPER, release
from zkmigrate.lab.spec import JAVA_11_KAFKA
from zkmigrate.zookeeper.clients.login import OPEN
from zkmigrate.zookeeper.clients.session import Limits
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.disks.location import Disks, Place
from zkmigrate.zookeeper.disks.subtree import Answer, from_disk, from_server


@contextmanager
def zookeeper(version: str, folder: Path) -> Iterator[int]:
    """A standalone ZooKeeper; yields its client port once it serves."""
    port, config, log = free_port(), folder / "zoo.cfg", folder / "zookeeper.log"
    config.write_text(
        f"tickTime=2000\ndataDir={folder / 'data'}\nclientPort={port}\nclientPortAddress={ADDRESS}\n"
        "maxSessionTimeout=600000\n4lw.commands.whitelist=*\nadmin.enableServer=false\n"
    )
    main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
    with server("java", provision.zookeeper_classpath(version), main, log) as process:
        wait_for(f"ZooKeeper {version}", process, log, port, "srvr", "Mode: standalone")
        yield port


def planted(port: int) -> None:
    """A few znodes under /kafka: one was changed last, another one's child was deleted last."""
    client = KazooClient(f"{ADDRESS}:{port}")
    client.start(START_SECONDS)
    for path in ("/kafka/a/gone", "/kafka/b", "/kafka/a/stays"):
        client.create(path, b"x", makepath=True)
    client.set("/kafka/b", b"y")
    client.delete("/kafka/a/gone")
    client.stop()
    client.close()


def extent(answer: Answer) -> tuple[object, ...]:
    """What the server and its files have to agree on."""
    return answer.extent.znodes, answer.extent.czxid, answer.extent.mzxid, answer.extent.pzxid


@pytest.mark.parametrize("version", provision.zookeeper_versions())
def test_zookeeper_starts(version: str, tmp_path: Path) -> None:
    with zookeeper(version, tmp_path) as port:
        assert (four_letter_word(ADDRESS, "srvr", port) or "").startswith(f"Zookeeper version: {version}-")
        planted(port)
        walked = from_server([Server(ADDRESS, port)], Chroot("/kafka"), 10, Limits(), OPEN, print)
        read = from_disk(
            Disks(None), Place("", str(tmp_path / "data")), None, Chroot("/kafka"), 2 << 20, print
        )
        assert extent(walked) == extent(read)


@pytest.mark.parametrize(
    "version",
    [v for v in provision.kafka_versions() if release(v) <= LAST_ZOOKEEPER and v not in RELEASES],
)
def test_kafka_registers_with_zookeeper(version: str, tmp_path: Path) -> None:
    java = str(provision.java11_home() / "bin" / "java") if version in JAVA_11_KAFKA else "java"
    config, log = tmp_path / "server.properties", tmp_path / "kafka.log"
    with zookeeper("3.5.8", tmp_path) as port:
        config.write_text(
            f"broker.id=7\nlisteners=PLAINTEXT://{ADDRESS}:{free_port()}\nlog.dirs={tmp_path / 'log'}\n"
            f"zookeeper.connect={ADDRESS}:{port}/kafka\n"
        )
        with server(java, provision.kafka_classpath(version), ["kafka.Kafka", str(config)], log) as process:
            wait_for(f"Kafka {version}", process, log, port, "dump", "/kafka/brokers/ids/7")
