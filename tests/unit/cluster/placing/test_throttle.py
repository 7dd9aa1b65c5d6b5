"""``throttle set``, ``show`` and ``clear``, and the run that reads what they wrote."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit import disk_world
from tests.unit.cli.test_main import Place
from tests.unit.engine_world import ended
from zkmigrate.cli.main import cli
from zkmigrate.errors import UsageError
from zkmigrate.kafka.rates import Overrides, parse_rate
from zkmigrate.runbook.engine import process
from zkmigrate.runbook.engine.lock import LocalLock
from zkmigrate.runbook.engine.throttle_file import NAME, ThrottleFile

M = 1_000_000

BOOK = """
import json, os
from dataclasses import dataclass, replace
from pathlib import Path
from tests.unit import disk_world
from zkmigrate.runbook.model.playbook import Stage

@dataclass
class Told(disk_world.FileStep):
    def observe(self, c, look):
        told = {"every": c.overrides.every, "each": dict(c.overrides.each)}
        Path(os.environ["TINY_WORLD"], "told").write_text(json.dumps(told))
        return super().observe(c, look)

first, second, third = disk_world.PLAYBOOK.stages
PLAYBOOK = replace(
    disk_world.PLAYBOOK, throttled=True, stages=(first, second, replace(third, steps=(Told("two"),)))
)
"""
"""As disk_world, with a step that writes down which rates its context has."""


class Desk(Place):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.book = root / "book.py"
        self.book.write_text(BOOK)

    def call(self, *words: str, input: str = "") -> Result:
        at = 2 if words[0] == "throttle" else 1
        line = [*words[:at], "-i", str(self.file), "--playbook", str(self.book), *words[at:]]
        return CliRunner().invoke(cli, line, obj=disk_world.DiskSite, env=self.environ, input=input)

    def said(self, *words: str) -> dict[str, Any]:
        return dict(json.loads(self.ends(0, "throttle", *words, "--json")))

    def told(self) -> dict[str, Any]:
        return dict(json.loads((self.world / "told").read_text()))

    @property
    def run(self) -> Path:
        return self.runs / "lab-1"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.ends(0, "run", "--yes", "--until", "install")
    return desk


def test_rates_are_set_shown_kept_for_the_next_process_and_cleared(desk: Desk) -> None:
    assert desk.ends(0, "throttle", "show") == "run lab-1: no override, the run chooses the rates\n"
    desk.ends(0, "throttle", "set", "10M")
    told = desk.ends(0, "throttle", "set", "2.5 MB/s", "--broker", "1", "--broker", "2")
    assert told.splitlines()[0].startswith(f"run lab-1: overrides, set by {process.user()} at ")
    assert told.splitlines()[1:] == [
        "  broker 1: 2.5 MB/s",
        "  broker 2: 2.5 MB/s",
        "  all others: 10 MB/s",
        "  no process on this machine works on the run; the rates apply from the next run or resume",
    ]
    assert (desk.run / NAME).stat().st_mode & 0o777 == 0o600
    desk.ends(0, "resume", "--yes")
    assert desk.told() == {"every": 10 * M, "each": {"1": 2_500_000, "2": 2_500_000}}
    cleared = desk.said("clear", "--broker", "1")
    assert cleared["overrides"]["each"] == {"2": 2_500_000}
    assert cleared["replaced"]["each"] == {"1": 2_500_000, "2": 2_500_000}
    assert desk.said("show")["overrides"]["every"] == 10 * M
    assert desk.said("clear")["overrides"] == {"every": None, "each": {}, "by": "", "since": 0.0}
    assert not (desk.run / NAME).exists()
    desk.ends(0, "throttle", "clear")


def test_rates_are_set_beside_a_process_at_work(desk: Desk) -> None:
    with_lock = LocalLock(desk.run, "resume")
    try:
        told = desk.ends(0, "throttle", "set", "10M", "--broker", "1")
    finally:
        with_lock.close()
    assert (
        f"process {os.getpid()} of {process.user()} is at work; the rates apply from its next check" in told
    )
    assert "  all others: the run chooses" in told


@pytest.mark.parametrize(
    "rate",
    ["", "0", "999", "-5M", "fast", "10X", "10m", "1e9", "nan", "101G", "9999999999999", "10 M M", "١٠M"],
)
def test_an_absurd_rate_is_refused_and_nothing_is_written(desk: Desk, rate: str) -> None:
    done = desk.call("throttle", "set", "--", rate)
    assert done.exit_code == 2, done.output
    assert f"rate {rate!r}. Needed: bytes per second from 1k to 100G" in done.output
    assert not (desk.run / NAME).exists()


def test_rates_are_read_with_their_unit() -> None:
    texts = ["1000", "1k", "1K", "250 kB/s", "10M", "10MB", "10M/s", "1.5G", " 100G "]
    assert [parse_rate(text) for text in texts] == [
        1000, 1000, 1000, 250_000, 10 * M, 10 * M, 10 * M, 1500 * M, 100_000 * M,
    ]  # fmt: skip


def test_a_broker_that_the_inventory_lacks_is_refused(desk: Desk) -> None:
    assert "--broker 99: the inventory has brokers " in desk.ends(
        2, "throttle", "set", "10M", "--broker", "99"
    )
    assert desk.call("throttle", "set", "10M", "--broker", "-1").exit_code == 2
    assert not (desk.run / NAME).exists()


def test_a_complete_run_takes_no_rate_but_loses_one(desk: Desk) -> None:
    desk.ends(0, "throttle", "set", "10M")
    desk.ends(0, "resume", "--yes")
    told = desk.ends(2, "throttle", "set", "20M")
    assert "run lab-1 is complete" in told
    assert "--run-id lab-2 sets the rate that the next run begins with" in told
    desk.ends(0, "throttle", "clear")
    assert not (desk.run / NAME).exists()


def test_a_rate_is_set_before_the_run_begins_and_the_run_begins_with_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert "no run lab-1 in " in desk.ends(2, "throttle", "show")
    assert "no run lab-1 in " in desk.ends(2, "throttle", "clear")
    told = desk.ends(0, "throttle", "set", "10M")
    assert "the run has not begun: zkmigrate run begins it with these rates (--run-id lab-1)" in told
    assert desk.run.stat().st_mode & 0o777 == 0o700
    assert "all brokers: 10 MB/s" in desk.ends(0, "throttle", "show")
    desk.ends(0, "run", "--yes")
    assert desk.told() == {"every": 10 * M, "each": {}}
    desk.ends(0, "throttle", "set", "20M", "--run-id", "lab-2")
    desk.ends(0, "throttle", "clear", "--run-id", "lab-2")
    assert "no run lab-2" in desk.ends(2, "throttle", "show", "--run-id", "lab-2")


def test_a_playbook_without_a_throttle_and_a_run_that_nobody_knows_are_refused(
    desk: Desk, tmp_path: Path
) -> None:
    assert "no run lab-9" in desk.ends(2, "throttle", "show", "--run-id", "lab-9")
    desk.book.write_text("from tests.unit.disk_world import PLAYBOOK\n")
    assert "playbook disk has no throttle" in desk.ends(2, "throttle", "set", "10M")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"every": 10}', "10 is not a rate from 1000"),
        ('{"every": true}', "True is not a rate"),
        ('{"every": 1e6}', "1000000.0 is not a rate"),
        ('{"each": [1]}', "its rates are not a JSON object"),
        ('{"each": {"-1": 10000}}', "'-1' is not an id"),
        ('{"by": 5}', "it has a value of another type than text"),
        ('{"since": -1}', "its time is not a number of seconds"),
    ],
)
def test_a_file_that_does_not_read_is_told_stops_no_run_and_goes_by_clear_alone(
    desk: Desk, content: str, why: str
) -> None:
    (desk.run / NAME).write_text(content)
    shown = desk.ends(8, "throttle", "show")
    assert "the throttle file cannot be read, so the run chooses the rates: " in shown
    assert why in shown
    for words in (("set", "10M"), ("clear", "--broker", "1")):
        assert "Next: run zkmigrate throttle clear without --broker" in desk.ends(2, "throttle", *words)
    desk.ends(0, "resume", "--yes")
    assert desk.told() == {"every": None, "each": {}}
    desk.ends(0, "throttle", "clear")
    desk.ends(0, "throttle", "show")


def test_a_link_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "other").write_text('{"every": 10000000}')
    (desk.run / NAME).symlink_to(tmp_path / "other")
    now = ThrottleFile(desk.run).read()
    assert not now
    assert now.wrong


def test_changes_from_several_terminals_lose_none(tmp_path: Path) -> None:
    def add(broker: int) -> None:
        def edit(before: Overrides) -> Overrides:
            return Overrides(None, {**before.each, broker: 10 * M})

        ThrottleFile(tmp_path).change(edit, "ann@here", "", 1.0)

    threads = [threading.Thread(target=add, args=(broker,), daemon=True) for broker in range(20)]
    for thread in threads:
        thread.start()
    ended(*threads)
    assert set(ThrottleFile(tmp_path).read().each) == set(range(20))


def test_an_edit_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    def edit(_: Overrides) -> Overrides:
        raise UsageError("no")

    ThrottleFile(tmp_path).change(lambda _: Overrides(10 * M), "ann@here", "", 1.0)
    with pytest.raises(UsageError, match="no"):
        ThrottleFile(tmp_path).change(edit, "ben@here", "", 2.0)
    assert ThrottleFile(tmp_path).read() == Overrides(10 * M, {}, "ann@here", 1.0)
