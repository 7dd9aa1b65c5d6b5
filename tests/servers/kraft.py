"""A broker with KRaft as a process: broker and controller in one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import ADDRESS, START_SECONDS, free_port, server
from zkmigrate.kafka.clients import admin
from zkmigrate.lab import provision
from zkmigrate.lab.render import kraft_cluster_id
from zkmigrate.lab.wait import wait_until
from zkmigrate.model.fact import Seen


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
        f"log.dirs={folder / 'kraft'}\nauto.create.topics.enable=false\n"
        "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        "transaction.state.log.num.partitions=1\ngroup.initial.rebalance.delay.ms=0\n"
        "log.cleaner.dedupe.buffer.size=4000000\n"
    )
    jars = provision.kafka_classpath(version)
    words = ["java", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars)), "kafka.tools.StorageTool"]
    words += ["format", "-t", kraft_cluster_id(str(folder), "kraft"), "-c", str(config)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with server("java", jars, ["-Xmx256m", "kafka.Kafka", str(config)], log) as process:

        def silent() -> str | None:
            assert process.poll() is None, f"Kafka {version} ended:\n{log.read_text()[-3000:]}"
            told = admin.ask([address], lambda _client, releases: Seen(len(releases)))
            return None if told == Seen(1) else str(told)

        wait_until(f"Kafka {version}", silent, START_SECONDS)
        yield address
