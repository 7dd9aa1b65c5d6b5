"""BROKERS-BACK: who starts against source, when all are there, and from where there is no way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.unit.move.steps.facts import context, stopped_by, well
from tests.unit.move.steps.outage import (
    DOWN,
    SILENT,
    TO_DEST,
    TO_SOURCE,
    UP,
    broker,
    brokers,
    registered,
    view,
)
from tests.unit.move.steps.test_return_preflight import WELL
from zkmigrate.hosts.facts.host_names import Names
from zkmigrate.kafka.rules.connect import names_any, with_connect
from zkmigrate.move.facts import outage as outage_facts
from zkmigrate.move.facts.records import Outage
from zkmigrate.move.steps.brokers_back import BackFacts, BrokersBackStep
from zkmigrate.move.steps.return_preflight import ReturnPreflightStep
from zkmigrate.runbook.model.change import SetService, edit_line
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.look import DirEntry, Look
from zkmigrate.runbook.model.step import Blocked, Done, Ready, Verdict, Waiting, Way

OUTAGE = Outage(("broker3", "broker1", "broker2"), epoch=4)
HOME = broker(UP, TO_SOURCE)
STOPPED = broker(DOWN, TO_DEST)
REPLAYED = 50
AT_HOME = BackFacts(
    brokers(HOME), view(), registered(1, 2, 3, controller=2, epoch=5, changed=60), Seen(REPLAYED)
)
NOBODY = replace(
    AT_HOME,
    brokers=brokers(STOPPED),
    view=Unknown("refused", "nobody"),
    source=registered(epoch=4, changed=40),
)


def verdict(facts: BackFacts = AT_HOME, way: Way = Way.FORWARD, **more: Any) -> Verdict:
    c = context(way=way, brokers=OUTAGE.encode())
    return BrokersBackStep().check(c, replace(facts, **more))


def test_the_one_that_stopped_last_starts_first_and_alone() -> None:
    assert verdict(NOBODY) == Ready(("broker2",))
    first = brokers(STOPPED, broker2=HOME)
    assert isinstance(verdict(NOBODY, brokers=first), Waiting)
    assert verdict(NOBODY, brokers=first, source=registered(2)) == Ready(("broker1", "broker3"))


def test_a_broker_whose_file_is_written_and_that_is_down_is_started() -> None:
    assert verdict(NOBODY, brokers=brokers(STOPPED, broker2=broker(DOWN, TO_SOURCE))) == Ready(("broker2",))


def test_the_plan_changes_one_line_of_the_file_and_starts_it() -> None:
    put, start = BrokersBackStep().plan(context(), NOBODY, "broker2")
    assert put == edit_line("broker2", "/etc/kafka/server.properties", TO_DEST, TO_SOURCE)
    assert isinstance(start, SetService)
    assert start.action == "start"


def test_a_broker_that_somebody_started_with_the_old_file_blocks() -> None:
    assert stopped_by(verdict(brokers=brokers(HOME, broker1=broker(UP, TO_DEST)))) == [
        ("brokers-back.file", "broker1")
    ]


def test_a_broker_that_runs_with_a_name_that_does_not_resolve_may_have_used_source() -> None:
    """It is not taken for one that did not, and the way back is closed."""
    named = replace(
        broker(UP, with_connect(TO_SOURCE, "zk.alias:2181/kafka")), resolved={"zk.alias": Absent("zk.alias")}
    )
    forward = verdict(brokers=brokers(HOME, broker1=named))
    assert isinstance(forward, Blocked)
    [told] = forward.findings
    assert (told.id, told.held) == ("brokers-back.file", Held.UNKNOWN)
    assert told.seen == "the broker runs, and zk.alias does not resolve on broker1"
    back = verdict(NOBODY, Way.BACK, brokers=brokers(STOPPED, broker1=named))
    assert isinstance(back, Blocked)
    assert back.no_way_back


def test_a_name_of_the_inventory_that_does_not_resolve_on_a_broker_is_named_like_in_the_roll() -> None:
    """The name in the file resolves; whether it is source is unknown for source's own name."""
    resolved: Names = {"zk.alias": Seen(("10.0.0.11",)), "zk.source": Absent("zk.source")}
    content = with_connect(TO_SOURCE, "zk.alias:2181/kafka")
    c = context(brokers=OUTAGE.encode())
    first, *others = c.inventory.source.hosts
    source = c.inventory.source.model_copy(
        update={"hosts": (first.model_copy(update={"address": "zk.source"}), *others)}
    )
    c = replace(c, inventory=c.inventory.model_copy(update={"source": source}))
    at = replace(broker(UP, content), resolved=resolved)
    steps: dict[str, Verdict] = {
        "the broker runs, and ": BrokersBackStep().check(
            c, replace(AT_HOME, brokers=brokers(HOME, broker1=at))
        ),
        "": ReturnPreflightStep().check(c, replace(WELL, brokers=brokers(broker(), broker1=at))),
    }
    for before, told in steps.items():
        assert isinstance(told, Blocked)
        found = [one for one in told.findings if one.target == "broker1"]
        assert [one.seen for one in found] == [f"{before}zk.source does not resolve on broker1"]
    known = replace(at, resolved={"zk.alias": Seen(("10.0.0.11",)), "zk.dest": Absent("zk.dest")})
    went = BrokersBackStep().check(
        context(brokers=OUTAGE.encode()), replace(AT_HOME, brokers=brokers(HOME, broker1=known))
    )
    assert isinstance(went, Blocked)
    assert [one.seen for one in went.findings] == ["the broker runs, and its file does not name source"]


class World:
    """What a look at brokers asks, where no service is known."""

    def listing(self, _host: str, _path: str) -> Reading[tuple[DirEntry, ...]]:
        return Seen(())

    def zkm(self, _host: str, *_words: str) -> Reading[str]:
        return Absent("not asked")

    def each(self, hosts: Any, ask: Any) -> dict[str, Any]:
        return {host: ask(host) for host in hosts}


def test_the_names_in_a_brokers_file_are_resolved_there_and_those_of_the_inventory_are_not() -> None:
    class Hosts(World):
        def file(self, host: str, _path: str) -> Reading[bytes]:
            return Seen(with_connect(TO_SOURCE, "zk.alias:2181/kafka") if host == "broker1" else TO_SOURCE)

        def addresses(self, host: str, name: str) -> Reading[tuple[str, ...]]:
            assert (host, name) == ("broker1", "zk.alias")
            return Seen(("10.0.0.11",))

    c = context()
    states = outage_facts.brokers(c.inventory, cast(Look, Hosts()))
    ensembles = c.inventory.dest.hosts, c.inventory.source.hosts
    assert [state.names(*ensembles) for state in states.values()] == [True, False, False]
    named = (c.inventory.source.hosts[0].model_copy(update={"address": "zk.source"}),)
    assert names_any("zk.source:2181", ensembles[0], named, lambda _: Absent()) is False


@pytest.mark.parametrize("way", list(Way))
def test_who_does_not_tell_blocks_both_ways(way: Way) -> None:
    assert stopped_by(verdict(way=way, brokers=brokers(HOME, broker1=broker(SILENT)))) == [
        ("brokers-back.service", "broker1")
    ]
    unread: Reading[bytes] = Unknown("denied", "no")
    assert stopped_by(verdict(way=way, brokers=brokers(HOME, broker1=replace(HOME, properties=unread)))) == [
        ("brokers-back.file", "broker1")
    ]


@pytest.mark.parametrize(
    "facts",
    [
        {"view": view((1, 2))},
        {"view": Unknown("refused", "nobody")},
        {"source": registered(1, 2, controller=2, epoch=5)},
        {"source": registered(1, 2, 3, epoch=5)},
        {"source": Unknown("failed", "no")},
    ],
)
def test_all_must_be_registered_and_in_sync_under_a_controller(facts: dict[str, Any]) -> None:
    assert well(verdict())
    assert isinstance(verdict(**facts), Waiting)


@pytest.mark.parametrize("epoch", [3, 4])
def test_the_epoch_must_be_above_dests(epoch: int) -> None:
    source = registered(1, 2, 3, controller=2, epoch=epoch)
    assert stopped_by(verdict(source=source)) == [("brokers-back.epoch", "")]


def test_before_a_broker_was_on_source_the_files_are_put_back() -> None:
    written = brokers(STOPPED, broker2=broker(DOWN, TO_SOURCE))
    assert verdict(NOBODY, Way.BACK, brokers=written) == Ready(("broker2",))
    assert verdict(NOBODY, Way.BACK) == Done()


@pytest.mark.parametrize(
    "facts",
    [
        {"brokers": brokers(STOPPED, broker2=HOME)},
        {"source": registered(changed=REPLAYED + 1)},
        {"replayed": Absent("no mark")},
    ],
)
def test_once_a_broker_was_there_is_no_way_back(facts: dict[str, Any]) -> None:
    refused = verdict(NOBODY, Way.BACK, **facts)
    assert isinstance(refused, Blocked)
    assert refused.no_way_back
    assert stopped_by(refused) == [("brokers-back.no-way-back", "")]


@pytest.mark.parametrize(
    "facts", [{"source": Unknown("failed", "no")}, {"replayed": Unknown("failed", "no")}]
)
def test_a_source_that_does_not_tell_leaves_the_way_back_open_but_blocked(facts: dict[str, Any]) -> None:
    refused = verdict(NOBODY, Way.BACK, **facts)
    assert isinstance(refused, Blocked)
    assert not refused.no_way_back
