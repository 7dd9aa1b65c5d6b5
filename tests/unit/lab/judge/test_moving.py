"""Claims about a cluster whose partitions move, by hand-made samples with one flaw at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.judge_fixtures import SECOND, Event, closed, event, opened
from zkmigrate.lab.judge.claims import Verdict
from zkmigrate.lab.judge.moving import empty_claim, late_claim, moving_claims
from zkmigrate.lab.load.json_lines import Recording, read_recording
from zkmigrate.runbook.model.finding import Held

SOURCES = ("brokers", "zookeeper")
FOUND = {"topic-a": {"leader.replication.throttled.replicas": "0:9"}}
OURS = {"broker-1": {"leader.replication.throttled.rate": "5000"}}


def lines() -> list[Event]:
    """Five seconds of both sources, with a move in flight in the third."""
    out = [opened("samples")]
    out += [event("settings", 1, source=source, moment="first", throttles=FOUND) for source in SOURCES]
    for second in range(5):
        flying = ["a-0", "a-1"] if second == 2 else []
        for source in SOURCES:
            out.append(
                event(
                    "sample", second * SECOND, source=source, took_s=0.1, partitions=2, in_flight=flying,
                    under_replicated=[], offline=[], held={"1": 2, "2": 2} if second < 4 else {"1": 4},
                    rates=OURS if flying else {},
                )
            )  # fmt: skip
    out += [
        event("settings", 6 * SECOND, source=source, moment="last", throttles=FOUND) for source in SOURCES
    ]
    return [*out, closed(7 * SECOND)]


def verdict(edit: Callable[[list[Event]], Any] = lambda _lines: None, cap: int = 2) -> Verdict:
    told = lines()
    edit(told)
    return Verdict(tuple(moving_claims(recording(told), SOURCES, cap)))


def recording(told: list[Event]) -> Recording:
    whole = told[-1]["event"] == "closed"
    return Recording("samples", told, problem="" if whole else "no closing line")


def test_every_claim_holds_for_a_whole_recording() -> None:
    found = verdict()
    assert found.held, [claim for claim in found.claims if claim.held is not Held.YES]
    assert {claim.id: claim.value for claim in found.claims} == {
        "samples": {source: {"samples": 5, "longest_pause_s": 1.0} for source in SOURCES},
        "under_replicated_partitions": 0,
        "offline_partitions": 0,
        "most_in_flight": 2,
        "rates": {"broker-1": [5000]},
        "throttles_as_found": True,
    }


def of(told: list[Event], name: str, source: str, number: int) -> Event:
    return [e for e in told if e["event"] == name and e["source"] == source][number]


def put(source: str, number: int, **fields: Any) -> Callable[[list[Event]], None]:
    """Another value in one sample."""
    return lambda told: of(told, "sample", source, number).update(fields)


def everywhere(**fields: Any) -> Callable[[list[Event]], None]:
    """Another value in each sample."""

    def edit(told: list[Event]) -> None:
        for one in told:
            one.update(fields if one["event"] == "sample" else {})

    return edit


def settled(throttles: dict[str, Any]) -> Callable[[list[Event]], None]:
    """Other settings in the end."""
    return lambda told: of(told, "settings", "brokers", 1).update(throttles=throttles)


def silent(told: list[Event]) -> None:
    """ZooKeeper told nothing."""
    told[:] = [one for one in told if (one["event"], one.get("source")) != ("sample", "zookeeper")]


@pytest.mark.parametrize(
    ("edit", "claim", "held"),
    [
        (put("zookeeper", 1, under_replicated=["b-3"]), "under_replicated_partitions", Held.NO),
        (put("brokers", 4, offline=["b-3"]), "offline_partitions", Held.NO),
        (put("zookeeper", 3, in_flight=["a", "b", "c"]), "most_in_flight", Held.NO),
        (everywhere(in_flight=[]), "most_in_flight", Held.NO),
        (everywhere(rates=None), "rates", Held.NO),
        (settled({}), "throttles_as_found", Held.NO),
        (settled(FOUND | OURS), "throttles_as_found", Held.NO),
        (lambda told: told.remove(of(told, "settings", "brokers", 0)), "throttles_as_found", Held.UNKNOWN),
        (lambda told: told.pop(), "under_replicated_partitions", Held.UNKNOWN),
        (silent, "samples", Held.UNKNOWN),
    ],
)
def test_a_flaw_spoils_its_claim(edit: Callable[[list[Event]], Any], claim: str, held: Held) -> None:
    found = verdict(edit)
    assert found[claim].held is held
    assert not found.held


def test_a_broken_cap_is_certain_whatever_the_file_lacks() -> None:
    def edit(told: list[Event]) -> None:
        told.pop()

    assert verdict(edit, cap=1)["most_in_flight"].held is Held.NO


def test_a_removed_broker_must_hold_nothing_in_the_end() -> None:
    told = recording(lines())
    assert empty_claim(told, SOURCES, [2]).value == {"brokers": 0, "zookeeper": 0}
    assert empty_claim(told, SOURCES, [2]).held is Held.YES
    assert empty_claim(told, SOURCES, [1, 2]).held is Held.NO
    assert empty_claim(read_recording("samples", None), SOURCES, [2]).held is Held.UNKNOWN


def test_what_was_born_while_a_broker_stopped_is_told_apart_and_whole_in_the_end() -> None:
    told = lines()
    for number in (1, 3):
        put("zookeeper", number, under_replicated=["new-0"])(told)
    late = ["new-0", "new-1"]
    found = Verdict(tuple(moving_claims(recording(told), SOURCES, 2, late)))
    assert found["under_replicated_partitions"].held is Held.YES
    claim = late_claim(recording(told), SOURCES, late)
    assert claim.held is Held.YES
    assert claim.value == {
        "brokers": {"partitions": 0, "longest_s": 0.0},
        "zookeeper": {"partitions": 1, "longest_s": 2.0},
    }
    put("zookeeper", 4, under_replicated=["new-0"])(told)
    assert late_claim(recording(told), SOURCES, late).held is Held.NO
    silent(told)
    assert late_claim(recording(told), SOURCES, late).held is Held.UNKNOWN
