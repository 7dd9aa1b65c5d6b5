"""Records what a real broker leaves in its log.dirs, and what Kafka's own DumpLogSegments reads there.

Run with the project's environment, with a folder of Kafka's jars (one of the lab's, see
`zkmigrate.lab.provision.kafka_classpath`): ``python make_fixtures.py LIB_DIR [OUT_DIR]``. One broker with its
own controller runs on loopback for half a minute. It is killed, not stopped, so that the indexes of its
active segments keep the size that they were given beforehand.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
BATCH = re.compile(r"baseOffset: (\d+) lastOffset: (\d+) .* CreateTime: (-?\d+) size: (\d+) ")
FIRST_MS = 1_790_000_000_000
"""The producer dates the records itself: one a second from here."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def java(lib: Path, log4j: Path, *argv: str) -> list[str]:
    return ["java", "-Xmx256m", f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{lib}/*", *argv]


def properties(home: Path, port: int, controller: int) -> str:
    return f"""process.roles=broker,controller
node.id=7
controller.quorum.voters=7@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={home}/logs
offsets.topic.replication.factor=1
replica.high.watermark.checkpoint.interval.ms=1000
log.index.interval.bytes=512
log.index.size.max.bytes=4096
log.segment.delete.delay.ms=600000
"""


def fill(port: int) -> None:
    """Two topics, one of them in several segments and compressed, one with records; a third is deleted."""
    at: dict[str, str | int | float | bool] = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
    admin = AdminClient(at)
    topics = [
        NewTopic("plain.one-a", 2, 1, config={"segment.bytes": "4096"}),
        NewTopic("packed", 1, 1, config={"segment.bytes": "2048"}),
        NewTopic("gone", 1, 1),
    ]
    for made in admin.create_topics(topics).values():
        made.result(30)
    plain, packed = Producer({**at, "linger.ms": 0}), Producer({**at, "compression.type": "gzip"})
    for n in range(120):
        when = FIRST_MS + 1000 * n
        plain.produce("plain.one-a", b"v" * 100, partition=n % 2, timestamp=when)
        plain.flush(30)
        if n % 4 == 0:
            packed.produce("packed", bytes(range(n, n + 100)), partition=0, timestamp=when)
            packed.produce("packed", bytes(range(n, n + 100)), partition=0, timestamp=when + 500)
            packed.flush(30)
    plain.produce("gone", b"v", partition=0, timestamp=FIRST_MS)
    plain.flush(30)
    for one in admin.delete_topics(["gone"]).values():
        one.result(30)
    time.sleep(4)  # for the checkpoint of high watermarks


def dumped(lib: Path, log4j: Path, segment: Path) -> dict[str, int]:
    """A segment as DumpLogSegments tells it."""
    argv = java(lib, log4j, "kafka.tools.DumpLogSegments", "--files", str(segment))
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    found = [tuple(map(int, one.groups())) for one in BATCH.finditer(told)]
    if not found:
        return {"batches": 0}
    return {
        "batches": len(found),
        "first": found[0][0],
        "next": found[-1][1] + 1,
        "newest_ms": max(one[2] for one in found),
        "bytes": sum(one[3] for one in found),
    }


def record(lib: Path, out: Path, home: Path) -> None:
    port, controller = free_port(), free_port()
    config, log4j = home / "server.properties", home / "log4j.properties"
    config.write_text(properties(home, port, controller))
    log4j.write_text(
        "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.Target=System.err\nlog4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
    )
    format_ = java(lib, log4j, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(config))
    subprocess.run(format_, check=True, stdout=subprocess.DEVNULL)
    with (home / "broker.log").open("wb") as log:
        broker = subprocess.Popen(java(lib, log4j, "kafka.Kafka", str(config)), stdout=log, stderr=log)
        try:
            fill(port)
        finally:
            broker.kill()
            broker.wait(60)
    logs = home / "logs"
    kept = [
        file
        for file in sorted(logs.rglob("*"))
        if file.is_file() and "__cluster_metadata" not in str(file) and file.name != ".lock"
    ]
    segments = [file for file in kept if file.suffix == ".log"]
    told = {str(file.relative_to(logs)): dumped(lib, log4j, file) for file in segments}
    if out.is_dir():
        shutil.rmtree(out)
    for file in kept:
        target = out / file.relative_to(logs)
        target.parent.mkdir(parents=True, exist_ok=True)
        (target.parent / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    (out / "expected.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


def main() -> None:
    lib = Path(sys.argv[1]).absolute()
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "log-dir"
    with tempfile.TemporaryDirectory() as home:
        record(lib, out, Path(home))


if __name__ == "__main__":
    main()
