"""The topics that the load creates."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zkmigrate.lab.load import metadata
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Recorder


class Admin:
    """An admin client that does all it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.brokers = {1, 2, 3, 5, 6}

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(brokers=dict.fromkeys(self.brokers))

    def create_topics(self, new: list[Any], **_limits: float) -> dict[str, Future[None]]:
        self.asked += new
        done: Future[None] = Future()
        done.set_result(None)
        return {one.topic: done for one in new}


def test_every_second_topic_names_its_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Admin()
    monkeypatch.setattr(metadata, "AdminClient", lambda _settings: admin)
    config = LoadConfig(metadata_create_every=1, metadata_sets=((5, 1), (6, 2, 3)), replication_factor=2)
    with Recorder(tmp_path, "metadata", {}) as record:
        changes = metadata._Changes(config, record)
        for number in range(8):
            if number == 4:
                admin.brokers.remove(6)
            changes.step()
            changes.collect(0)
        record.close("ordered", **changes.counts)
    assert [one.replica_assignment or one.replication_factor for one in admin.asked] == [
        2, [[6, 2, 3]], 2, [[5, 1]], 2, [[5, 1]], 2, [[5, 1]]
    ]  # fmt: skip
    assert changes.counts == {"ok": 8, "failed": 0, "unknown": 0}
