"""``hold --at N``: the roll holds once so many brokers have moved, as any hold does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.operator import Killed, quiet_world
from tests.world.test_hold_file import Room
from zkmigrate.kafka.rules import next_wave
from zkmigrate.kafka.rules.next_wave import BrokerPosition
from zkmigrate.runbook.engine.events import WaveBegun
from zkmigrate.runbook.engine.pause import words


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(quiet_world(), tmp_path / "run")


def everybody(brokers: tuple[BrokerPosition, ...], *_: object) -> tuple[tuple[str, ...], str]:
    """A wave of all that are left, or the one that comes back."""
    back = tuple(b.name for b in brokers if b.settling and not b.moved)
    return back[:1] or tuple(b.name for b in brokers if not b.moved), ""


@pytest.mark.parametrize("wide", [False, True], ids=["one at a time", "all at once"])
def test_the_roll_pauses_after_its_canary_until_it_is_released(
    room: Room, monkeypatch: pytest.MonkeyPatch, wide: bool
) -> None:
    if wide:
        monkeypatch.setattr(next_wave, "next_wave", everybody)
    assert room.operator().forward(until="join").code == 0

    def moved() -> int:
        return sum(p.connected.startswith("dest") for p in room.world.brokers.values())

    seen: list[int] = []

    def act() -> None:
        seen.append(moved())
        room.release()

    room.hold("1", "canary")
    assert room.operator(act).resume(until="roll").code == 0
    assert (seen, moved()) == ([1], 3)
    begin, _ = room.lines("hold")
    assert (begin["place"], begin["hold"]["at"], begin["hold"]["why"]) == ("in", "1", "canary")
    assert begin["progress"].startswith("1 of 3 brokers done")


def test_a_process_that_ends_in_the_pause_leaves_it_to_the_next(room: Room) -> None:
    assert room.operator().forward(until="join").code == 0

    def kill() -> None:
        raise Killed

    room.hold("1")
    for _ in range(2):
        with pytest.raises(Killed):
            room.operator(kill).resume(until="roll")
    assert sum(p.connected.startswith("dest") for p in room.world.brokers.values()) == 1
    assert room.operator().resume(until="roll").code == 0
    assert room.held()[-1] == ("roll.roll", "released")


def test_a_number_shrinks_no_wave_of_another_step(room: Room) -> None:
    room.hold("1")
    operator = room.operator()
    assert operator.forward(until="join").code == 0
    assert max(len(e.targets) for e in operator.events if isinstance(e, WaveBegun)) > 1
    assert room.held() == []


def test_a_way_back_does_not_count_and_does_not_hold_there(room: Room) -> None:
    assert room.operator().forward(until="roll").code == 0
    room.hold("1")
    assert room.operator().back("roll").code == 0
    assert room.held() == []


def test_a_hold_at_a_time_waits_at_the_next_place_from_then_on(room: Room) -> None:
    assert room.operator().forward(until="join").code == 0
    wall = room.world.wall
    room.hold(words(wall + 120.0), since=wall)
    assert room.operator().forward(until="roll").code == 0
    assert room.held() == [], "it has not come"
    room.world.advance(120.0)
    assert room.operator().back("roll").code == 0
    assert room.held() == [("roll.roll", "begin"), ("roll.roll", "released")]
