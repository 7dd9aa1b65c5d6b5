"""A host's own record of operations: what zkm-host prints, and what of it still stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.unit.zkm_net import Host, need_root
from zkmigrate.hosts.facts.operations import Operation, not_undone, operations
from zkmigrate.runbook.engine.step_names import operation_id
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Way

STEPS = ("install.install", "join.join", "roll.preflight", "roll.roll")


@dataclass
class Answers:
    """A look that answers zkm-host's verbs from a table; what is not in it fails."""

    said: Mapping[tuple[str, ...], str]

    def zkm(self, host: str, *words: str) -> Reading[str]:
        return Seen(self.said[words]) if words in self.said else Unknown("timeout", f"{host}: no answer")


def read(said: Mapping[tuple[str, ...], str]) -> Reading[tuple[Operation, ...]]:
    return operations(cast(Look, Answers(said)), "d1", STEPS)


def test_the_real_program_tells_what_stands(tmp_path: Path) -> None:
    need_root()
    host = Host(tmp_path, [])
    first, second = (operation_id("roll.roll", "broker-1.example", Way.FORWARD, leg, 1) for leg in (3, 4))
    for operation, name in ((first, "one"), (second, "two")):
        assert host.put(str(tmp_path / name), b"new", "0600", operation).rc == 0
    assert host.call("restore", operation_id("roll.roll", "d", Way.BACK, 5, 1), first).rc == 0
    assert host.put(str(tmp_path / "journal"), b"x", "0600", "journal.0123456789abcdef").rc == 0

    class Real:
        def zkm(self, _host: str, *words: str) -> Reading[str]:
            return Seen(host.call(*words).text)

    found = operations(cast(Look, Real()), "d1", STEPS)
    assert isinstance(found, Seen)
    assert [(op.id, op.way, op.leg, op.verb) for op in found.value] == [
        (first, Way.FORWARD, 3, "put"),
        (second, Way.FORWARD, 4, "put"),
        ("roll.roll.d.back5.1", Way.BACK, 5, "restore"),
    ]
    left = not_undone(found.value, STEPS)
    assert [(op.id, op.path, op.done) for op in left] == [(second, str(tmp_path / "two"), True)]


def test_a_host_of_which_nothing_is_on_record_has_done_nothing() -> None:
    assert read({("ops",): ""}) == Seen(())


def test_what_the_tool_did_not_name_is_left_out() -> None:
    lines = "hand-1 put 0\nlock.take.17 lock 0\nroll.other.d1.1.1 put 0\nroll.roll.d1.2 put 0\n"
    assert read({("ops",): lines}) == Seen(())


@pytest.mark.parametrize(
    "said",
    [
        {("ops",): "roll.roll.d1.1.1\n"},
        {("ops",): "roll.roll.d1.1.1 put 0\n", ("op", "roll.roll.d1.1.1"): "none\n"},
        {("ops",): "roll.roll.d1.1.1 put 0\n"},
        {},
    ],
)
def test_half_an_answer_is_no_record(said: Mapping[tuple[str, ...], str]) -> None:
    assert isinstance(read(said), Unknown)


def test_an_operation_that_did_not_end_stands_and_is_not_done() -> None:
    found = read(
        {
            ("ops",): "join.join.d1.2.1 put none\n",
            ("op", "join.join.d1.2.1"): "verb put /etc/zoo.cfg 0644 root:root abc\nrc none\n",
        }
    )
    assert isinstance(found, Seen)
    assert [(op.path, op.done) for op in not_undone(found.value, STEPS)] == [("/etc/zoo.cfg", False)]


def test_a_step_walked_back_undoes_what_came_after_it_too() -> None:
    """A host that went back alone has no operation of its own for the later steps."""

    def op(step: str, way: Way, leg: int) -> Operation:
        return Operation(operation_id(step, "d1", way, leg, 1), "d1", step, way, leg, 1, "service", True)

    record = (
        op("join.join", Way.FORWARD, 1),
        op("roll.roll", Way.FORWARD, 2),
        op("join.join", Way.BACK, 3),
        op("roll.roll", Way.FORWARD, 4),
    )
    assert [x.leg for x in not_undone(record, STEPS)] == [4]
