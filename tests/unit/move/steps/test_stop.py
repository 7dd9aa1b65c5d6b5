"""STOP: the unit is down, and the disk holds what was drained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import (
    CUT,
    DEST,
    FENCED,
    SILENT,
    STOPPED,
    context,
    dest_states,
    stopped_by,
    tail,
    well,
)
from zkmigrate.move.facts.records import Drained
from zkmigrate.move.steps.stop import StopFacts, StopStep
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.step import Blocked, Done, Ready, Verdict, Way

Z, OWN = 0x500000010, 0x500000014
"""Z of source, and what every host had applied when it was drained: it followed on."""
STAMP: Reading[str] = Seen("0" * 64)


def facts(disk: int = OWN, **fact: Any) -> StopFacts:
    return StopFacts(
        dest_states(STOPPED, **fact), dict.fromkeys(DEST, tail(disk)), dict.fromkeys(DEST, STAMP)
    )


def verdict(f: StopFacts, z: int = Z, own: int = OWN) -> Verdict:
    drained = Drained(z, None, dict.fromkeys(DEST, own)).encode()
    return StopStep().check(context(drain=drained), f)


def test_disks_that_hold_what_was_drained_are_done_and_recorded() -> None:
    done = verdict(facts())
    assert isinstance(done, Done)
    assert done.record == {
        "tails": dict.fromkeys(DEST, hex(OWN)),
        "stamps": dict.fromkeys(DEST, "0" * 64),
        "boots": dict.fromkeys(DEST, "boot"),
    }


@pytest.mark.parametrize(
    ("disk", "z", "own"),
    [(OWN - 1, Z, OWN), (Z, Z, OWN), (OWN, OWN + 1, OWN), (OWN, OWN + 1, Z)],
    ids=["one below its own", "Z alone", "its own alone", "ahead of its own"],
)
def test_a_disk_must_hold_both_z_and_what_its_host_had_applied(disk: int, z: int, own: int) -> None:
    assert stopped_by(verdict(facts(disk), z, own)) == [("stop.tail", host) for host in DEST]


@pytest.mark.parametrize(
    ("disk", "needed", "held"),
    [
        (0x4000000FF, 0x500000000, True),
        (0x3000000FF, 0x500000000, False),
        (0x500000000, 0x500000000, True),
        (0x4000000FF, 0x500000001, False),
    ],
    ids=["the epoch before", "two epochs before", "this epoch", "an epoch that has a transaction"],
)
def test_an_epoch_without_a_transaction_is_on_no_disk(disk: int, needed: int, held: bool) -> None:
    found = verdict(facts(disk), needed, needed)
    assert isinstance(found, Done) is held
    assert stopped_by(found) == ([] if held else [("stop.tail", host) for host in DEST])


def test_a_disk_that_cannot_be_read_blocks() -> None:
    f = facts()
    assert stopped_by(verdict(replace(f, tails={**f.tails, "dest2": SILENT}))) == [("stop.tail", "dest2")]
    assert stopped_by(verdict(replace(f, stamps={**f.stamps, "dest2": SILENT}))) == [("stop.stamp", "dest2")]


def test_a_host_whose_service_still_runs_blocks() -> None:
    f = facts(unit_state="active")
    running = replace(f, tails={h: r for h, r in f.tails.items() if h != "dest2"})
    assert stopped_by(verdict(running)) == [("stop.down", "dest2")]


def test_hosts_that_are_cut_are_to_be_stopped_and_no_others() -> None:
    assert verdict(facts(phase="cut")) == Ready(("dest2",))
    assert stopped_by(verdict(facts(phase="fenced"))) == [("stop.phase", "dest2")]
    assert stopped_by(verdict(replace(facts(), states=dest_states(STOPPED, silent="dest3")))) == [
        ("host.dest3", "dest3")
    ]


def back(f: StopFacts) -> Verdict:
    return StopStep().check(context(way=Way.BACK), f)


def test_the_way_back_starts_whoever_is_down() -> None:
    assert back(facts()) == Ready(DEST)
    assert back(StopFacts(dest_states(CUT, unit_state="failed"), {}, {})) == Ready(("dest2",))
    assert well(back(StopFacts(dest_states(FENCED), {}, {})))
    silent = back(StopFacts(dest_states(FENCED, silent="dest1"), {}, {}))
    assert isinstance(silent, Blocked)
    assert silent.others_back
