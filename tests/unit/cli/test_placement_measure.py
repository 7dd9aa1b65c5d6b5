"""The verb ``placement measure``: two looks at log directories become one cluster file with rates."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.cli.test_placement import INVENTORY
from zkmigrate.cli.main import cli
from zkmigrate.cluster import placed
from zkmigrate.cluster.placement.cluster import Broker, Cluster, LogDir, Partition
from zkmigrate.cluster.placement.cluster_file import parse, text
from zkmigrate.cluster.placement.plan import Notice, Refused
from zkmigrate.errors import HostError

GB = 1 << 30
BROKERS = (
    Broker(1, "a", 5 * GB, dirs=(LogDir("/a", 2 * GB, 9 * GB), LogDir("/b", 3 * GB, 8 * GB)), host="k1"),
    Broker(2, "", 4 * GB, new=True, host="k2"),
)
SIZES = {"a": 1000, "grew": 1000, "shrank": 1000, "unseen": None}


def cluster(**sizes: int | None) -> Cluster:
    partitions = (Partition(topic, 0, (1,), size, dirs=("/b",)) for topic, size in sizes.items())
    return Cluster.of(BROKERS, partitions)


class Brokers:
    """Brokers that tell one answer after the other, on a clock that only pauses move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Cluster | Refused | Exception) -> None:
        self.answers, self.seconds, self.closed = list(answers), 0.0, 0
        self.look = SimpleNamespace()
        monkeypatch.setattr(placed, "read", self.read)
        monkeypatch.setattr(
            "zkmigrate.cluster.placing.measure.Clock", lambda: SimpleNamespace(now=self.now, pause=self.pause)
        )

    def read(self, _inventory: object, look: object, tell: Any, pause: Any) -> Cluster | Refused:
        assert look is self.look
        assert self.closed == 0
        self.seconds += 2.0
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def now(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.seconds += seconds

    def close(self) -> None:
        self.closed += 1


def call(folder: Path, brokers: Brokers, *words: str) -> Result:
    (folder / "live.yml").write_text(INVENTORY)
    given = ["placement", "measure", "-i", str(folder / "live.yml"), "--out", str(folder / "cluster.json")]
    return CliRunner().invoke(cli, [*given, *words], obj=lambda _inventory, _run: brokers)


def test_what_grew_between_two_looks_is_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = cluster(**{**SIZES, "grew": 4020, "shrank": 10, "new": 7})
    brokers = Brokers(monkeypatch, cluster(**SIZES, gone=5), later)
    done = call(tmp_path, brokers, "--minutes", "5", "--json")
    assert done.exit_code == 0, done.output
    seen = parse((tmp_path / "cluster.json").read_bytes(), "")
    rates: Mapping[str, float | None] = {one.topic: one.rate for one in seen.partitions}
    assert rates == {"a": 0.0, "grew": 10.0, "shrank": None, "unseen": None, "new": None}
    assert replace(seen, partitions=()) == replace(later, partitions=())
    assert [replace(one, rate=None) for one in seen.partitions] == list(later.partitions)
    body = json.loads(done.stdout)
    assert (body["seconds"], body["bytes_per_second"], body["bytes"]) == (302.0, 10.0, 5037)
    assert body["without_rate"] == ["new-0", "shrank-0", "unseen-0"]
    assert (body["code"], body["brokers"], body["partitions"], brokers.closed) == (0, 2, 5, 1)


def test_the_report_names_partitions_without_a_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = call(tmp_path, Brokers(monkeypatch, cluster(a=9), cluster(a=8, b=1)))
    assert "2 partitions without a rate, because they shrank or are new: a-0, b-0. Next: " in done.stdout
    assert (
        "without a rate"
        not in call(tmp_path, Brokers(monkeypatch, cluster(a=9), cluster(a=9)), "--force").stdout
    )


@pytest.mark.parametrize("force", [True, False])
def test_a_file_that_appears_while_it_measures_is_kept_without_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    out = tmp_path / "cluster.json"
    brokers = Brokers(monkeypatch, cluster(a=1), cluster(a=1))
    pause = brokers.pause

    def appears(seconds: float) -> None:
        out.write_text("theirs")
        pause(seconds)

    monkeypatch.setattr(brokers, "pause", appears)
    done = call(tmp_path, brokers, *(["--force"] if force else []))
    assert done.exit_code == (0 if force else 2), done.output
    assert (out.read_text() == "theirs") is not force
    assert (f"{out} already exists and was not replaced" in done.output) is not force


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("answer", "code"), [(Refused((Notice("placement.reassigning", "one"),)), 3), (HostError("no broker"), 8)]
)
def test_a_refused_or_failed_look_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Refused | Exception, code: int, first: bool
) -> None:
    brokers = Brokers(monkeypatch, *([] if first else [cluster(a=1)]), answer)
    done = call(tmp_path, brokers)
    assert (done.exit_code, brokers.closed) == (code, 1)
    assert not (tmp_path / "cluster.json").exists()


def test_a_file_in_the_way_is_told_before_any_broker_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cluster.json").write_text("mine")
    done = call(tmp_path, Brokers(monkeypatch))
    assert (done.exit_code, (tmp_path / "cluster.json").read_text()) == (2, "mine")
    assert call(tmp_path, Brokers(monkeypatch), "--out", "-").exit_code == 2


def test_a_cluster_file_is_read_as_the_cluster_that_was_written() -> None:
    one = Cluster.of(
        BROKERS,
        [
            Partition("t", 0, (1, 7), 5, 2.5, ("/a", "/d")),
            Partition("t", 1, (2,), None),
            Partition("u", 0, (2,), 0),
        ],
    )
    assert parse(text(one).encode(), "") == one


def test_the_clock_is_the_machines() -> None:
    from zkmigrate.cluster.placing.measure import Clock

    assert (Clock().now, Clock().pause) == (time.monotonic, time.sleep)
