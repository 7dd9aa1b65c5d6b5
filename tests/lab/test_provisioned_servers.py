"""Every server version the lab offers starts from the fetched jars: standalone, on loopback."""

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zkmigrate.clients.session import Limits
from zkmigrate.clients.subtree import Server
from zkmigrate.disks.place import Disks, Place
from zkmigrate.disks.subtree import Answer, from_disk, from_server
from zkmigrate.lab import provision
from zkmigrate.lab.spec import JAVA_11_KAFKA
from zkmigrate.lab.waiting import wait_until

pytestmark = pytest.mark.lab

START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def four_letter_word(port: int, word: str) -> str:
    """The server's answer; empty while nobody answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(word.encode())
            return connection.makefile().read()
    except OSError:
        return ""


@contextmanager
def server(
    java: str, jars: Sequence[Path], argv: Sequence[str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A server process that ends with the block."""
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars))]
    with log.open("wb") as output:
        process = subprocess.Popen([java, *options, *argv], stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(
    what: str, process: subprocess.Popen[bytes], log: Path, port: int, word: str, answer: str
) -> None:
    """Until ZooKeeper's answer holds `answer`; an ended server fails at once, with its log."""

    def missing() -> str | None:
        assert process.poll() is None, f"{what} ended with {process.returncode}:\n{log.read_text()[-3000:]}"
        seen = four_letter_word(port, word)
        return None if answer in seen else f"{word} said {seen!r}"

    wait_until(what, missing, START_SECONDS)


@contextmanager
def zookeeper(version: str, folder: Path) -> Iterator[int]:
    """A standalone ZooKeeper; yields its client port once it serves."""
    port, config, log = free_port(), folder / "zoo.cfg", folder / "zookeeper.log"
    config.write_text(
        f"tickTime=2000\ndataDir={folder / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "4lw.commands.whitelist=*\nadmin.enableServer=false\n"
    )
    main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
    with server("java", provision.zookeeper_classpath(version), main, log) as process:
        wait_for(f"ZooKeeper {version}", process, log, port, "srvr", "Mode: standalone")
        yield port


def planted(port: int) -> None:
    """A few znodes under /kafka: one was changed last, another one's child was deleted last."""
    client = KazooClient(f"127.0.0.1:{port}")
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
        assert four_letter_word(port, "srvr").startswith(f"Zookeeper version: {version}-")
        planted(port)
        walked = from_server([Server("127.0.0.1", port)], "/kafka", 10, Limits(), print)
        read = from_disk(Disks(None), Place("", str(tmp_path / "data")), None, "/kafka", 2 << 20, print)
        assert extent(walked) == extent(read)
    log = (tmp_path / "zookeeper.log").read_text()
    assert "NoClassDefFoundError" not in log
    assert "Failed to load class" not in log, "no slf4j binding: the server would log nothing"


@pytest.mark.parametrize("version", provision.kafka_versions())
def test_kafka_registers_with_zookeeper(version: str, tmp_path: Path) -> None:
    java = str(provision.java11_home() / "bin" / "java") if version in JAVA_11_KAFKA else "java"
    config, log = tmp_path / "server.properties", tmp_path / "kafka.log"
    with zookeeper("3.5.8", tmp_path) as port:
        config.write_text(
            f"broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:{free_port()}\nlog.dirs={tmp_path / 'log'}\n"
            f"zookeeper.connect=127.0.0.1:{port}/kafka\n"
        )
        with server(java, provision.kafka_classpath(version), ["kafka.Kafka", str(config)], log) as process:
            wait_for(f"Kafka {version}", process, log, port, "dump", "/kafka/brokers/ids/7")
    said = log.read_text()
    assert "NoClassDefFoundError" not in said
    assert "Failed to load class" not in said, "no slf4j binding: the broker would log nothing"
