"""The clients of the matrix: one for each release of Kafka, and the same numbers in each language."""

from __future__ import annotations

import re
from pathlib import Path

from zkmigrate.lab import provision
from zkmigrate.lab.clients import families
from zkmigrate.lab.clients.families import FAMILIES, SOURCES


def test_every_release_of_kafka_that_the_lab_runs_is_a_client() -> None:
    assert [name for name in FAMILIES if name.startswith("java-")] == [
        f"java-{version}" for version in provision.kafka_versions()
    ]
    assert set(FAMILIES) >= {
        "librdkafka-oldest", "librdkafka-newest", "kafka-python", "aiokafka", "franz-go",
    }  # fmt: skip


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
