"""List the clients of the matrix by name. Each client is downloaded or built when it is first used.

The lab's set-up does not include the clients: only a run of the matrix downloads them.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import zkmigrate
from zkmigrate.lab import provision
from zkmigrate.lab.provision import ProvisionError
from zkmigrate.lab.wait import Progress

SOURCES = provision.POM.parent / "clients"
"""The directory of the Java and Go programs, and of the files that pin the Python wheels."""

_JAVA = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Kafka 2 and 3 log through log4j 1.2 or reload4j, which have one format, and Kafka 4 through log4j 2.
_LOG4J = """log4j.rootLogger=WARN, said
log4j.appender.said=org.apache.log4j.ConsoleAppender
log4j.appender.said.layout=org.apache.log4j.PatternLayout
log4j.appender.said.layout.ConversionPattern=%d{ISO8601} %p [%t] %c{1}: %m%n
"""
_LOG4J_2 = """rootLogger.level=WARN
rootLogger.appenderRef.said.ref=said
appender.said.type=Console
appender.said.name=said
appender.said.layout.type=PatternLayout
appender.said.layout.pattern=%d{ISO8601} %p [%t] %c{1}: %m%n
"""
_SECONDS = 600.0


@dataclass(frozen=True)
class Program:
    """The command that starts a client, without the arguments of the contract.

    environment: variables to add to those of this process.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def java(version: str, progress: Progress) -> Program:
    """Return our Java program with the kafka-clients library of this version. Raises ProvisionError."""
    jar = provision.built_jar(SOURCES / "java", "the Java client's jar", progress)
    jars = provision.kafka_classpath(version, progress)

    def write(part: Path) -> None:
        part.mkdir()
        (part / "log4j.properties").write_text(_LOG4J)
        (part / "log4j2.properties").write_text(_LOG4J_2)

    logging = f"java-logging-{provision.digest(_LOG4J, _LOG4J_2)}"
    folder = provision.ensure(
        provision.cache_dir() / "clients" / logging, "the Java client's logging", write, progress
    )
    path = os.pathsep.join(map(str, (folder, jar, *jars)))
    return Program((*_JAVA, "-cp", path, "zkmigrate.MatrixClient"))


def python(module: str, lock: str, progress: Progress) -> Program:
    """Return one of our Python programs. Raises ProvisionError.

    module: the program's module in this package. lock: the file that pins the wheels that the program
    imports; "" for the packages that are installed.
    """
    checkout = Path(zkmigrate.__file__).parents[1]
    found = [str(checkout)]
    if lock:
        found.insert(0, str(_wheels(SOURCES / lock, progress)))
    argv = (sys.executable, "-m", f"zkmigrate.lab.clients.{module}")
    return Program(argv, {"PYTHONPATH": os.pathsep.join(found)})


def _wheels(lock: Path, progress: Progress) -> Path:
    """Return a folder with the wheels that a lock file pins, downloaded if missing.

    Two releases of one package need two folders.
    """
    target = provision.cache_dir() / "clients" / f"{lock.stem}-{provision.digest(lock.read_text())}"

    def build(part: Path) -> None:
        argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        argv += ["--progress-bar", "off", "--require-hashes", "--only-binary", ":all:", "--no-deps"]
        argv += ["--target", str(part), "--requirement", str(lock)]
        advice = "check that pip reaches its package index (pip config list), then run again"
        provision.run(f"fetching {lock.stem}", argv, progress, seconds=_SECONDS, advice=advice)

    return provision.ensure(target, lock.stem, build, progress)


def go(progress: Progress) -> Program:
    """Return our Go program, built if missing. Raises ProvisionError, also if Go is not installed.

    The lab's set-up does not install Go: Debian 12's version is too old for franz-go.
    """
    if shutil.which("go") is None:
        raise ProvisionError(
            "Go is not installed, and franz-go needs it. Install Go 1.26 or newer, or name the other clients"
        )
    sources = sorted(path for path in (SOURCES / "go").iterdir() if path.suffix in (".go", ".mod", ".sum"))
    text = provision.digest(*(path.read_text() for path in sources))
    target = provision.cache_dir() / "clients" / f"franz-go-{text}"

    def build(part: Path) -> None:
        argv = ["go", "build", "-C", str(SOURCES / "go"), "-mod=readonly", "-trimpath"]
        argv += ["-o", f"{part}/franz-go", "."]
        advice = "check that Go reaches its module proxy (go env GOPROXY), then run again"
        provision.run("building franz-go's client", argv, progress, seconds=_SECONDS, advice=advice)

    return Program((str(provision.ensure(target, "franz-go's client", build, progress) / "franz-go"),))


FAMILIES: Mapping[str, Callable[[Progress], Program]] = {
    **{f"java-{version}": partial(java, version) for version in provision.kafka_versions()},
    "librdkafka-oldest": partial(python, "librdkafka", "librdkafka-oldest.txt"),
    "librdkafka-newest": partial(python, "librdkafka", ""),
    "kafka-python": partial(python, "kafka_python", ""),
    "aiokafka": partial(python, "aio_kafka", "aiokafka.txt"),
    "franz-go": go,
}
"""For each client by name, the function that downloads or builds it and returns its program.

Each function raises ProvisionError. ``librdkafka-oldest`` is the first wheel for Python 3.11;
``librdkafka-newest`` and ``kafka-python`` are the releases in this project's own lock file.
"""
