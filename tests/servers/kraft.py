"""A broker with KRaft as a process: broker and controller in one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.servers.brokers import ALONE
from tests.servers.process import ADDRESS, START_SECONDS, archive, server, wait_until_it_answers
from zkmigrate.lab import provision
from zkmigrate.lab.render import kraft_cluster_id

OTHER_ADDRESS = ADDRESS.replace("127.1.", "127.12.", 1)
"""Where a second broker listens: an inventory names each address once."""


@contextmanager
def broker(
    version: str, folder: Path, node: int = 1, listeners: str = "", settings: str = ""
) -> Iterator[str]:
    """Yields the broker's address once it answers. Its internal topics have one partition and one replica.

    listeners: more of them, each behind a comma. settings: more of its lines.
    """
    voter = _new_voter(node)
    with _serving(version, folder, node, voter, "broker,controller", listeners, settings) as (address, _):
        yield address


@contextmanager
def two_brokers(version: str, folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Yields the address of broker 1, which is the controller too, and the process of broker 2. Their racks
    are r1 and r2."""
    voter, rack = _new_voter(1), "broker.rack=r{}\n".format
    with (
        _serving(version, folder, 1, voter, "broker,controller", settings=rack(1)) as (address, _),
        _serving(version, folder, 2, voter, "broker", settings=rack(2), host=OTHER_ADDRESS) as (_, other),
    ):
        yield address, other


def _new_voter(node: int) -> str:
    return f"{node}@{ADDRESS}:{free_port()}"


@contextmanager
def _serving(
    version: str,
    folder: Path,
    node: int,
    voter: str,
    roles: str,
    listeners: str = "",
    settings: str = "",
    host: str = ADDRESS,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    address, controller = f"{host}:{free_port()}", voter.partition("@")[2]
    own = f",CONTROLLER://{controller}" if "controller" in roles else ""
    config, log = folder / f"kraft{node}.properties", folder / f"kraft{node}.log"
    config.write_text(
        f"process.roles={roles}\nnode.id={node}\ncontroller.quorum.voters={voter}\n"
        f"listeners=PLAINTEXT://{address}{listeners}{own}\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,"
        "CONTROLLER:PLAINTEXT\n"
        f"log.dirs={folder / f'kraft{node}'}\n{ALONE}"
        "share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n"
        f"share.coordinator.state.topic.num.partitions=1\n{settings}"
    )
    jars = provision.kafka_classpath(version)
    words = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={archive(jars)}"]
    words += ["-cp", ":".join(map(str, jars)), "kafka.tools.StorageTool", "format"]
    words += ["-t", kraft_cluster_id(str(folder), "kraft"), "-c", str(config)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with server("java", jars, ["-Xmx256m", "kafka.Kafka", str(config)], log) as process:
        wait_until_it_answers(f"Kafka {version}", process, log, address)
        yield address, process
