"""CHECK: one false fact behind the closed door is found; behind an open one it is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.unit.move.steps.facts import (
    DEST,
    HIGH,
    HIGH_TEXT,
    OPEN,
    SILENT,
    STARTED,
    context,
    proved,
    servers,
    statuses,
    stopped_by,
    well,
)
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.records import Drained
from zkmigrate.move.facts.sessions import Sessions
from zkmigrate.move.steps.check import NOT_ASKED, CheckFacts, CheckStep, quorum, same_ownership
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Done, Ready, Verdict, Waiting, Way
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.facts.ensemble import EnsembleView
from zkmigrate.zookeeper.facts.ownership import Ephemeral, Ownership
from zkmigrate.zookeeper.questions import Znode

Z = 0x1000000EC
FIRST, SECOND = 0x1000021C3000000, 0x9000021C3000001
"""Two sessions; the second one is negative where a server prints it signed."""
ONE, TWO = "/kafka/brokers/ids/1", "/kafka/brokers/ids/2"
BASELINE = Ownership(
    Chroot("/kafka"),
    Z,
    Z,
    {ONE: Ephemeral(FIRST, Z - 9), TWO: Ephemeral(SECOND, Z - 5)},
    {FIRST: 18000, SECOND: 18000},
)
OWNERS = {FIRST: (ONE,), SECOND: (TWO,)}


def znode(czxid: int, owner: int) -> Reading[Znode]:
    return Seen(Znode(b"", czxid, czxid, czxid, owner, 0, ()))


ZNODES = {ONE: znode(Z - 9, FIRST), TWO: znode(Z - 5, SECOND)}
GOOD = CheckFacts(
    statuses(STARTED, phase="checked"),
    servers(dest1=("follower", Z), dest2=("leader", 2 << 32), dest3=("follower", Z)),
    2,
    Seen(Sessions(OWNERS, {})),
    ZNODES,
)
CHECKED = replace(GOOD, hosts=statuses(replace(STARTED, phase="checked")))


def verdict(f: CheckFacts, **records: Any) -> Verdict:
    known: dict[str, Any] = {"drain": Drained(Z, None, {}).encode(), "prove": proved(baseline=BASELINE)}
    return CheckStep(KAFKA).check(context(**known | records), f)


def test_what_is_as_it_was_is_checked_host_by_host() -> None:
    todo = verdict(GOOD)
    assert isinstance(todo, Ready)
    assert todo.targets == ("dest1", "dest3")
    assert well(verdict(CHECKED))


def test_the_way_back_asks_nobody() -> None:
    c = context(way=Way.BACK)
    facts = CheckStep(KAFKA).observe(c, cast(Look, None))
    assert facts is NOT_ASKED
    assert CheckStep(KAFKA).check(c, facts) == Done()


def owned(**changes: Any) -> Reading[Sessions]:
    return Seen(Sessions({**OWNERS, **{int(k[1:], 16): v for k, v in changes.items()}}, {}))


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "two leaders": (
        {"servers": servers(dest1=("leader", 2 << 32), dest2=("leader", 2 << 32), dest3=("follower", Z))},
        ["check.quorum", "check.epoch"],
    ),
    "an observer": (
        {"servers": servers(dest1=("observer", Z), dest2=("leader", 2 << 32), dest3=("follower", Z))},
        ["check.quorum"],
    ),
    "source's epoch": (
        {"servers": servers(dest1=("follower", Z), dest2=("leader", Z + 1), dest3=("follower", Z))},
        ["check.epoch"],
    ),
    "a session owns nothing more": ({"owners": Seen(Sessions({FIRST: (ONE,)}, {}))}, ["check.owners"]),
    "a session owns something more": ({"owners": owned(s77=("/kafka/new",))}, ["check.owners"]),
    "a znode changed hands": ({"owners": Seen(Sessions({FIRST: (ONE, TWO)}, {}))}, ["check.owners"]),
    "owners are not told": ({"owners": SILENT}, ["check.owners"]),
    "another czxid": ({"znodes": {**ZNODES, TWO: znode(Z - 4, SECOND)}}, ["check.czxid"]),
    "another owner": ({"znodes": {**ZNODES, TWO: znode(Z - 5, FIRST)}}, ["check.czxid"]),
    "a znode is gone": ({"znodes": {**ZNODES, TWO: Absent(TWO)}}, ["check.czxid"]),
    "a znode is not read": ({"znodes": {**ZNODES, TWO: SILENT}}, ["check.czxid"]),
    "a znode was not asked for": ({"znodes": {ONE: ZNODES[ONE]}}, ["check.czxid"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_false_fact_behind_the_closed_door_blocks(name: str) -> None:
    facts, ids = WRONG[name]
    assert [id for id, _ in stopped_by(verdict(replace(CHECKED, **facts)))] == ids
    assert [id for id, _ in stopped_by(verdict(replace(GOOD, **facts)))] == ids, (
        "before a host is marked checked"
    )


def test_ephemerals_outside_the_chroot_do_not_count() -> None:
    assert well(verdict(replace(CHECKED, owners=owned(s77=("/kafka2/new", "/solr/x")))))


@pytest.mark.parametrize("synced", [0, 1])
def test_every_follower_must_be_synced(synced: int) -> None:
    waits = verdict(replace(CHECKED, synced=synced))
    assert isinstance(waits, Waiting)
    assert (waits.what, waits.progress) == ("every follower is synced", f"{synced} of 2")


def test_a_host_in_another_phase_blocks() -> None:
    assert stopped_by(verdict(replace(CHECKED, hosts=statuses(STARTED, phase="stopped")))) == [
        ("check.phase", "dest2")
    ]


def test_without_prove_s_record_nothing_can_be_compared() -> None:
    assert [id for id, _ in stopped_by(verdict(CHECKED, prove={}))] == ["check.baseline"]


@pytest.mark.parametrize("name", WRONG)
def test_behind_an_open_door_it_is_told_and_blocks_nothing(name: str) -> None:
    facts, ids = WRONG[name]
    done = verdict(replace(CHECKED, hosts=statuses(OPEN), **facts))
    assert isinstance(done, Done)
    assert [f.id for f in done.findings if f.held != "yes"] == ids
    assert {f.severity for f in done.findings} == {Severity.WARN}


def test_behind_an_open_door_a_majority_is_enough() -> None:
    f = replace(CHECKED, hosts=statuses(OPEN), synced=1)
    assert well(verdict(f))
    assert isinstance(verdict(replace(f, synced=0)), Waiting)
    assert tuple(f.hosts.at) == DEST


def test_an_owner_is_named_as_zookeeper_prints_it() -> None:
    wanted = replace(BASELINE, ephemerals={ONE: Ephemeral(HIGH, Z)}, timeouts={HIGH: 18000})
    found = same_ownership(KAFKA, wanted, Seen(Sessions({}, {})), {}, exact=True)
    assert f"{HIGH_TEXT}: had" in found[0].seen


AFTER_DRAIN = context(drain=Drained(Z, None, {}).encode())


def held(view: EnsembleView) -> dict[str, str]:
    findings: tuple[Finding, ...] = quorum(AFTER_DRAIN, view)
    return {finding.id: finding.held.value for finding in findings}


def test_a_follower_may_show_the_old_epoch_until_the_first_transaction_of_the_new_one() -> None:
    view = servers(dest1=("follower", Z), dest2=("leader", 2 << 32), dest3=("follower", Z))
    assert held(view) == {"check.quorum": "yes", "check.epoch": "yes"}


@pytest.mark.parametrize(
    ("leader", "follower"),
    [(Z, Z), (2 << 32, 3 << 32)],
    ids=["still source's epoch", "a follower beyond its leader"],
)
def test_a_wrong_epoch_is_servers(leader: int, follower: int) -> None:
    view = servers(dest1=("follower", follower), dest2=("leader", leader), dest3=("follower", leader))
    assert held(view)["check.epoch"] == "no"


@pytest.mark.parametrize("odd_one", ["observer", "leader", "standalone"])
def test_one_leads_and_all_others_follow(odd_one: str) -> None:
    view = servers(dest1=("follower", 2 << 32), dest2=("leader", 2 << 32), dest3=(odd_one, 2 << 32))
    assert held(view)["check.quorum"] == "no"


def test_what_was_seen_of_several_hosts_is_told_in_words() -> None:
    view = servers(dest1=("follower", 2 << 32), dest2=("leader", 2 << 32))
    assert [f.seen for f in quorum(AFTER_DRAIN, view)] == [
        "dest1: follower; dest2: leader",
        "epochs dest1: 2; dest2: 2; leader dest2",
    ]
