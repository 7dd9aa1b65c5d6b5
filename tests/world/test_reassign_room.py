"""Disks too full for all new replicas at once: moves wait for old ones to go, in an order with room."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.unit.engine_world import back, forward, left_by_kills, on_and_back
from tests.world.build import World
from tests.world.reassigning import BROKERS, ReassignDesk, found, inventory, submitted
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.choice import fitting
from zkmigrate.cluster.reassign.moves import Move
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.model.finding import Held as Verdict
from zkmigrate.runbook.model.step import Way

SIZE = 3_000_000
SETS: Mapping[Name, tuple[int, ...]] = {
    ("t4", 0): (1,),
    ("t1", 0): (4,),
    ("t1", 1): (4,),
    ("t2", 0): (5,),
}


def desk(tmp_path: Path, **section: object) -> ReassignDesk:
    """Broker 1 holds three replicas and has room for less than one. Broker 4 holds one and has room for one.
    The plan swaps: the first of its moves has no room before the second is done."""
    held = {
        name: (id,)
        for name, id in ((("t4", 0), 4), (("t1", 0), 1), (("t1", 1), 1), (("t1", 2), 1), (("t2", 0), 2))
    }
    cluster = World().brokers(5).topics(held, SIZE).cluster(disk={1: 10_000_000, 4: 8_000_000})
    cluster.usable = {id: 10**9 for id in BROKERS if id not in cluster.disk}
    return ReassignDesk(
        tmp_path / "r", cluster, inventory(SETS, {}, None, (), throttle_bytes_s=10**6, **section)
    )


def test_moves_wait_for_room_in_an_order_that_has_it(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward).code == 0
    assert made.there
    assert set(submitted(made)[:2]) == {"t1-0", "t2-0"}, "a broker with room goes ahead"
    assert made.cluster.least[1] >= 0
    assert made.cluster.least[4] >= 0
    told = found(made, "reassign.room")
    assert (told.held, told.seen) == (
        Verdict.YES, "not all at once; moves to brokers 1, 4 wait until old copies are deleted"
    )  # fmt: skip
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits)]
    assert any("t4-0, t1-1: waiting for free space on brokers 1, 4" in progress for progress in waits)
    made.cluster.least.clear()
    assert made.process(back).code == 0
    assert made.home
    assert min(made.cluster.least.values()) >= 0, "on the way back too"


def test_killed_at_each_change_no_disk_runs_full(tmp_path: Path) -> None:
    left = left_by_kills(desk(tmp_path), forward)
    assert len(left) > 20
    for on in on_and_back(left):
        for one in on:
            assert min(one.cluster.least.values()) >= 0, one.run_dir


def test_without_an_order_that_has_room_it_is_refused_by_name(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.disk[4] = 5_999_999
    ended = made.process(forward)
    [finding] = [one for one in ended.findings if one.blocks]
    assert (ended.code, finding.id) == (3, "reassign.room")
    assert finding.seen.startswith("broker 4 is 1 bytes short after all moves; free now: 2999999")
    assert made.cluster.made == []


def test_one_that_waits_keeps_those_behind_it_off_its_brokers() -> None:
    """Else small ones would take its room again and again."""
    large, small, elsewhere = (
        Move("a", 0, (1,), (4,), 50, 1),
        Move("a", 1, (1,), (4,), 10, 1),
        Move("a", 2, (1,), (5,), 10, 1),
    )
    assert fitting((large, small, elsewhere), Way.FORWARD, {4: 40}) == (elsewhere,)
    assert fitting((large, small, elsewhere), Way.FORWARD, {4: 55}) == (large, elsewhere)
    assert fitting((small, large), Way.FORWARD, {4: 60}) == (small, large)
    assert fitting((large, small), Way.FORWARD, {}) == (large, small)
    assert fitting((large, small), Way.BACK, {1: 50}) == (large,)
