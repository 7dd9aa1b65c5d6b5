"""SEAL: which facts say that the block does not end by itself any more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.move.steps.facts import DEST, SEALED, STOPPED, context, dest_states, stopped_by, well
from zkmigrate.move.facts.records import Stopped
from zkmigrate.move.steps.seal import SealStep
from zkmigrate.runbook.model.change import RestoreImage, Seal, Unseal
from zkmigrate.runbook.model.step import Blocked, Ready, Verdict, Way


def verdict(way: Way = Way.FORWARD, silent: str = "", **fact: Any) -> Verdict:
    return SealStep().check(context(way=way), dest_states(SEALED, silent, **fact))


def test_a_block_that_is_permanent_on_every_host_is_done() -> None:
    assert well(verdict())


@pytest.mark.parametrize(
    "fact", [{"fence_permanent": False}, {"cut_permanent": False}, {"lapsed": True}], ids=str
)
def test_one_false_fact_is_no_seal(fact: dict[str, Any]) -> None:
    assert stopped_by(verdict(**fact)) == [("seal.permanent", "dest2")]


def test_stopped_hosts_are_to_be_sealed_and_no_others() -> None:
    assert verdict(phase="stopped") == Ready(("dest2",))
    assert stopped_by(verdict(phase="cut")) == [("seal.phase", "dest2")]
    assert stopped_by(verdict(silent="dest1")) == [("host.dest1", "dest1")]


def test_a_seal_compares_what_stop_recorded_of_that_host() -> None:
    stamps, boots = {h: f"stamp of {h}" for h in DEST}, {h: f"boot of {h}" for h in DEST}
    c = context(stop=Stopped({}, stamps, boots).encode())
    assert SealStep().plan(c, dest_states(STOPPED), "dest2") == (
        Seal("dest2", "boot of dest2", "stamp of dest2"),
    )


def test_the_way_back_unseals_whoever_answers() -> None:
    assert verdict(Way.BACK, silent="dest3") == Ready(("dest1", "dest2"))
    c = context(way=Way.BACK)
    gone = SealStep().check(c, dest_states(STOPPED, silent="dest3"))
    assert isinstance(gone, Blocked)
    assert gone.others_back
    assert well(SealStep().check(c, dest_states(STOPPED)))


def test_the_image_is_put_back_before_the_block_can_end() -> None:
    changes = SealStep().undo(context(way=Way.BACK), dest_states(SEALED), "dest2", ())
    assert [type(change) for change in changes] == [RestoreImage, Unseal]
