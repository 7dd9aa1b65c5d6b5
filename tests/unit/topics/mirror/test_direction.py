"""Who leads a topic, and a copier that comes back, or stands still, while clients are switched to target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import pytest

from tests.unit.topics.mirror.batches import built, marker, without
from tests.unit.topics.mirror.model_cluster import Log, ModelCluster
from tests.unit.topics.mirror.test_copier import HOLES, PLAIN, copied, copying
from zkmigrate.errors import LockedError
from zkmigrate.topics.mirror.clients import copier
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.copier import Copier
from zkmigrate.topics.mirror.rules import gaps, small_batches
from zkmigrate.topics.mirror.rules.direction import Lead, barred, direction, leaders, parse


@pytest.fixture(autouse=True, scope="module")
def _no_waiting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SETTLE_S", "RETRY_S"):
            patch.setattr(copier, name, 0.0)
        patch.setattr(copier, "LOOK_S", 1e9)  # a look at target's end would come too late
        patch.setattr(gaps, "FILL", 4)
        patch.setattr(small_batches, "FEW", 0)
        yield


@dataclass
class Watched:
    """A cluster that tells each call of a copier before it is done."""

    cluster: ModelCluster
    called: Callable[[], None]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.cluster, name)
        if name == "leads":
            return Watched(found, self.called)
        if not callable(found):
            return found

        def do(*words: Any, **more: Any) -> Any:
            self.called()
            return found(*words, **more)

        return do


def site() -> tuple[ModelCluster, ModelCluster]:
    """Source with batches, a hole and the marker of a transaction; an empty target."""
    here, there = (ModelCluster(name, {PLAIN: Log(), HOLES: Log()}) for name in ("source", "target"))
    for n in range(3):
        here.logs[PLAIN].append(built(1 + n, first_value=n))
    for one in (without(built(5), [1, 3]), marker(0, 5, commit=True), built(2, first_value=20)):
        here.logs[HOLES].append(one)
    return here, there


def switch(here: ModelCluster, there: ModelCluster) -> None:
    """Drain, note the switch on both, let clients write on target, and copy that back to source."""
    copied(here, there)
    for topic, _ in here.logs:
        there.leads.kept[topic] = here.leads.kept[topic] = Lead("target", 7)
    for log in there.logs.values():
        log.append(built(3, first_value=100))
    copied(there, here)


def rounds(made: Copier, most: int = 300) -> None:
    """Let it work for so long. LockedError when it stops by itself."""
    number = count()
    made.copy(lambda: next(number) > most, lambda: None)


def whole(cluster: ModelCluster) -> list[list[tuple[int, int, bytes]]]:
    """All that a consumer reads there."""
    return [log.read() for log in cluster.logs.values()]


def after_switch() -> list[list[tuple[int, int, bytes]]]:
    """What target holds after a switch that nothing disturbs."""
    here, there = site()
    switch(here, there)
    return whole(there)


def test_a_copier_that_comes_back_after_a_switch_writes_nothing() -> None:
    here, there = site()
    switch(here, there)
    writes = list[int]()
    there.fault = lambda: writes.append(1) or ""  # type: ignore[func-returns-value]
    with pytest.raises(LockedError, match="clients of topic plain use target"):
        rounds(copying(here, there))
    assert (writes, whole(there)) == ([], after_switch())


def stood_still(place: int) -> bool:
    """Whether a copier makes so many calls. A switch befalls it before the last; then it must not write."""
    (here, there), left = site(), [place]

    def called() -> None:
        left[0] -= 1
        if left[0] == -1:
            switch(here, there)

    one, other = (cast(Any, Watched(side, called)) for side in (here, there))
    clears = {topic for topic, _ in here.logs}
    older = Copier(one, other, here.logs, clears, KafkaCodecs(), lambda _: None)
    with suppress(LockedError):
        rounds(older, 60)
    if left[0] < 0:
        assert not any(p.left for p in older.partitions.values()), f"it goes on after call {place}"
        assert whole(there) == after_switch(), f"it stood still before call {place}"
    return left[0] < 0


def test_a_copier_that_stood_still_through_a_switch_writes_nothing_wherever_it_stood() -> None:
    """It goes on after clients wrote on target, and all of that is on source."""
    places = 0
    while places < 80 and stood_still(places):
        places += 1
    assert places == 80


def test_a_copier_with_nothing_to_do_stops_soon_after_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = site()
    older = copying(here, there)
    rounds(older, 30)
    there.leads.kept["plain"] = Lead("target", 7)
    rounds(older, 30)
    monkeypatch.setattr(copier, "LEASE_S", -1.0)
    rounds(older, 30)
    assert [p.taken for p in older.partitions.values()] == [True, False], "and goes on with the other topic"


# -- what a cluster keeps

FORWARD, NONE, BACKWARD = ("a", "a"), ("a", "b"), ("b", "b")


@pytest.mark.parametrize(
    ("lead", "why"),
    [
        (None, ""),
        (Lead("a", 3), ""),
        (Lead("b", 3), "clients of topic orders use target, since the run with number 3"),
        (Lead("c", 3), "target copies topic orders from the cluster c, but source is a"),
        (Lead("", 3), "target's recorded direction of topic orders cannot be read"),
    ],
)
def test_a_copier_writes_only_on_a_target_that_follows_its_source(lead: Lead | None, why: str) -> None:
    told = barred("orders", lead, "a", "b")
    assert told.startswith(why)
    assert bool(told) == bool(why)


@pytest.mark.parametrize("text", ["", "b", "[]", "null", '{"leader": 1}', '{"other": "b"}', "[" * 100_000])
def test_a_text_of_somebody_else_names_no_leader(text: str) -> None:
    assert parse(text, 4) == Lead("", 4)
    assert parse(Lead("b", 4).text, 4) == Lead("b", 4)


@pytest.mark.parametrize(
    ("pairs", "copies"),
    [
        ([("", "")], ""),
        ([FORWARD], "forward"),
        ([NONE], "none"),
        ([BACKWARD], "backward"),
        ([("b", "a")], "mixed"),
        ([("", "b")], "mixed"),
        ([("a", "")], "mixed"),
        ([BACKWARD, ("", "")], "mixed"),
        ([NONE, ("", "")], "mixed"),
        ([NONE, FORWARD], "mixed"),
        ([NONE, NONE], "none"),
    ],
)
def test_the_direction_is_what_both_clusters_keep_of_every_topic(
    pairs: list[tuple[str, str]], copies: str
) -> None:
    names = [f"t{n}" for n in range(len(pairs))]
    sides = tuple(
        {name: Lead(pair[side], side + 4) for name, pair in zip(names, pairs, strict=True) if pair[side]}
        for side in (0, 1)
    )
    found = direction(names, ("a", "b"), cast(Any, sides))
    assert found.copies == copies
    assert found.number == max(side + 4 if pair[side] else 0 for pair in pairs for side in (0, 1))
    assert found.words


def test_a_topic_that_a_later_set_adds_does_not_keep_the_set_from_its_switch() -> None:
    """Source leads the others since a rehearsal or a switch. No run is left that could be resumed."""
    lead = {"orders": Lead("a", 4)}
    found = direction(["orders", "new"], ("a", "b"), (lead, lead))
    assert (found.copies, found.number) == ("forward", 4)
    assert found.words.endswith("by the run with number 4; nothing is recorded for topic new")


@pytest.mark.parametrize(("copies", "pair"), [("forward", FORWARD), ("none", NONE), ("backward", BACKWARD)])
def test_who_loses_the_lead_is_told_first(copies: Any, pair: tuple[str, str]) -> None:
    """Then there is no moment in which a copier may write on the cluster that leads."""
    told = leaders(copies, ("a", "b"))
    assert dict(told) == {0: pair[0], 1: pair[1]}
    for before in (FORWARD, NONE, BACKWARD):
        after = list(before)
        for side, leader in told:
            after[side] = leader
            assert after != ["b", "a"], "copiers may write on both"
