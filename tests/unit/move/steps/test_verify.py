"""VERIFY: what must hold on dest, and what is only told because nothing can bring it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import (
    DEST,
    HIGH,
    HIGH_TEXT,
    OPEN,
    SILENT,
    context,
    proved,
    servers,
    statuses,
    stopped_by,
    well,
)
from tests.unit.move.steps.test_check import BASELINE, OWNERS, ZNODES, Z, znode
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.move.dependents.kafka import KAFKA, Brokers
from zkmigrate.move.facts.records import Drained
from zkmigrate.move.facts.sessions import Sessions
from zkmigrate.move.facts.subtree import Digests
from zkmigrate.move.steps.verify import VerifyFacts, VerifyStep
from zkmigrate.runbook.model.fact import Absent, Seen
from zkmigrate.runbook.model.step import Done, Verdict, Waiting
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.delta import DeltaFinding, DeltaResult
from zkmigrate.zookeeper.data.sums import Sums

NOW = 2 << 32
WHOLE = PartitionState("t", 0, 1, (1, 2, 3), (1, 2, 3))
VIEW = KafkaView("id", 1, dict.fromkeys((1, 2, 3), ("", 0, "")), (WHOLE,))
TREE = Sums(Chroot("/kafka"), Z, 2, Z, "/kafka", (1, 2), {}, {}, "", {}, 2)
READ = DeltaResult(Z, None, Z + 9, 3, (), (), "", None)
GOOD = VerifyFacts(
    statuses(OPEN),
    100.0,
    servers(dest1=("follower", NOW), dest2=("leader", NOW), dest3=("follower", NOW)),
    Seen(Sessions(OWNERS, {})),
    ZNODES,
    Brokers(Seen(VIEW)),
    Seen(READ),
    Digests(Z, Seen(TREE), dict.fromkeys(DEST, Seen(TREE))),
)


def verdict(f: VerifyFacts, **records: Any) -> Verdict:
    known: dict[str, Any] = {"drain": Drained(Z, None, {}).encode(), "prove": proved(baseline=BASELINE)}
    return VerifyStep(KAFKA).check(context(**known | records), f)


def told(f: VerifyFacts) -> list[str]:
    """Ids of what does not hold and stops nothing."""
    done = verdict(f)
    assert isinstance(done, Done)
    return [x.id for x in done.findings if x.held != "yes"]


def test_a_whole_move_is_verified() -> None:
    assert told(GOOD) == []


BLOCKS: dict[str, tuple[Mapping[str, Any], list[str]]] = {
    "two leaders": (
        {"servers": servers(dest1=("leader", NOW), dest2=("leader", NOW), dest3=("follower", NOW))},
        ["check.quorum", "check.epoch"],
    ),
    "source's epoch": (
        {"servers": servers(dest1=("follower", Z), dest2=("leader", Z), dest3=("follower", Z))},
        ["check.epoch"],
    ),
    "owners are not told": ({"owners": SILENT}, ["check.owners"]),
    "a znode is not read": ({"znodes": {**ZNODES, "/kafka/brokers/ids/1": SILENT}}, ["check.czxid"]),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_what_is_wrong_now_or_not_known_blocks(name: str) -> None:
    changes, ids = BLOCKS[name]
    assert [id for id, _ in stopped_by(verdict(replace(GOOD, **changes)))] == ids


LATER = DeltaFinding(Z + 5, 0, "create", "/kafka/x", 0x99)
TOLD: dict[str, tuple[Mapping[str, Any], list[str]]] = {
    "a session is gone": ({"owners": Seen(Sessions({}, {}))}, ["check.owners"]),
    "a znode is another one": (
        {"znodes": {**ZNODES, "/kafka/brokers/ids/1": znode(NOW + 1, 0x99)}},
        ["check.czxid"],
    ),
    "a write on source": ({"since_proof": Seen(replace(READ, missing=(LATER,)))}, ["verify.strays"]),
    "a hole in source's log": ({"since_proof": Seen(replace(READ, unproved="a hole"))}, ["verify.strays"]),
    "source's log is not read": ({"since_proof": SILENT}, ["verify.strays"]),
    "a dest disk held another tree": (
        {"trees": Digests(Z, Seen(TREE), {"dest1": Seen(TREE), "dest2": Seen(replace(TREE, sums=(1, 3)))})},
        ["verify.same-tree"],
    ),
    "a dest disk is not read": ({"trees": Digests(Z, Seen(TREE), {"dest2": SILENT})}, ["verify.same-tree"]),
    "source's disk is not read": ({"trees": Digests(Z, SILENT, {"dest2": Seen(TREE)})}, ["verify.same-tree"]),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_nothing_can_bring_back_is_told(name: str) -> None:
    changes, ids = TOLD[name]
    assert told(replace(GOOD, **changes)) == ids


def test_an_expiry_on_source_is_no_stray_and_a_new_session_is_no_loss() -> None:
    expired = replace(READ, missing=(replace(LATER, expiry=True),))
    more = Seen(Sessions({**OWNERS, 0x99: ("/kafka/new",)}, {}))
    assert told(replace(GOOD, since_proof=Seen(expired), owners=more)) == []


WAITS: dict[str, tuple[Mapping[str, Any], str]] = {
    "dest has run for less than two timeouts": (
        {"settled_for": 35.9},
        "twice the smallest session timeout has passed on dest",
    ),
    "a broker is not registered": (
        {"own": Brokers(Seen(replace(VIEW, brokers={1: ("", 0, ""), 2: ("", 0, "")})))},
        "every broker is registered and has settled",
    ),
    "a replica is behind": (
        {"own": Brokers(Seen(replace(VIEW, partitions=(replace(WHOLE, isr=(1, 2)),))))},
        "every broker is registered and has settled",
    ),
    "the brokers do not answer": (
        {"own": Brokers(SILENT)},
        "every broker is registered and has settled",
    ),
}


@pytest.mark.parametrize("name", WAITS)
def test_what_may_come_yet_is_waited_for(name: str) -> None:
    changes, what = WAITS[name]
    waits = verdict(replace(GOOD, **changes))
    assert isinstance(waits, Waiting)
    assert waits.what == what


def test_the_time_until_the_door_opened_counts_on_top_of_the_timeouts() -> None:
    seconds = {
        "cutover": {"seconds": {"go": {"forward": 2.0}, "open": {"forward": 1.0}, "stop": {"forward": 9.0}}}
    }
    assert isinstance(verdict(replace(GOOD, settled_for=38.9), **seconds), Waiting)
    assert well(verdict(replace(GOOD, settled_for=39.0), **seconds))


def test_a_host_in_another_phase_blocks() -> None:
    assert stopped_by(verdict(replace(GOOD, hosts=statuses(OPEN, phase="stopped")))) == [
        ("verify.phase", "dest2")
    ]


def test_without_proves_record_dests_longest_timeout_counts_and_a_warning_tells_why() -> None:
    lost = replace(
        GOOD, owners=Absent("not looked at"), znodes={}, since_proof=Absent("not looked at"), trees=None
    )
    assert isinstance(verdict(replace(lost, settled_for=79.0), prove={}), Waiting)
    default = context(prove={})
    default.inventory.dest.settings["maxSessionTimeout"] = "-1"  # in ZooKeeper: 20 ticks
    assert isinstance(VerifyStep(KAFKA).check(default, replace(lost, settled_for=79.0)), Waiting)
    done = verdict(lost, prove={})
    assert isinstance(done, Done)
    assert "verify.baseline" in [f.id for f in done.findings if f.severity == "warn"]


def test_a_stray_write_names_its_session_as_zookeeper_prints_it() -> None:
    done = verdict(replace(GOOD, since_proof=Seen(replace(READ, missing=(replace(LATER, session=HIGH),)))))
    assert isinstance(done, Done)
    assert any(f"by session {HIGH_TEXT} at" in x.seen for x in done.findings)
