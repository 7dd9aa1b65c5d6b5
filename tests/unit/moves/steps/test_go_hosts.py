"""GO, from facts to verdict: who must have it, who may be missing, and when nobody may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.moves.steps.facts import proved
from tests.world.operator import inventory
from zkmigrate.dependents.kafka import KAFKA
from zkmigrate.hosts.facts.status import HostPhase, parse_phase
from zkmigrate.model.finding import claim
from zkmigrate.model.step import Blocked, Context, Done, Ready, Verdict, Way
from zkmigrate.moves.facts.dest_status import Statuses
from zkmigrate.moves.steps.go import GoFacts, GoStep
from zkmigrate.moves.world import program
from zkmigrate.moves.world.host import Host

DEST = ("dest1", "dest2", "dest3")


def at(phase: str) -> HostPhase:
    host = Host("dest", "10.0.0.11")
    host.set_phase(phase, 0.0)
    return parse_phase(program.phase(host, 1.0))


def context(first: tuple[str, ...] = DEST, **more: Any) -> Context:
    return Context("run", inventory(), records={"prove": proved(first=first)}, **more)


def check(c: Context, *phases: str) -> Verdict:
    """The verdict where dest1, dest2, dest3 are in these phases; ``-`` does not answer."""
    told = dict(zip(DEST, phases, strict=True))
    silent = tuple(claim(f"host.{h}", "answers", None, target=h) for h, p in told.items() if p == "-")
    hosts = Statuses({h: at(p) for h, p in told.items() if p != "-"}, silent)
    return GoStep(KAFKA).check(c, GoFacts(hosts, ()))


def test_a_silent_host_before_the_first_go_blocks_and_nothing_is_sent() -> None:
    verdict = check(context(), "sealed", "sealed", "-")
    assert isinstance(verdict, Blocked)
    assert [f.id for f in verdict.findings] == ["host.dest3"]


@pytest.mark.parametrize("c", [context(begun=True), context()], ids=["sent by the journal", "seen on a host"])
def test_once_go_is_out_every_host_that_answers_gets_it(c: Context) -> None:
    verdict = check(c, "sealed" if c.begun else "go", "sealed", "-")
    assert isinstance(verdict, Ready)
    assert verdict.targets == (("dest1", "dest2") if c.begun else ("dest2",))


def test_a_rehearsal_goes_on_with_every_host_or_not_at_all() -> None:
    assert isinstance(check(context(rehearsal=True, begun=True), "go", "go", "-"), Blocked)
    assert isinstance(check(context(begun=True), "go", "go", "-"), Done)


@pytest.mark.parametrize(
    ("first", "phases", "enough"),
    [
        (DEST, ("go", "go", "-"), True),
        (DEST, ("go", "-", "-"), False),
        (("dest1", "dest2"), ("go", "go", "-"), True),
        (("dest1", "dest2"), ("go", "-", "go"), False),
        (("dest1",), ("go", "go", "-"), True),
        (("dest1",), ("go", "-", "go"), False),
        (("dest3",), ("go", "go", "-"), False),
        (("dest3",), ("started", "go", "-"), True),
    ],
)
def test_go_is_done_where_those_that_have_it_can_form_the_quorum(
    first: tuple[str, ...], phases: tuple[str, ...], enough: bool
) -> None:
    verdict = check(context(first, begun=True), *phases)
    assert isinstance(verdict, Done if enough else Blocked)
    told = [f for f in verdict.findings if f.id == ("go.not-heard" if enough else "go.majority")]
    assert told
    assert all(f.blocks is not enough for f in told)


@pytest.mark.parametrize(
    ("phases", "begun", "others"),
    [
        (("sealed", "sealed", "-"), False, True),
        (("sealed", "sealed", "-"), True, False),
        (("go", "sealed", "-"), False, False),
    ],
)
def test_walking_back_others_go_back_alone_only_while_nobody_can_have_go(
    phases: tuple[str, ...], begun: bool, others: bool
) -> None:
    verdict = check(replace(context(begun=begun), way=Way.BACK), *phases)
    assert isinstance(verdict, Blocked)
    assert verdict.others_back is others
