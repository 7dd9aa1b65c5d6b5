"""PROVE: what source's log and dest's disks must say; and what is read of that log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest

from tests.answers import Answering
from tests.memory_files import BytesReader
from tests.unit.move.steps.facts import DEST, HIGH, HIGH_TEXT, SILENT, context, stopped_by, surveyed, well
from tests.unit.zkdata_fixtures import create_payload, log_from, record
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.records import Drained, Proved, Stopped
from zkmigrate.move.steps.prove import ProveFacts, ProveStep
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry, Look, RandomReader
from zkmigrate.runbook.model.step import Blocked, Context, Done, Verdict, Waiting
from zkmigrate.runbook.model.step_record import recorded
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.delta import DeltaFinding, DeltaResult
from zkmigrate.zookeeper.data.txnlog import Cursor
from zkmigrate.zookeeper.facts.ownership import Ephemeral, Ownership

T = TypeVar("T")
EPOCH = 5
BASE = EPOCH << 32
START, Z, DISK = BASE + 1, BASE + 3, BASE + 4
"""SURVEY's place in the log, Z of DRAIN, and the newest transaction on dest's disks."""
SESSION = 0x77
PLACE = Cursor(f"log.{START:x}", 16 + len(record(create_payload(START, f"/other/{START}"))), START)
STATE = Ownership(Chroot("/kafka"), DISK, Z, {"/kafka/ids/1": Ephemeral(SESSION, START)}, {SESSION: 18000})


def run(rehearsal: bool = False, z: int = Z, **tails: int) -> Context:
    """All before PROVE; tails: newest transaction of dest hosts, else ``DISK``."""
    return context(
        rehearsal,
        survey=surveyed(
            epoch=EPOCH, ownership=replace(STATE, upto=START), cursors={"source2": PLACE}, on_dest=(SESSION,)
        ),
        drain=Drained(z, None, {}).encode(),
        stop=Stopped({host: tails.get(host, DISK) for host in DEST}, {}, {}).encode(),
    )


def result(
    missing: Sequence[DeltaFinding] = (), unproved: str = "", last: int = DISK, after: int = DISK
) -> DeltaResult:
    return DeltaResult(after, DISK, last, 0, tuple(missing), (), unproved, PLACE)


GOOD = ProveFacts(("source2", DISK), ("source2", DISK), Seen(STATE), Seen(result()))
LOST = DeltaFinding(DISK + 1, 0, "create", "/kafka/new", 0x99)


def verdict(f: ProveFacts, c: Context | None = None) -> Verdict:
    return ProveStep(KAFKA).check(c or run(), f)


def test_disks_that_hold_everything_are_proved() -> None:
    done = verdict(GOOD)
    assert isinstance(done, Done)
    assert done.record is not None
    record = recorded(Proved, done.record, "run")
    assert record.first == DEST
    assert record.baseline == STATE


WRONG: dict[str, tuple[Mapping[str, Any], str]] = {
    "another leader before": ({"before": ("source1", DISK)}, "prove.leader"),
    "another leader after": ({"after": ("source1", DISK)}, "prove.leader"),
    "no leader before": ({"before": (None, -1)}, "prove.leader"),
    "no leader after": ({"after": (None, -1)}, "prove.leader"),
    "another epoch before": ({"before": ("source2", BASE - 1)}, "prove.leader"),
    "another epoch after": ({"after": ("source2", BASE + (1 << 32))}, "prove.leader"),
    "something is missing": ({"delta": Seen(result([LOST]))}, "prove.delta"),
    "a hole in the log": ({"delta": Seen(result(unproved="a hole"))}, "prove.delta"),
    "the state is not known": ({"state": SILENT}, "prove.source-log"),
    "the log is not read": ({"delta": SILENT}, "prove.source-log"),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_false_fact_leaves_it_unproved(name: str) -> None:
    changes, id = WRONG[name]
    assert stopped_by(verdict(replace(GOOD, **changes))) == [(id, "")]


@pytest.mark.parametrize("z", [BASE - 1, BASE + (1 << 32)], ids=["before", "after"])
def test_z_of_another_epoch_than_surveys_leaves_it_unproved(z: int) -> None:
    assert stopped_by(verdict(GOOD, run(z=z))) == [("prove.leader", "")]


def test_each_disk_must_hold_the_newest_transaction_of_the_chroot() -> None:
    assert stopped_by(verdict(GOOD, run(dest2=Z - 1))) == [("prove.tail", "dest2")]
    assert well(verdict(GOOD, run(dest2=Z)))


def test_each_disk_must_reach_the_place_that_survey_read_up_to() -> None:
    older = replace(GOOD, state=Seen(replace(STATE, newest=START - 1)))
    assert well(verdict(older, run(dest3=START)))
    assert stopped_by(verdict(older, run(dest3=START - 1))) == [("prove.cursor", "")]


def test_a_log_that_has_not_reached_sources_zxid_yet_is_waited_for() -> None:
    waits = verdict(replace(GOOD, delta=Seen(result(unproved="the log ends before", last=DISK - 1))))
    assert isinstance(waits, Waiting)
    assert waits.what == "source's log reaches its zxid"


@pytest.mark.parametrize(
    ("found", "blocks"),
    [
        (result([LOST]), []),
        (result([LOST], unproved="a hole"), [("prove.delta", "")]),
        (result(unproved="a hole"), [("prove.delta", "")]),
    ],
    ids=["brokers still write through source", "and the log has a hole", "a hole alone"],
)
def test_a_rehearsal_forgives_what_is_missing_but_no_hole(found: DeltaResult, blocks: list[object]) -> None:
    f = replace(GOOD, delta=Seen(found))
    assert stopped_by(verdict(f, run(rehearsal=True))) == blocks


def test_a_rehearsal_needs_the_same_leader_and_tails() -> None:
    moved = replace(GOOD, after=("source1", DISK))
    assert stopped_by(verdict(moved, run(rehearsal=True))) == [("prove.leader", "")]
    assert stopped_by(verdict(GOOD, run(rehearsal=True, dest1=Z - 1))) == [("prove.tail", "dest1")]


# --- what is read ------------------------------------------------------------------------------------------


class Source(Answering):
    """Source's leader at a zxid, with this log on its disk."""

    def __init__(self, at: int, *zxids: int) -> None:
        self.at = at
        payloads = [create_payload(zxid, f"/other/{zxid}") for zxid in zxids]
        self.name, self.log = f"log.{zxids[0]:x}", log_from(payloads) + bytes(4096)

    def word(self, host: str, word: str) -> Reading[str]:
        if host != "source2":
            return Unknown("refused", "connection refused")
        return Seen(
            "Zookeeper version: 3.5.8-f439ca583e, built on 05/04/2020 15:07 GMT\n"
            "Latency min/avg/max: 0/0/3\nReceived: 5\nSent: 4\nConnections: 1\nOutstanding: 0\n"
            f"Zxid: {self.at:#x}\nMode: leader\nNode count: 9\n"
        )

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        return Seen((DirEntry(self.name, "f", len(self.log), 1),))

    def reader(self, host: str, path: str) -> RandomReader:
        return BytesReader(self.log)

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}


def proved(source: Source) -> Verdict:
    c = run()
    return verdict(ProveStep(KAFKA).observe(c, cast(Look, source)), c)


def test_a_whole_log_proves_it() -> None:
    assert well(proved(Source(DISK + 1, START, START + 1, Z, DISK, DISK + 1)))


@pytest.mark.parametrize("hole", [START + 1, Z], ids=["behind the cursor", "before dest's zxid"])
def test_a_hole_before_dests_zxid_is_seen(hole: int) -> None:
    """The state at dest's zxid comes from these records, so the proof of the tail rests on them."""
    zxids = [z for z in (START, START + 1, Z, DISK, DISK + 1) if z != hole]
    assert stopped_by(proved(Source(DISK + 1, *zxids))) == [("prove.source-log", "")]


def test_a_log_that_ends_before_sources_zxid_proves_nothing() -> None:
    waits = proved(Source(DISK + 2, START, START + 1, Z, DISK, DISK + 1))
    assert isinstance(waits, Waiting)


def test_a_leader_that_has_proposed_nothing_yet_needs_no_longer_log() -> None:
    other = Source(BASE + (1 << 32), START, START + 1, Z, DISK)
    f = ProveStep(KAFKA).observe(run(), cast(Look, other))
    assert isinstance(f.delta, Seen)
    assert f.delta.value.held is True
    assert stopped_by(verdict(f)) == [("prove.leader", "")], "yet the epoch is another one"


def test_a_missing_change_names_its_session_as_zookeeper_prints_it() -> None:
    said = verdict(replace(GOOD, delta=Seen(result([replace(LOST, session=HIGH)]))))
    assert isinstance(said, Blocked)
    assert any(f"session {HIGH_TEXT}" in x.seen for x in said.findings)
