"""CUT: which facts say that nothing passes between dest and source, and which that dest observes again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import zkmigrate.hosts
from tests.unit.move.steps.facts import (
    ARMED,
    CUT,
    DEST,
    FENCED,
    SILENT,
    context,
    dest_states,
    stopped_by,
    surveyed,
    well,
)
from zkmigrate.hosts.facts.status import Drain
from zkmigrate.inventory.inventory import Lease
from zkmigrate.move.host_states import _LEASE_S
from zkmigrate.move.steps.cut import RESTART_AFTER_S, CutFacts, CutStep
from zkmigrate.runbook.model.change import HostVerb, SetService
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.step import Blocked, Done, Ready, Verdict, Waiting, Way
from zkmigrate.zookeeper.data.zxid import Zxid

REFUSED: Reading[dict[str, str]] = Seen({"10.0.0.1:2181": "refused", "10.0.0.1:2888": "refused"})
LEARNERS = 5
"""Two followers of source and three observers; two are left after the cut."""


def severed(**fact: Any) -> CutFacts:
    return CutFacts(dest_states(CUT, **fact), dict.fromkeys(DEST, REFUSED), LEARNERS - len(DEST), {})


def verdict(f: CutFacts) -> Verdict:
    return CutStep().check(context(survey=surveyed(learners=LEARNERS)), f)


def test_a_cut_that_is_seen_from_both_sides_is_done() -> None:
    done = verdict(severed())
    assert isinstance(done, Done)
    assert {f.id for f in done.findings} == {"cut.severed", "cut.probe", "cut.dropped"}


@pytest.mark.parametrize(
    "fact",
    [
        {"in4": "present"},
        {"out4": "absent"},
        {"out6": "changed"},
        {"cut_entries": 0},
        {"source_sockets": 1},
        {"source_sockets": None},
    ],
    ids=str,
)
def test_one_false_fact_of_a_host_is_no_cut(fact: dict[str, Any]) -> None:
    assert stopped_by(verdict(severed(**fact))) == [("cut.severed", "dest2")]


@pytest.mark.parametrize(
    "probe",
    [
        Seen({"10.0.0.1:2181": "refused", "10.0.0.1:2888": "open"}),
        Seen({"10.0.0.1:2181": "timeout"}),
        Seen({}),
        SILENT,
    ],
    ids=["one port is open", "nobody answers", "nothing was tried", "it could not be tried"],
)
def test_every_port_must_refuse_what_dest_sends(probe: Reading[dict[str, str]]) -> None:
    f = severed()
    assert stopped_by(verdict(replace(f, probes={**f.probes, "dest3": probe}))) == [("cut.probe", "dest3")]


@pytest.mark.parametrize("learners", [None, LEARNERS - 2], ids=["not told", "one is left"])
def test_sources_leader_must_have_dropped_its_learners(learners: int | None) -> None:
    waits = verdict(replace(severed(), learners=learners))
    assert isinstance(waits, Waiting)
    assert waits.what == "source's leader has dropped the dest learners"


def test_fenced_hosts_are_to_be_cut_and_no_others() -> None:
    assert verdict(severed(phase="fenced")) == Ready(("dest2",))
    assert stopped_by(verdict(severed(phase="stopped"))) == [("cut.phase", "dest2")]
    assert stopped_by(verdict(replace(severed(), states=dest_states(CUT, silent="dest1")))) == [
        ("host.dest1", "dest1")
    ]


# --- the way back ------------------------------------------------------------------------------------------


def following(mode: str = "observer") -> Reading[Drain]:
    return Seen(Drain(0, Zxid(5), mode))


def back(**changes: Any) -> CutFacts:
    return CutFacts(dest_states(FENCED, **changes), {}, None, dict.fromkeys(DEST, following()))


def verdict_back(f: CutFacts) -> Verdict:
    return CutStep().check(context(way=Way.BACK), f)


def test_hosts_that_observe_again_are_back() -> None:
    assert well(verdict_back(back()))


def test_a_host_that_is_cut_or_asleep_is_to_be_brought_back() -> None:
    assert verdict_back(back(phase="cut")) == Ready(("dest2",))
    assert verdict_back(back(unit_state="failed")) == Ready(("dest2",))
    assert well(verdict_back(back(phase="idle", unit_state="inactive"))), "it was never cut"


@pytest.mark.parametrize("reading", [following("looking"), SILENT], ids=["another mode", "no answer"])
def test_a_host_that_does_not_observe_yet_is_waited_for(reading: Reading[Drain]) -> None:
    f = back()
    waits = verdict_back(replace(f, following={**f.following, "dest2": reading}))
    assert isinstance(waits, Waiting)
    assert waits.what == "every dest host observes source again"


def test_a_silent_host_leaves_the_others_back() -> None:
    f = CutFacts(dest_states(FENCED, silent="dest1"), {}, None, {h: following() for h in ("dest2", "dest3")})
    blocked = verdict_back(f)
    assert isinstance(blocked, Blocked)
    assert blocked.others_back


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"phase": "cut", "phase_since": 999.5}, ["uncut"]),
        ({"phase": "cut", "phase_since": 990.0}, ["uncut", "restart"]),
        ({"phase": "cut", "phase_since": 990.0, "unit_since": 995.0}, ["uncut"]),
        ({"phase": "cut", "phase_since": 999.5, "unit_state": "inactive"}, ["uncut", "restart"]),
        ({"phase": "fenced", "phase_since": 999.5, "unit_state": "inactive"}, ["restart"]),
    ],
    ids=["a short cut", "a long cut", "started since", "it is down", "uncut already"],
)
def test_an_observer_is_restarted_where_its_election_would_cost_more(
    changes: dict[str, Any], words: list[str]
) -> None:
    f = CutFacts(dest_states(ARMED, **changes), {}, None, {})
    found = CutStep().undo(context(way=Way.BACK), f, "dest2", ())
    assert [
        c.verb if isinstance(c, HostVerb) else c.action for c in found if isinstance(c, HostVerb | SetService)
    ] == words


def test_the_host_program_restarts_an_observer_after_as_long_a_cut() -> None:
    program = Path(zkmigrate.hosts.__file__).parent / "zkm_host" / "zkm-host"
    assert program.read_text().count(f"$((NOW - CUT_SINCE)) -gt {RESTART_AFTER_S * 1000:.0f} ]") == 1


def test_no_lease_is_as_short_as_a_silence_that_ends_none() -> None:
    [least] = [bound.ge for bound in Lease.model_fields["cut_ttl_ms"].metadata if hasattr(bound, "ge")]
    assert least >= _LEASE_S * 1000
