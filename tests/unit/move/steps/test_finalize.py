"""FINALIZE: what is removed and where, who is waited for, who may be left, and when there is no way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.move.steps.facts import (
    ARMED,
    DEST,
    OPEN,
    SEALED,
    SILENT,
    STARTED,
    context,
    proved,
    statuses,
    stopped_by,
    well,
)
from tests.world.model.host import File
from tests.world.model.look import WorldLook
from tests.world.operator import quiet_world
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.dest_status import Statuses
from zkmigrate.move.steps.finalize import FinalizeFacts, FinalizeStep
from zkmigrate.move.steps.verify import LATE_HOST_S
from zkmigrate.runbook.model.change import Go, HostVerb, UninstallProgram
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.step import Blocked, Done, Ready, Verdict, Waiting, Way
from zkmigrate.zookeeper.facts.config import ZooConfig, parse

HOSTS = (*DEST, "broker1", "broker2", "broker3")
THERE: Reading[bytes] = Seen(zkm_host.program())
GONE: Reading[bytes] = Absent("zkm-host")
PARTICIPANT = "server.11=10.0.0.11:2888:3888\nserver.12=10.0.0.12:2888:3888\n"
REFORMED: Reading[ZooConfig] = Seen(parse(PARTICIPANT))
OBSERVES: Reading[ZooConfig] = Seen(
    parse("peerType=observer\nserver.1=10.0.0.1:2888:3888\nserver.11=10.0.0.11:2888:3888:observer\n")
)
LEFT_OUT = {"verify": {"missing": ["dest2"]}}


def facts(
    programs: Mapping[str, Reading[bytes]] | None = None,
    hosts: Statuses[HostStatus] | None = None,
    config: Reading[ZooConfig] = REFORMED,
) -> FinalizeFacts:
    """The program is gone from every host but these."""
    of_all = {**dict.fromkeys(HOSTS, GONE), **(programs or {})}
    return FinalizeFacts(of_all, dict.fromkeys(DEST, config), hosts or statuses(OPEN))


def verdict(f: FinalizeFacts, **records: Any) -> Verdict:
    return FinalizeStep(KAFKA).check(context(**records), f)


def back(config: Reading[ZooConfig], good: HostStatus = ARMED, silent: str = "", **changes: Any) -> Verdict:
    f = facts(hosts=statuses(good, silent, **changes), config=config)
    return FinalizeStep(KAFKA).check(context(way=Way.BACK), f)


def test_what_is_left_anywhere_is_to_be_removed() -> None:
    assert well(verdict(facts()))
    left = facts({"dest1": THERE, "broker3": Seen(b"another version")})
    assert verdict(left) == Ready(("dest1", "broker3"))


def test_every_host_is_asked() -> None:
    world, c = quiet_world(), context()
    f = FinalizeStep(KAFKA).observe(c, WorldLook(world))
    assert (tuple(f.programs), tuple(f.configs), tuple(f.hosts.at)) == (HOSTS, DEST, DEST)


def test_where_only_another_run_has_state_the_program_stays_and_is_told() -> None:
    world, c = quiet_world(), context()
    for host in ("dest1", "broker2"):
        world.hosts[host].installed = zkm_host.program()
    world.hosts["broker2"].files["/var/lib/zkmigrate/r2/ops/a.1"] = File(b"put\n", "0600", "root:root")
    found = FinalizeStep(KAFKA).observe(c, WorldLook(world)).programs
    assert FinalizeStep(KAFKA).check(c, facts(found)) == Ready(("dest1",))
    done = FinalizeStep(KAFKA).check(c, facts({**found, "dest1": GONE}))
    assert isinstance(done, Done)
    assert {f.target: f.seen for f in done.findings if f.seen} == {
        "broker2": "zkm-host stays installed for r2"
    }


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_does_not_tell_blocks_unless_verify_left_it_out(host: str) -> None:
    silent = facts({host: SILENT})
    assert stopped_by(verdict(silent)) == [("finalize.answer", host)]
    found = verdict(silent, verify={"missing": [host]})
    assert well(found)
    assert isinstance(found, Done)
    assert {(f.id, f.target, f.held.value) for f in found.findings} == {
        ("finalize.left", host, "unknown"),
        *(("finalize.gone", other, "yes") for other in HOSTS if other != host),
    }


def test_beside_a_host_that_verify_left_out_another_silent_one_blocks() -> None:
    silent = facts({"dest2": SILENT, "dest3": SILENT})
    assert stopped_by(verdict(silent, **LEFT_OUT)) == [("finalize.answer", "dest3")]


def test_the_others_are_cleaned_while_a_host_that_verify_left_out_is_silent() -> None:
    assert verdict(facts({**dict.fromkeys(HOSTS, THERE), "dest2": SILENT}), **LEFT_OUT) == Ready(
        ("dest1", "dest3", "broker1", "broker2", "broker3")
    )


@pytest.mark.parametrize("phase", ["go", "started", "checked"])
def test_a_host_that_joins_is_waited_for_before_anything_is_removed(phase: str) -> None:
    """It needs the program until its own door is open: its start, then its own limit."""
    found = verdict(facts(dict.fromkeys(HOSTS, THERE), statuses(OPEN, phase=phase)), **LEFT_OUT)
    assert isinstance(found, Waiting)
    assert found.progress == "not yet: dest2"
    assert found.deadline_s == context().inventory.policy.open_limit_s + LATE_HOST_S


def test_a_sealed_host_gets_its_go_and_keeps_the_program() -> None:
    f = facts(dict.fromkeys(HOSTS, THERE), statuses(OPEN, phase="sealed"))
    c = context(prove=proved(first=("dest2",)))
    assert verdict(f, **LEFT_OUT) == Ready(HOSTS)
    (go,) = FinalizeStep(KAFKA).plan(c, f, "dest2")
    assert isinstance(go, Go)
    assert (go.host, go.place) == ("dest2", "first")


def test_on_a_dest_host_rules_and_guard_go_before_the_program_that_removes_them() -> None:
    f = facts(dict.fromkeys(HOSTS, THERE))
    step = FinalizeStep(KAFKA)
    every_host_in = step.forecast(context(), WorldLook(quiet_world())).facts
    plans = {host: step.plan(context(), every_host_in, host) for host in HOSTS}
    for host in HOSTS:
        first = (HostVerb(host, "finalize"),) if host in DEST else ()
        assert FinalizeStep(KAFKA).plan(context(), f, host) == plans[host] == (*first, UninstallProgram(host))


CONFIGS: dict[str, tuple[Reading[ZooConfig], bool]] = {
    "is not read": (SILENT, True),
    "observer of source": (OBSERVES, True),
    "not put back yet": (Seen(parse(f"{PARTICIPANT}server.13=10.0.0.13:2888:3888:observer\n")), True),
    "an observer itself": (Seen(parse(f"{PARTICIPANT}peerType=observer\n")), True),
    "names no server": (Seen(parse("tickTime=2000\n")), True),
    "reformed": (REFORMED, False),
    "reformed, in words": (Seen(parse(f"{PARTICIPANT}peerType=participant\n")), False),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_with_nothing_armed_the_config_tells_whether_there_is_a_way_back(name: str) -> None:
    """The program and its record of the phase are removed first."""
    config, can = CONFIGS[name]
    for found in (back(config, phase="idle"), back(config, silent="dest2")):
        assert isinstance(found, Done) is can
        assert can or (isinstance(found, Blocked) and found.no_way_back)
    assert well(back(config)), "armed: its config is what the run made of it"


@pytest.mark.parametrize("good", [SEALED, STARTED, OPEN], ids=["sealed", "started", "open"])
def test_behind_an_open_door_there_is_no_way_back(good: HostStatus) -> None:
    found = back(REFORMED, good)
    assert isinstance(found, Blocked) is (good is OPEN)
    assert stopped_by(found) == ([("open.no-way-back", "")] if good is OPEN else [])
    assert not isinstance(found, Blocked) or found.no_way_back
