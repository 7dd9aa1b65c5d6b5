"""``--pause-after``: the roll holds once so many brokers have moved, as any hold does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.operator import Killed, quiet_world
from tests.world.test_hold_file import Room
from zkmigrate.errors import UsageError
from zkmigrate.kafka.rules import next_wave
from zkmigrate.kafka.rules.next_wave import BrokerPosition


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

    operator = room.operator(act)
    assert operator.resume(until="roll", pause_after=1).code == 0
    assert (seen, moved()) == ([1], 3)
    begin, _ = room.lines("hold")
    assert (begin["hold"]["by"], begin["hold"]["why"]) == ("--pause-after 1", "as many brokers have moved")
    assert begin["progress"].startswith("1 of 3 brokers done")


def test_a_process_that_ends_in_the_pause_leaves_it_to_the_next(room: Room) -> None:
    assert room.operator().forward(until="join").code == 0

    def kill() -> None:
        raise Killed

    with pytest.raises(Killed):
        room.operator(kill).resume(until="roll", pause_after=1)
    with pytest.raises(Killed):
        room.operator(kill).resume(until="roll")
    room.release()
    with pytest.raises(Killed):
        room.operator(kill).resume(until="roll", pause_after=1)
    assert sum(p.connected.startswith("dest") for p in room.world.brokers.values()) == 1
    room.release()
    with pytest.raises(UsageError, match="cannot pause after 3 of 3 brokers; 1 have been changed"):
        room.operator().resume(until="roll", pause_after=3)
    assert room.operator().resume(until="roll").code == 0
    with pytest.raises(UsageError, match="cannot pause after 1 of 3 brokers; 3 have been changed"):
        room.operator().resume(until="cutover", pause_after=1)
