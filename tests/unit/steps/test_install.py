"""INSTALL and FINALIZE: the program is on every host, or on none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.steps.facts import ARMED, DEST, OPEN, SILENT, context, statuses, stopped_by, well
from zkmigrate import hostside
from zkmigrate.facts.config import parse
from zkmigrate.facts.host import HostStatus
from zkmigrate.model.fact import Absent, Reading, Seen
from zkmigrate.model.step import Blocked, Done, Ready, Verdict, Way
from zkmigrate.steps.finalize import FinalizeFacts, FinalizeStep
from zkmigrate.steps.install import InstallFacts, InstallStep

HOSTS = (*DEST, "broker1", "broker2", "broker3")
THERE: Reading[bytes] = Seen(hostside.program())
GONE: Reading[bytes] = Absent("zkm-host")


def installed(way: Way = Way.FORWARD, all_hosts: Reading[bytes] = THERE, **one: Reading[bytes]) -> Verdict:
    return InstallStep().check(
        context(way=way), InstallFacts({**dict.fromkeys(HOSTS, all_hosts), **one}), way
    )


def test_the_same_program_on_every_host_is_installed() -> None:
    assert well(installed())


@pytest.mark.parametrize(
    "other", [GONE, Seen(b""), Seen(hostside.program() + b"\n")], ids=["none", "empty", "longer"]
)
def test_a_host_with_another_program_or_none_gets_it(other: Reading[bytes]) -> None:
    assert installed(broker2=other) == Ready(("broker2",))


def test_a_host_that_does_not_tell_blocks_both_ways() -> None:
    assert stopped_by(installed(dest2=SILENT)) == [("install.answer", "dest2")]
    assert stopped_by(installed(Way.BACK, GONE, dest2=SILENT)) == [("install.answer", "dest2")]


def test_going_back_the_program_goes_from_wherever_it_is_whatever_it_holds() -> None:
    assert well(installed(Way.BACK, GONE))
    assert installed(Way.BACK, GONE, dest3=Seen(b"another version")) == Ready(("dest3",))


OBSERVES = parse("peerType=observer\nserver.1=10.0.0.1:2888:3888\nserver.11=10.0.0.11:2888:3888:observer\n")
REFORMED = parse("server.11=10.0.0.11:2888:3888\nserver.12=10.0.0.12:2888:3888\n")


def finalized(
    way: Way = Way.FORWARD,
    programs: Mapping[str, Reading[bytes]] | None = None,
    good: HostStatus = OPEN,
    config: Any = REFORMED,
) -> Verdict:
    f = FinalizeFacts(
        {**dict.fromkeys(HOSTS, GONE), **(programs or {})}, dict.fromkeys(DEST, Seen(config)), statuses(good)
    )
    return FinalizeStep().check(context(way=way), f, way)


def test_what_is_left_anywhere_is_to_be_removed() -> None:
    assert well(finalized())
    assert finalized(programs={"dest1": THERE, "broker3": Seen(b"another version")}) == Ready(
        ("dest1", "broker3")
    )


@pytest.mark.parametrize(
    ("good", "config", "back"),
    [(OPEN, REFORMED, False), (ARMED, OBSERVES, True), (ARMED, REFORMED, True)],
    ids=["open", "armed", "armed, its config not put back yet"],
)
def test_behind_the_door_there_is_no_way_back(good: HostStatus, config: Any, back: bool) -> None:
    found = finalized(Way.BACK, good=good, config=config)
    assert isinstance(found, Done) is back
    assert back or (isinstance(found, Blocked) and found.no_way_back)


def test_a_host_with_nothing_armed_is_judged_by_its_config() -> None:
    """The program and its record of the phase are removed first."""
    idle = HostStatus(**{**ARMED.__dict__, "phase": "idle"})
    assert isinstance(finalized(Way.BACK, good=idle, config=REFORMED), Blocked)
    assert well(finalized(Way.BACK, good=idle, config=OBSERVES))
