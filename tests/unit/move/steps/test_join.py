"""JOIN: one host after the other, each caught up before the next; and what its way back finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import ARMED, DEST, SILENT, context, servers, stopped_by, well
from tests.world.operator import inventory
from zkmigrate.move.rules.reform import observer_config
from zkmigrate.move.steps.join import JoinFacts, JoinHost, JoinStep
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.look import DirEntry
from zkmigrate.runbook.model.step import Blocked, Ready, Verdict, Waiting, Way
from zkmigrate.zookeeper.data.four_letter_words import Srvr
from zkmigrate.zookeeper.facts.ensemble import EnsembleView
from zkmigrate.zookeeper.facts.members import Members

NOW = 0x100000040
MEMBERS = Members(("server.1=10.0.0.1:2888:3888",))
SOURCE = servers(source1=("follower", NOW), source2=("leader", NOW), source3=("follower", NOW))


def serving(mode: str = "observer", zxid: int = NOW) -> Reading[Srvr]:
    return servers(host=(mode, zxid)).servers["host"]


def observer(host: str) -> JoinHost:
    return JoinHost(
        Seen(f"1{host[-1]}\n".encode()),
        Seen(observer_config(inventory(), MEMBERS)),
        Seen(()),
        Seen((DirEntry("version-2", "d", 0, 1),)),
        Seen((DirEntry("version-2", "d", 0, 1),)),
        Seen(replace(ARMED, phase="idle")),
        serving(),
    )


def facts(source: EnsembleView = SOURCE, **changes: Any) -> JoinFacts:
    """All dest hosts observe, but for these changes of the second one."""
    hosts = {host: observer(host) for host in DEST}
    hosts["dest2"] = replace(hosts["dest2"], **changes)
    return JoinFacts(source, Seen(MEMBERS), hosts)


def verdict(f: JoinFacts) -> Verdict:
    return JoinStep().check(context(), f)


def test_hosts_that_observe_and_have_caught_up_are_joined() -> None:
    assert well(verdict(facts()))


@pytest.mark.parametrize(
    "stat",
    [serving(zxid=NOW - 1), serving("follower"), serving("leader"), Absent("does not serve"), SILENT],
    ids=["one behind source's leader", "a follower", "a leader", "it does not serve", "no answer"],
)
def test_a_host_that_does_not_observe_yet_is_waited_for(stat: Reading[Srvr]) -> None:
    waits = verdict(facts(stat=stat))
    assert isinstance(waits, Waiting)
    assert waits.what == "dest2 observes source and has caught up"


@pytest.mark.parametrize(
    "fact",
    [
        {"myid": Seen(b"13\n")},
        {"myid": Absent("myid")},
        {"config": Seen(b"tickTime=2000\n")},
        {"status": Seen(replace(ARMED, unit_state="inactive"))},
    ],
    ids=["another myid", "no myid", "another config", "it is down"],
)
def test_a_host_that_lacks_something_is_to_be_joined(fact: dict[str, Any]) -> None:
    assert verdict(facts(**fact)) == Ready(("dest2",))


def test_the_next_host_waits_for_the_one_before_it_and_for_a_busy_source() -> None:
    f = facts(stat=serving(zxid=NOW - 1))
    hosts = {**f.hosts, "dest3": replace(f.hosts["dest3"], myid=Absent("myid"))}
    waits = verdict(replace(f, hosts=hosts))
    assert isinstance(waits, Waiting)
    assert waits.what.startswith("dest2 observes")
    limit = inventory().policy.join_outstanding
    leader = SOURCE.servers["source2"]
    assert isinstance(leader, Seen)
    for outstanding, busy in ((limit, False), (limit + 1, True)):
        slow = Seen(replace(leader.value, outstanding=outstanding))
        source = EnsembleView({**SOURCE.servers, "source2": slow}, "source2")
        found = verdict(facts(source, myid=Absent("myid")))
        assert isinstance(found, Waiting) is busy
        assert isinstance(found, Ready) is not busy


def test_without_a_leader_of_source_nobody_joins() -> None:
    waits = verdict(facts(EnsembleView(SOURCE.servers, None)))
    assert isinstance(waits, Waiting)
    assert waits.what == "source has a leader"


def test_what_cannot_be_read_blocks() -> None:
    assert stopped_by(verdict(facts(status=SILENT))) == [("join.answer", "dest2")]
    assert stopped_by(verdict(replace(facts(), members=SILENT))) == [("join.source-config", "source")]


def back(f: JoinFacts) -> Verdict:
    return JoinStep().check(context(way=Way.BACK), f)


def test_the_way_back_takes_the_last_host_first_and_leaves_nothing() -> None:
    assert back(facts()) == Ready(("dest3",))
    gone = replace(
        observer("dest1"), status=Seen(replace(ARMED, unit_state="inactive")), data=Seen(()), txn=Seen(())
    )
    left = JoinFacts(SOURCE, Seen(MEMBERS), dict.fromkeys(DEST, gone))
    assert well(back(left))
    for change in (
        {"data": Seen((DirEntry("version-2", "d", 0, 1),))},
        {"txn": Seen((DirEntry("version-2", "d", 0, 1),))},
        dict.fromkeys(("data", "txn"), Seen((DirEntry("version-2.zkm-join.dest2.1", "d", 0, 1),))),
        {"status": Seen(ARMED)},
    ):
        one = replace(left, hosts={**left.hosts, "dest2": replace(gone, **change)})
        assert back(one) == Ready(("dest2",)), change
    assert isinstance(back(facts(status=SILENT)), Blocked)
