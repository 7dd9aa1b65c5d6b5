"""The return's PREFLIGHT: what speaks against going back to source, and whose consent it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps import outage
from tests.unit.move.steps.facts import DEST, context, stopped_by, well
from tests.unit.move.steps.outage import SOURCE, TO_SOURCE, broker, brokers, ensemble, looked, view
from tests.world.returned import AGREED
from zkmigrate.inventory.accept import Accept
from zkmigrate.kafka.rules.connect import with_connect
from zkmigrate.move.steps.return_preflight import ReturnFacts, ReturnPreflightStep
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.runbook.model.step import Blocked, Context, Done, Verdict

NOW = 1_800_000_000.0
WELL = ReturnFacts(
    ensemble(SOURCE, "follower", "leader", "follower"),
    ensemble(DEST, "follower", "leader", "follower"),
    view(),
    brokers(broker()),
    looked("source.at-rest", "dest.at-rest"),
    NOW,
)


def asked(*accept: Accept) -> Context:
    c = context()
    return replace(c, inventory=c.inventory.model_copy(update={"accept": accept}))


def verdict(**facts: Any) -> Verdict:
    return ReturnPreflightStep().check(asked(AGREED), replace(WELL, **facts))


def test_all_is_well_while_brokers_run_and_their_sessions_live() -> None:
    done = verdict()
    assert well(done)
    assert isinstance(done, Done)
    consent = done.findings[-1]
    assert (consent.id, consent.severity) == ("return.source-owner", Severity.WARN)
    assert "Ada, who owns source" in consent.accepted
    assert "5 transactions are replayed" in consent.seen


def test_nobody_or_nobody_any_more_agrees() -> None:
    over = AGREED.model_copy(update={"until": "2020-01-01T00:00Z"})
    for c in (asked(), asked(over)):
        refused = ReturnPreflightStep().check(c, WELL)
        assert stopped_by(refused) == [("return.source-owner", "")]
        assert isinstance(refused, Blocked)
        assert "every broker is down" in refused.findings[-1].seen


@pytest.mark.parametrize(
    ("facts", "ids"),
    [
        ({"source": ensemble(SOURCE, "follower", "leader", "")}, ["return.source"]),
        ({"source": ensemble(SOURCE, "follower", "follower", "follower")}, ["return.source"]),
        ({"dest": ensemble(DEST, "leader", "", "")}, ["return.dest"]),
        ({"view": Unknown("refused", "nobody")}, ["return.brokers"]),
        ({"view": view((1, 2))}, ["return.brokers", "return.in-sync"]),
        ({"view": view(reassigning=(("t", 0),))}, ["return.reassignment"]),
        ({"brokers": brokers(broker(), broker2=broker(content=TO_SOURCE))}, ["return.file"]),
        ({"brokers": brokers(broker(), broker2=broker(content=b"no line"))}, ["return.file"]),
        ({"replay": looked("cut.same")}, ["cut.same"]),
        ({"replay": looked(unknown="source.untouched")}, ["source.untouched"]),
        ({"replay": Unknown("failed", "no disk")}, ["return.disks"]),
    ],
)
def test_what_speaks_against_it_is_named(facts: dict[str, Any], ids: list[str]) -> None:
    assert [id for id, _ in stopped_by(verdict(**facts))] == ids


def test_a_file_that_names_both_is_not_as_the_roll_left_it() -> None:
    both = TO_SOURCE.replace(b"10.0.0.3:2181", b"10.0.0.11:2181")
    assert stopped_by(verdict(brokers=brokers(broker(), broker3=broker(content=both)))) == [
        ("return.file", "broker3")
    ]


def test_a_file_that_names_hosts_by_other_names_is_known_by_what_they_resolve_to() -> None:
    """zk.one and zk.two are not in the inventory. One that does not resolve on the broker is unknown."""
    named = with_connect(TO_SOURCE, "zk.one:2181,zk.two:2181/kafka")
    dest, source = Seen(("10.0.0.11",)), Seen(("10.0.0.2",))

    def told(one: Reading[tuple[str, ...]], two: Reading[tuple[str, ...]]) -> Finding:
        at = replace(broker(content=named), resolved={"zk.one": one, "zk.two": two})
        found = verdict(brokers=brokers(broker(), broker3=at))
        assert isinstance(found, Done | Blocked)
        return next(f for f in found.findings if (f.id, f.target) == ("return.file", "broker3"))

    assert told(dest, Seen(("10.0.0.12",))).held is Held.YES
    assert told(dest, source).held is Held.NO
    assert told(source, source).held is Held.NO
    lost = told(dest, Absent("zk.two"))
    assert (lost.held, lost.seen) == (Held.UNKNOWN, "zk.two does not resolve on broker3")
    assert told(source, Absent("zk.two")).held is Held.NO


def test_brokers_that_cannot_tell_of_reassignments_are_only_told() -> None:
    assert well(verdict(view=view(reassigning=None)))


def test_an_observer_of_source_observes_before_the_return() -> None:
    source = ensemble(SOURCE, "leader", "follower", "observer")
    assert stopped_by(verdict(source=source)) == [("return.source", "")], "one without a vote has one"
    assert well(verdict(source=replace(source, observers=frozenset({SOURCE[2]}))))
    wrong = replace(source, observers=frozenset({SOURCE[1]}))
    assert stopped_by(verdict(source=wrong)) == [("return.source", "")]


def test_the_quorum_of_dest_is_enough_and_unheard_hosts_leave_it_unknown() -> None:
    assert well(verdict(dest=ensemble(DEST, "follower", "leader", "")))
    assert outage.ensemble(DEST, "leader", "", "").has_quorum() is None
