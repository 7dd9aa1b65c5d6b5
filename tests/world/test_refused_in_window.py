"""A whole cut-over in which a proof or the client door refuses: back by itself, and nothing is lost by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.world.model.world import World
from tests.world.operator import Operator
from tests.world.rolled import rolled
from tests.world.test_move import owners
from tests.world.test_way_back import doors_shut, phases
from zkmigrate.move.facts.records import Proved, Surveyed
from zkmigrate.runbook.model.change import Change, Cut, Outcome, SetService
from zkmigrate.runbook.model.step_record import Recorded

STRANGER = 0x300000000000777


def turned_back(world: World, before: dict[str, tuple[int, int]]) -> None:
    """The cut-over left no trace: doors open, hosts idle and observing, every owner as before."""
    assert doors_shut(world) == []
    assert set(phases(world).values()) == {"idle"}
    assert {world.mode(h) for h in world.inventory.dest_names} == {"observer"}
    assert world.dest is None
    assert owners(world) == before
    assert all(p.connected.startswith("dest") for p in world.brokers.values())


def test_a_stray_write_to_source_after_the_cut_turns_back_by_the_delta_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    before = owners(world)
    act = operator._apply
    cut: list[str] = []

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        outcome = act(change, operation, fencing)
        if isinstance(change, Cut):
            cut.append(change.host)
            if len(cut) == len(world.inventory.dest_names):
                world.source.commit("create", STRANGER, "/kafka/stray")
        return outcome

    monkeypatch.setattr(operator, "_apply", apply)
    ended = operator.forward(until="cutover")

    assert ended.code == 7
    (refusal,) = [f for f in ended.findings if f.blocks]
    assert refusal.id == "prove.delta"
    assert f"/kafka/stray session {STRANGER:#x}" in refusal.seen
    turned_back(world, before)

    assert Operator(world, operator.run_dir).forward(until="cutover").code == 0
    assert world.dest is not None
    assert "/kafka/stray" in world.dest.tree().znodes
    assert owners(world) == before


def test_a_disk_that_lost_what_its_server_had_shown_turns_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three hold everything, which would be a majority: one laggard is enough to turn back."""
    operator = rolled(tmp_path)
    world = operator.world
    before = owners(world)
    act = operator._apply

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        outcome = act(change, operation, fencing)
        if isinstance(change, SetService) and change.host == "dest3" and change.action == "kill":
            disk = world.hosts["dest3"].disk
            assert disk is not None
            world.hosts["dest3"].disk = disk.with_log(disk.log[:-1])
        return outcome

    monkeypatch.setattr(operator, "_apply", apply)
    ended = operator.forward(until="cutover")

    assert ended.code == 7
    assert [(f.id, f.target) for f in ended.findings if f.blocks] == [("stop.tail", "dest3")]
    turned_back(world, before)


def test_a_client_socket_that_survives_the_fence_turns_back_before_the_cut(tmp_path: Path) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    before = owners(world)
    world.hosts["dest2"].undying_sockets = 1

    ended = operator.forward(until="cutover")

    assert ended.code == 7
    (refusal,) = [f for f in ended.findings if f.blocks]
    assert (refusal.id, refusal.target) == ("fence.closed", "dest2")
    assert "1 client sockets" in refusal.seen
    assert not any(isinstance(c, Cut) and o.startswith("cutover.") for c, o in world.applied)
    turned_back(world, before)

    world.hosts["dest2"].undying_sockets = 0
    assert Operator(world, operator.run_dir).forward(until="cutover").code == 0
    assert owners(world) == before


@pytest.mark.parametrize(("kind", "field"), [(Surveyed, "on_dest"), (Proved, "baseline")])
def test_a_record_of_another_version_turns_back_by_name_and_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Recorded], field: str
) -> None:
    """One that PROVE cannot read, and one that GO cannot read once the hosts are sealed."""
    operator = rolled(tmp_path)
    world = operator.world
    before = owners(world)
    encode = Recorded.encode

    def other(record: Recorded) -> dict[str, Any]:
        return {key: value for key, value in encode(record).items() if key != field}

    with monkeypatch.context() as patch:
        patch.setattr(kind, "encode", other)
        ended = operator.forward(until="cutover")

    assert ended.code == 7
    (refusal,) = [f for f in ended.findings if f.blocks]
    assert refusal.id == "engine.record"
    assert f"record of {kind.step} cannot be read: {field} is missing" in refusal.seen
    turned_back(world, before)

    assert Operator(world, operator.run_dir).forward(until="cutover").code == 0
    assert owners(world) == before
