from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import cast

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkmigrate.lab import capture_answers, readiness
from zkmigrate.lab.access import LabHost
from zkmigrate.lab.spec import Role

CHANGING_WORDS = {"crst", "srst", "kill", "stmk", "gtmk"}


def test_only_words_that_read_are_sent() -> None:
    assert not CHANGING_WORDS & set(capture_answers.WORDS)


def test_data_files_are_recorded_whole(tmp_path: Path) -> None:
    root = tmp_path / "root"
    data = root / "var/lib/zookeeper/version-2"
    data.mkdir(parents=True)
    content = b"ZKLG" + bytes(100_000)
    (data / "log.100000001").write_bytes(content)
    (data / "currentEpoch").write_text("1")
    host = LabHost("source1", "source1", Role.SOURCE, "10.71.0.11", "ns", 1, 1, None, root)
    found = capture_answers.record_files(host, tmp_path / "out")
    kept = "files/var/lib/zookeeper/version-2/log.100000001.gz"
    assert found[kept] == {"path": "/var/lib/zookeeper/version-2/log.100000001", "size": len(content)}
    assert gzip.decompress((tmp_path / "out" / kept).read_bytes()) == content
    assert (tmp_path / "out/files/var/lib/zookeeper/version-2/currentEpoch").read_text() == "1"


@pytest.mark.parametrize(
    ("answer", "mode"),
    [
        ("Zookeeper version: 3.5.8\nLatency min/avg/max: 0/0/0\nMode: leader\nNode count: 5\n", "leader"),
        ("Mode: observer\n", "observer"),
        ("This ZooKeeper instance is not currently serving requests\n", None),
        (None, None),
    ],
)
def test_mode_of_a_server(answer: str | None, mode: str | None) -> None:
    assert readiness.server_mode(answer) == mode


class FakeTree:
    """The two reads of a kazoo client, from a dict of znodes."""

    def __init__(self, znodes: dict[str, object]) -> None:
        self.znodes = znodes

    def get(self, path: str) -> tuple[bytes, None]:
        if path not in self.znodes:
            raise NoNodeError
        return json.dumps(self.znodes[path]).encode(), None

    def get_children(self, path: str) -> list[str]:
        below = [name[len(path) + 1 :] for name in self.znodes if name.startswith(path + "/")]
        return sorted({name.split("/")[0] for name in below})


def test_short_isr_names_partitions() -> None:
    tree = FakeTree(
        {
            "/kafka/brokers/topics/a": {"partitions": {"0": [1, 2, 3], "1": [2, 3, 1], "2": [3, 1, 2]}},
            "/kafka/brokers/topics/a/partitions/0/state": {"isr": [1, 2, 3]},
            "/kafka/brokers/topics/a/partitions/1/state": {"isr": [2, 3]},
        }
    )
    assert readiness.short_isr(cast(KazooClient, tree), "/kafka") == ["a-1", "a-2"]
