"""Who may be restarted next: by hand-made clusters, and by what must hold in any cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.kafka.rules.next_wave import BrokerPosition, next_wave, out_of_sync, unsafe_to_stop


def partition(
    topic: str, replicas: Sequence[int], isr: Sequence[int] = (), leader: int = 0
) -> PartitionState:
    """In sync and led by its first replica unless said otherwise."""
    return PartitionState(topic, 0, leader or replicas[0], tuple(replicas), tuple(isr or replicas))


def cluster(
    *partitions: PartitionState, controller: int = 9, min_isr: Mapping[str, int] | None = None
) -> KafkaView:
    return KafkaView("id", controller, {}, partitions, min_isr or {})


def waits(*ids: int) -> tuple[BrokerPosition, ...]:
    return tuple(BrokerPosition(f"b{id}", id, moved=False, touched=False) for id in ids)


def names(brokers: tuple[BrokerPosition, ...], view: KafkaView, width: int = 3) -> tuple[str, ...]:
    return next_wave(brokers, view, width)[0]


def test_a_partition_without_a_leader_is_out_of_sync_though_its_isr_is_full() -> None:
    offline = partition("t", (1, 2), leader=-1)
    assert out_of_sync(cluster(offline), frozenset()) == (offline,)
    assert out_of_sync(cluster(offline), frozenset({1, 2})) == (offline,), "no half-done broker explains that"


def test_a_broker_whose_id_is_0_leads_like_any_other() -> None:
    led = PartitionState("t", 0, 0, (0, 1), (0, 1))
    assert out_of_sync(cluster(led), frozenset()) == ()


def test_a_replica_that_is_missing_is_out_of_sync_unless_it_is_expected() -> None:
    behind = partition("t", (1, 2), isr=(2,), leader=2)
    assert out_of_sync(cluster(behind), frozenset()) == (behind,)
    assert out_of_sync(cluster(behind), frozenset({1})) == ()


@pytest.mark.parametrize(
    ("isr", "min_isr", "safe"),
    [((1, 2, 3), 2, True), ((1, 2, 3), 3, False), ((1, 2), 2, False), ((2, 3), 2, True), ((1,), 1, False)],
    ids=["one to spare", "none to spare", "at its minimum", "it is not in the ISR", "the last one"],
)
def test_what_is_left_of_the_isr_decides_whether_a_broker_may_stop(
    isr: tuple[int, ...], min_isr: int, safe: bool
) -> None:
    view = cluster(partition("t", (1, 2, 3), isr), min_isr={"t": min_isr})
    assert (unsafe_to_stop(view, 1) == ()) is safe


def test_every_partition_is_looked_at() -> None:
    """Those before it may be of other brokers, or accepted."""
    others, accepted, last = partition("u", (2, 3)), partition("t", (1, 2)), partition("v", (1,))
    view = cluster(others, accepted, last, min_isr={"t": 2})
    assert unsafe_to_stop(view, 1, frozenset({"t"})) == (last,)


def test_the_last_member_of_an_isr_never_stops_whatever_the_minimum_says() -> None:
    assert unsafe_to_stop(cluster(partition("t", (1,)), min_isr={"t": 0}), 1)


def test_the_minimum_of_another_topic_does_not_count() -> None:
    assert unsafe_to_stop(cluster(partition("t", (1, 2)), min_isr={"other": 2}), 1) == ()


def test_brokers_that_share_a_partition_go_in_turn() -> None:
    view = cluster(partition("t", (1, 2)), partition("u", (3, 4)))
    assert names(waits(1, 2, 3, 4), view) == ("b1", "b3")


def test_a_wave_is_no_wider_than_asked() -> None:
    assert names(waits(1, 2, 3, 4), cluster(), width=2) == ("b1", "b2")


def test_the_controller_comes_last_and_alone() -> None:
    assert names(waits(1, 2), cluster(controller=1)) == ("b2",)
    assert names(waits(1), cluster(controller=1)) == ("b1",)


def test_nobody_goes_while_a_partition_is_out_of_sync() -> None:
    view = cluster(partition("t", (1, 2, 3), isr=(1, 2)))
    wave, why = next_wave(waits(4), view, 1)
    assert wave == ()
    assert "t-0" in why
    assert "ISR [1, 2] of [1, 2, 3]" in why


def test_a_broker_that_cannot_be_spared_holds_back_nobody_else() -> None:
    view = cluster(partition("t", (2,)))
    assert next_wave(waits(2, 3), view, 1) == (("b3",), "")
    wave, why = next_wave(waits(2), view, 1)
    assert wave == ()
    assert why.startswith("stopping b2 would leave t-0 below min ISR")


def test_the_controller_waits_for_a_broker_that_cannot_be_spared_yet() -> None:
    wave, why = next_wave(waits(2, 3), cluster(partition("t", (2,)), controller=3), 1)
    assert wave == ()
    assert why.startswith("stopping b2")


def half_done(id: int, *, down: bool = False, settling: bool = False) -> BrokerPosition:
    return BrokerPosition(f"b{id}", id, moved=False, touched=True, down=down, settling=settling)


def test_half_done_brokers_come_first_the_one_that_is_down_before_all() -> None:
    brokers = (*waits(1), half_done(2), half_done(3, settling=True), half_done(4, down=True))
    assert names(brokers, cluster()) == ("b4",)
    assert names(brokers[:3], cluster()) == ("b3",)
    assert names(brokers[:2], cluster()) == ("b2",)


def test_a_half_done_broker_in_an_isr_stops_only_where_the_rest_can_spare_it() -> None:
    tight = cluster(partition("t", (1, 2)), min_isr={"t": 2})
    assert next_wave((half_done(1),), tight, 1)[1].startswith("stopping b1 would leave t-0")
    sick = cluster(partition("t", (1, 2)), partition("u", (2, 3), isr=(2,)))
    assert next_wave((half_done(1),), sick, 1)[1].startswith("1 partitions are not fully in sync, first u-0")
    own = cluster(partition("t", (1, 2, 3), isr=(2, 3)), partition("u", (1, 2)))
    assert names((half_done(1),), own) == ("b1",), "it explains its own sickness"


def test_a_half_done_broker_outside_every_isr_waits_for_nobody() -> None:
    sick = cluster(partition("t", (1, 2, 3), isr=(2,)), min_isr={"t": 2})
    assert names((half_done(1),), sick) == ("b1",)


# --- what must hold in any cluster: an oracle of its own, that counts what is left --------------------------

IDS = range(1, 7)


@st.composite
def views(draw: st.DrawFn) -> KafkaView:
    """Up to six brokers; three of four clusters are in sync."""
    sick = draw(st.integers(0, 3)) == 0
    partitions = []
    for number in range(draw(st.integers(0, 6))):
        replicas = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True))
        isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)) if sick else replicas
        leader = -1 if sick and draw(st.integers(0, 4)) == 0 else isr[0]
        partitions.append(PartitionState(f"t{number % 3}", number, leader, tuple(replicas), tuple(isr)))
    min_isr = {f"t{n}": draw(st.integers(1, 3)) for n in range(draw(st.integers(0, 3)))}
    return KafkaView("id", draw(st.sampled_from((-1, *IDS))), {}, tuple(partitions), min_isr)


@st.composite
def positions(draw: st.DrawFn, touched: bool) -> tuple[BrokerPosition, ...]:
    """The six brokers; moved or waiting, and where ``touched`` also half done."""
    found = []
    for id in IDS:
        state = draw(
            st.sampled_from(("moved", "waits", "waits", *(("half", "down", "settling") if touched else ())))
        )
        half = state in ("half", "down", "settling")
        found.append(
            BrokerPosition(f"b{id}", id, state == "moved", half, state == "down", state == "settling")
        )
    return tuple(found)


def sick(view: KafkaView, explained: Iterable[int] = ()) -> bool:
    return any(
        p.leader == -1 or any(r not in p.isr and r not in explained for r in p.replicas)
        for p in view.partitions
    )


def spared(view: KafkaView, stopped: Iterable[int]) -> bool:
    """Once these have stopped, each partition they are replicas of keeps its minimum in sync."""
    gone = set(stopped)
    return all(
        len(set(p.isr) - gone) >= max(1, view.min_isr.get(p.topic, 1))
        for p in view.partitions
        if gone & set(p.replicas)
    )


@given(positions(touched=False), views(), st.integers(1, 4))
def test_a_wave_takes_nothing_below_its_minimum(
    brokers: tuple[BrokerPosition, ...], view: KafkaView, width: int
) -> None:
    wave, why = next_wave(brokers, view, width)
    ids = [b.id for b in brokers if b.name in wave]
    waiting = [b.id for b in brokers if not b.moved]
    assert len(set(wave)) == len(wave) <= width
    assert set(ids) <= set(waiting)
    assert not (wave and why)
    if wave:
        assert not sick(view)
        assert spared(view, ids)
        assert all(len(set(p.replicas) & set(ids)) <= 1 for p in view.partitions)
        assert view.controller not in ids or ids == waiting, "last and alone"
    elif waiting:
        others = [id for id in waiting if id != view.controller] or waiting
        assert sick(view) or not any(spared(view, [id]) for id in others), "nobody could go"
        assert why
    else:
        assert not why


@given(positions(touched=True), views(), st.integers(1, 4))
def test_half_done_brokers_go_one_by_one_and_before_all_others(
    brokers: tuple[BrokerPosition, ...], view: KafkaView, width: int
) -> None:
    half = {b.name: b for b in brokers if b.touched}
    wave, why = next_wave(brokers, view, width)
    if not half:
        return
    assert len(wave) == (not why)
    for first in (half[name] for name in wave):
        assert first.down or not any(b.down for b in half.values())
        up = not first.down and not first.settling and any(first.id in p.isr for p in view.partitions)
        assert not up or (spared(view, [first.id]) and not sick(view, [first.id]))
    assert wave or not any(b.down or b.settling for b in half.values()), "there is nothing to spare"


def test_a_topic_whose_loss_is_accepted_is_spared_while_all_its_other_replicas_are_in_sync() -> None:
    spared = frozenset({"t"})
    whole = cluster(partition("t", (1, 2)), min_isr={"t": 2})
    assert unsafe_to_stop(whole, 1) == whole.partitions
    assert unsafe_to_stop(whole, 1, spared) == ()
    behind = cluster(partition("t", (1, 2, 3), isr=(1, 2)), min_isr={"t": 2})
    assert unsafe_to_stop(behind, 1, spared) == behind.partitions, "one of the others lags"
    other = cluster(partition("u", (1, 2)), min_isr={"u": 2})
    assert unsafe_to_stop(other, 1, spared) == other.partitions, "it is accepted for t alone"
    alone = cluster(partition("t", (1,)))
    assert unsafe_to_stop(alone, 1, spared) == (), "it has no other replica"
    assert next_wave(waits(1), whole, 1, spared) == (("b1",), "")
    assert next_wave((half_done(1),), whole, 1, spared) == (("b1",), "")


def test_a_broker_that_settles_is_not_stopped_and_so_waits_for_no_other() -> None:
    view = cluster(partition("t", (1, 2), isr=(1,)), min_isr={"t": 2})
    settles = BrokerPosition("b1", 1, moved=False, touched=True, settling=True)
    assert next_wave((settles,), view, 1) == (("b1",), "")
    old = BrokerPosition("b1", 1, moved=False, touched=True)
    assert next_wave((old,), view, 1)[0] == ()


def test_once_all_have_moved_nothing_is_said_of_the_cluster() -> None:
    sick = cluster(partition("t", (1, 2), isr=(1,)))
    assert next_wave((BrokerPosition("b1", 1, moved=True, touched=True),), sick, 1) == ((), "")


def test_where_nobody_can_be_spared_the_first_ones_reason_is_told() -> None:
    view = cluster(partition("t", (1, 2)), min_isr={"t": 2})
    assert next_wave(waits(2, 1), view, 2) == (
        (), "stopping b1 would leave t-0 below min ISR (ISR [1, 2], min 2)"
    )  # fmt: skip
