"""What somebody else wrote to target while no copier ran: run and status name it, and compare agrees."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, cast

import pytest

from tests.unit.topics.mirror.batches import at, built, in_transaction, marker, without
from tests.unit.topics.mirror.model_cluster import Log, ModelCluster
from zkmigrate.topics.mirror.clients import copier
from zkmigrate.topics.mirror.clients.cluster import Part
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.copier import Copier
from zkmigrate.topics.mirror.clients.partition import Partition
from zkmigrate.topics.mirror.clients.survey import Mirrored, places
from zkmigrate.topics.mirror.rules import small_batches
from zkmigrate.topics.mirror.rules.batch import Batch
from zkmigrate.topics.mirror.verbs.compare import _compared

P: Part = ("plain", 0)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SETTLE_S", "RETRY_S", "LOOK_S"):
        monkeypatch.setattr(copier, name, 0.0)
    monkeypatch.setattr(small_batches, "FEW", 0)


def mirrored(*batches: Batch) -> tuple[ModelCluster, ModelCluster]:
    """A source with these batches, and its mirror."""
    here, there = ModelCluster("source", {P: Log()}), ModelCluster("target", {P: Log()})
    for one in batches:
        here.logs[P].append(one)
    assert run(here, there).failed == ""
    assert there.logs[P].read() == here.logs[P].read()
    return here, there


def run(here: ModelCluster, there: ModelCluster) -> Partition:
    """The partition after ``mirror run --once``."""
    made = Copier(cast(Any, here), cast(Any, there), here.logs, {"plain"}, KafkaCodecs(), lambda _: None)
    rounds = count()
    made.copy(lambda: next(rounds) > 300, lambda: None, once=True)
    return made.partitions[P]


def status(here: ModelCluster, there: ModelCluster) -> tuple[str, str]:
    """State and reason in ``mirror status``."""
    [place] = places(cast(Any, here), cast(Any, there), [Mirrored("plain", 1, 1, 1, {}, {}, {}, "")])
    return place.state, place.why


def compare(here: ModelCluster, there: ModelCluster) -> str:
    [place] = places(cast(Any, here), cast(Any, there), [Mirrored("plain", 1, 1, 1, {}, {}, {}, "")])
    return _compared(cast(Any, here), cast(Any, there), place).state


def data(n: int, records: int = 1) -> Batch:
    return built(records, first_value=100 * n)


FOREIGN: dict[str, Sequence[Batch]] = {
    "a marker": [marker(0, 7000, commit=False)],
    "a marker of a commit": [marker(0, 7000, commit=True)],
    "a marker with a producer id of the mirror's own": [marker(0, 9, commit=False)],
    "several markers": [marker(0, 7000, commit=False)] * 40,
    "an aborted transaction": [in_transaction(built(1, first_value=70), 7000), marker(0, 7000, commit=False)],
    "aborted transactions": [in_transaction(built(1), 7000), marker(0, 7000, commit=False)] * 4,
    "an open transaction": [in_transaction(built(1, first_value=70), 7000)],
    "a committed transaction": [in_transaction(built(1, first_value=70), 7000), marker(0, 7000, commit=True)],
    "a plain batch": [built(3, first_value=70)],
    "several plain batches": [built(1, first_value=70 + n) for n in range(9)],
}


def write(log: Log, batches: Sequence[Batch]) -> int:
    """Append foreign batches; how many offsets they take."""
    begun = log.end
    for one in batches:
        log.append(one)
    return log.end - begun


@pytest.mark.parametrize("before", [0, 2, 9])
@pytest.mark.parametrize("kind", FOREIGN)
def test_h2_what_another_producer_wrote_while_no_copier_ran_is_named(kind: str, before: int) -> None:
    """Source goes on until it is as long as target, or longer: no length tells."""
    for more in (0, 1, 30):
        here, there = mirrored(*(data(n) for n in range(before)))
        taken = write(there.logs[P], FOREIGN[kind])
        for n in range(taken + more):
            here.logs[P].append(data(before + n))
        state, why = status(here, there)
        assert state == "failed", (kind, more)
        assert "target" in why
        assert compare(here, there) == "different"
        end = there.logs[P].end
        for _ in range(2):
            assert run(here, there).failed != ""
            assert there.logs[P].end == end, "nothing is appended"


@pytest.mark.parametrize("own", [1, 2, 4])
def test_h2_a_foreign_marker_below_the_batches_in_flight_is_found_again_after_a_restart(own: int) -> None:
    """The copier that failed had up to four batches in flight behind it."""
    here, there = mirrored(*(data(n, 10) for n in range(8)))
    log = there.logs[P]
    last = log.batches[-own:]
    del log.batches[-own:]
    log.append(marker(0, 7000, commit=False))
    for one in last:
        log.append(one)
    here.logs[P].append(data(9))
    for answered in (2, 1000):
        here.most = there.most = answered
        assert status(here, there)[0] == "failed"
        assert run(here, there).failed != ""


def test_h2_a_foreign_marker_before_the_first_copied_record_is_found() -> None:
    """An earlier release went on behind it."""
    here, there = mirrored(*(data(n) for n in range(3)))
    log = there.logs[P]
    log.batches[0] = marker(0, 7000, commit=False)
    assert (status(here, there)[0], compare(here, there)) == ("failed", "different")
    assert run(here, there).failed != ""


def test_h2_a_failure_of_a_running_copier_is_found_again_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = mirrored(*(data(n) for n in range(3)))
    made = Copier(cast(Any, here), cast(Any, there), here.logs, {"plain"}, KafkaCodecs(), lambda _: None)
    rounds = count()

    def ended() -> bool:
        n = next(rounds)
        if n == 5:
            there.logs[P].append(marker(0, 7000, commit=False))
            here.logs[P].append(data(3))
        return n > 60

    made.copy(ended, lambda: None)
    assert made.partitions[P].failed != ""
    assert (status(here, there)[0], compare(here, there)) == ("failed", "different")
    assert run(here, there).failed != ""


def test_h17_former_sources_markers_are_right_where_the_other_side_has_no_record() -> None:
    """Target was the source before a switch: clients' transactions ended there."""
    here = ModelCluster("source", {P: Log()})
    log = here.logs[P]
    write(log, [data(0), in_transaction(data(1), 5), marker(0, 5, commit=True)])
    write(log, [in_transaction(data(2), 6), marker(0, 6, commit=False), data(3), marker(0, 8, commit=True)])
    there = ModelCluster("target", {P: Log()})
    assert run(here, there).failed == ""
    there.logs[P].append(data(4))
    assert status(there, here) == ("behind", "")
    assert run(there, here).failed == ""
    assert (status(there, here), compare(there, here)) == (("equal", ""), "equal")
    assert here.logs[P].read() == there.logs[P].read()


def test_h2_offsets_that_compaction_emptied_on_either_side_are_no_difference() -> None:
    here, there = mirrored(*(data(n, 3) for n in range(4)))
    log = here.logs[P]
    log.batches[-1] = without(log.batches[-1], [0])
    assert (status(here, there), run(here, there).failed) == (("equal", ""), "")
    there.logs[P].batches[-2] = without(there.logs[P].batches[-2], [1])
    assert (status(here, there), run(here, there).failed) == (("equal", ""), "")


def test_h2_a_record_where_source_holds_a_marker_is_named_whoever_wrote_it() -> None:
    """Target lost an end marker, and the mirror's own batch took its place."""
    here, there = mirrored(data(0), marker(0, 5, commit=True), data(1))
    log = there.logs[P]
    own = log.batches.pop()
    log.batches.pop()
    log.append(own)
    assert status(here, there)[0] == "failed"
    assert run(here, there).failed != ""


def test_h2_a_batch_that_fills_a_deleted_prefix_must_end_where_source_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A foreign marker moved it one on, over a hole of source."""
    here, there = ModelCluster("source", {P: Log(start=50)}), ModelCluster("target", {P: Log()})
    here.logs[P].batches.append(at(data(1), 54))
    with monkeypatch.context() as patch:
        patch.setattr(there, "drop", lambda *_: 7)
        run(here, there)
    log = there.logs[P]
    assert log.end == 50
    filled = log.batches.pop()
    log.append(marker(0, 7000, commit=False))
    log.append(filled)
    assert status(here, there)[0] == "failed"
    assert "empty records go up to offset 51" in run(here, there).failed


def test_h2_records_that_only_target_has_deleted_are_told() -> None:
    here, there = mirrored(*(data(n, 2) for n in range(4)))
    topic = [Mirrored("plain", 1, 1, 1, {}, {}, {}, "")]
    [place] = places(cast(Any, here), cast(Any, there), topic)
    assert (place.state, place.note) == ("equal", "")
    there.drop(P, 5)
    [place] = places(cast(Any, here), cast(Any, there), topic)
    assert place.note == "target lacks source's records from offset 0 to 5, where its log begins"


def retained(*deleted: int) -> tuple[ModelCluster, ModelCluster]:
    """After a switch: the new source, which was mirrored, and the former one. deleted: what retention deleted
    on each: below which offset."""
    old, new = mirrored(*(data(n, 2) for n in range(4)))
    for side, offset in zip((new, old), deleted, strict=False):
        side.drop(P, offset)
    return new, old


DELETES = Mirrored("plain", 1, 1, 1, {}, {}, {}, "", {"cleanup.policy": "delete"})


def placed(here: ModelCluster, there: ModelCluster) -> tuple[str, str, str]:
    """State, reason and note in ``mirror status`` of a topic whose records expire."""
    [place] = places(cast(Any, here), cast(Any, there), [DELETES])
    return place.state, place.why, place.note


@pytest.mark.parametrize("deleted", [(4,), (8,), (7, 4), (4, 7)])
def test_retention_that_came_first_on_the_new_source_is_no_foreign_write(deleted: tuple[int, ...]) -> None:
    new, old = retained(*deleted)
    state, why, note = placed(new, old)
    assert (state, why) == ("equal", "")
    assert ("so they were not compared" in note) == (deleted[0] > (deleted[1] if len(deleted) > 1 else 0))
    assert run(new, old).failed == ""
    new.logs[P].append(data(9, 3))
    assert placed(new, old)[:2] == ("behind", "")
    assert run(new, old).failed == ""
    kept = max(new.logs[P].start, old.logs[P].start)
    here, there = ([one for one in side.logs[P].read() if one[0] >= kept] for side in (new, old))
    assert here == there
    assert compare(new, old) == "equal"


def test_records_that_the_former_source_lacks_and_the_new_one_has_deleted_are_passed_over() -> None:
    """The copier was down so long that retention deleted what it had to copy."""
    new, old = retained()
    new.logs[P].append(data(9, 3))
    new.logs[P].append(data(10, 2))
    new.drop(P, 11)
    assert placed(new, old)[:2] == ("behind", "")
    assert run(new, old).failed == ""
    assert old.logs[P].read() == new.logs[P].read()
    assert old.logs[P].start == 11, "what source has deleted is deleted here too"


def test_a_foreign_write_where_both_still_have_records_fails_beside_retention() -> None:
    new, old = retained(4)
    old.logs[P].append(data(77))
    new.logs[P].append(data(9))
    new.logs[P].append(data(10))
    state, why, _ = placed(new, old)
    assert state == "failed"
    assert "target's record at offset 8" in why or "wrote target's record at offset 8" in why
    assert run(new, old).failed == why
