"""How the clients of the matrix are fetched and started, with doubles of Maven, pip and Go."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from zkmigrate.lab import provision
from zkmigrate.lab.clients import families
from zkmigrate.lab.clients.families import FAMILIES, SOURCES
from zkmigrate.lab.provision import ProvisionError
from zkmigrate.lab.wait import silent

MVN = """
for word; do case $word in
    -Dbuild.to=*) mkdir -p "${word#*=}" && touch "${word#*=}/zkmigrate-java.jar" ;;
    -DoutputDirectory=*) mkdir -p "${word#*=}" && touch "${word#*=}/kafka-clients.jar" ;;
esac; done
"""
GO = """
echo run >>"$0.runs"
while [ "$1" != -o ]; do shift; done
mkdir -p "${2%/*}" && touch "$2"
"""


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Doubles first in the search path, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in (("mvn", MVN), ("go", GO)):
        (folder / name).write_text(f"#!/bin/sh\n{body}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("ZKMIGRATE_CACHE", str(tmp_path / "cache"))
    return folder


def test_every_release_of_kafka_that_the_lab_runs_is_a_client() -> None:
    assert [name for name in FAMILIES if name.startswith("java-")] == [
        f"java-{version}" for version in provision.kafka_versions()
    ]
    assert set(FAMILIES) >= {
        "librdkafka-oldest", "librdkafka-newest", "kafka-python", "aiokafka", "franz-go",
    }  # fmt: skip


def test_java_finds_its_logging_our_program_and_one_release_of_the_library() -> None:
    program = FAMILIES["java-2.8.2"](silent)
    logging, ours, library = program.argv[program.argv.index("-cp") + 1].split(":")
    assert sorted(path.name for path in Path(logging).iterdir()) == ["log4j.properties", "log4j2.properties"]
    assert Path(ours).name == "zkmigrate-java.jar"
    assert Path(library).parent.name.startswith("kafka-2.8.2-")
    assert program.argv[-1] == "zkmigrate.MatrixClient"


def test_an_own_release_of_a_wheel_is_found_before_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(_what: str, argv: list[str], *_more: object, **_options: object) -> None:
        asked.append(argv)
        Path(argv[argv.index("--target") + 1]).mkdir()

    monkeypatch.setattr(provision, "run", run)
    program = FAMILIES["librdkafka-oldest"](silent)
    assert FAMILIES["librdkafka-oldest"](silent) == program
    [pip] = asked
    assert pip[-1] == str(SOURCES / "librdkafka-oldest.txt")
    assert {"--require-hashes", "--only-binary"} <= set(pip)
    assert program.argv == (sys.executable, "-m", "zkmigrate.lab.clients.librdkafka")
    first, second = program.environment["PYTHONPATH"].split(":")
    assert Path(first).parent.name == "clients"
    assert FAMILIES["librdkafka-newest"](silent).environment == {"PYTHONPATH": second}


def test_the_go_program_is_built_once(programs: Path) -> None:
    program = FAMILIES["franz-go"](silent)
    assert FAMILIES["franz-go"](silent) == program
    assert (programs / "go.runs").read_text() == "run\n"


def test_without_go_the_remedy_is_named(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (programs / "go").unlink()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(ProvisionError, match=r"Go is not installed.* or name the other clients"):
        families.go(silent)


def test_the_sources_say_the_contract_with_the_same_numbers() -> None:
    """Values of 100 bytes, five milliseconds of linger, a commit each second, in each language."""
    python = (Path(families.__file__).parent / "contract.py").read_text()
    java = (SOURCES / "java" / "zkmigrate" / "MatrixClient.java").read_text()
    go = (SOURCES / "go" / "main.go").read_text()
    for text in (python, java, go):
        assert re.search(r"VALUE_BYTES = 100\b|valueBytes +=  *100\b", text)
    assert 'config.put("linger.ms", "5")' in java
    assert 'config.put("auto.commit.interval.ms", "1000")' in java
    assert "5 * time.Millisecond" in go
