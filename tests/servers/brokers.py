"""Real brokers with ZooKeeper, that begin side by side."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_port
from tests.servers.process import ADDRESS, server, wait_until_it_answers
from zkmigrate.lab import provision

ALONE = (
    "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n"
    "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
    "transaction.state.log.num.partitions=1\nlog.cleaner.dedupe.buffer.size=4000000\n"
    "auto.create.topics.enable=false\ngroup.initial.rebalance.delay.ms=0\n"
)
"""Settings of a broker that is alone: its internal topics have one partition and one replica."""


@dataclass(frozen=True)
class Broker:
    """One broker that is to begin. chroot: its cluster's in ZooKeeper. settings: more of its lines.
    listeners: more of them, each behind a comma. jars: more of them."""

    release: str
    settings: str = ""
    id: int = 1
    chroot: str = "kafka"
    listeners: str = ""
    log_dirs: str = ""
    jars: tuple[Path, ...] = ()
    session_ms: int = 600_000
    heap: str = "256m"
    address: str = field(default_factory=lambda: f"{ADDRESS}:{free_port()}")


@contextmanager
def serve(folder: Path, zookeeper: int, *wanted: Broker) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Their processes, once all of them answer. zookeeper: its client port. They end with the block, side by
    side: a controlled shutdown would wait for brokers that have gone."""
    begun = list[tuple[Broker, subprocess.Popen[bytes], Path]]()
    with ExitStack() as stack:
        for one in wanted:
            name = f"{one.chroot}{one.id}"
            config, log = folder / f"{name}.properties", folder / f"{name}.log"
            config.write_text(
                f"broker.id={one.id}\nlisteners=PLAINTEXT://{one.address}{one.listeners}\n"
                f"log.dirs={one.log_dirs or folder / name}\ncontrolled.shutdown.enable=false\n"
                f"zookeeper.connect={ADDRESS}:{zookeeper}/{one.chroot}\n"
                f"zookeeper.session.timeout.ms={one.session_ms}\n{one.settings}"
            )
            jars = (*provision.kafka_classpath(one.release), *one.jars)
            main = [f"-Xmx{one.heap}", "kafka.Kafka", str(config)]
            begun.append((one, stack.enter_context(server("java", jars, main, log)), log))
        for one, process, log in begun:
            wait_until_it_answers(f"Kafka {one.release}", process, log, one.address)
        try:
            yield [process for _, process, _ in begun]
        finally:
            for _, process, _ in begun:
                process.terminate()
