"""A broker with KRaft as a process: broker and controller in one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.servers.brokers import ALONE
from tests.servers.process import ADDRESS, START_SECONDS, server, wait_until_it_answers
from zkmigrate.lab import provision
from zkmigrate.lab.render import kraft_cluster_id


@contextmanager
def broker(version: str, folder: Path, node: int = 1) -> Iterator[str]:
    """Yields the broker's address once it answers. Its internal topics have one partition and one replica."""
    address, controller = (f"{ADDRESS}:{free_port()}" for _ in range(2))
    config, log = folder / "kraft.properties", folder / "kraft.log"
    config.write_text(
        f"process.roles=broker,controller\nnode.id={node}\ncontroller.quorum.voters={node}@{controller}\n"
        f"listeners=PLAINTEXT://{address},CONTROLLER://{controller}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={folder / 'kraft'}\n{ALONE}"
        "share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n"
        "share.coordinator.state.topic.num.partitions=1\n"
    )
    jars = provision.kafka_classpath(version)
    words = ["java", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars)), "kafka.tools.StorageTool"]
    words += ["format", "-t", kraft_cluster_id(str(folder), "kraft"), "-c", str(config)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with server("java", jars, ["-Xmx256m", "kafka.Kafka", str(config)], log) as process:
        wait_until_it_answers(f"Kafka {version}", process, log, address)
        yield address
