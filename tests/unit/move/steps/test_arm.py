"""ARM: rules with empty sets, an image, and the spec of this inventory; nothing blocked yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.move.steps.facts import ARMED, DEST, SILENT, context, statuses, stopped_by, well
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.move.facts.dest_status import DestStates, Statuses
from zkmigrate.move.steps.arm import ArmFacts, ArmStep, arm_spec
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.step import Blocked, Context, Ready, Verdict, Way
from zkmigrate.zookeeper.facts.config import ZooConfig
from zkmigrate.zookeeper.facts.members import Members

MEMBERS = Members(("server.1=10.0.0.1:2888:3888",), version=7)
CONFIG: Reading[ZooConfig] = Seen(ZooConfig({"version": "7"}, {}))
SPEC: Reading[bytes] = Seen(arm_spec(context().inventory, False, MEMBERS).encode())


def facts(silent: str = "", good: HostStatus = ARMED, **fact: Any) -> ArmFacts:
    """All hosts are armed, but for these changes of the second one."""
    at = statuses(good, silent, **fact)
    return ArmFacts(DestStates(at, at), Seen(MEMBERS), dict.fromkeys(DEST, SPEC), dict.fromkeys(DEST, CONFIG))


def verdict(f: ArmFacts, c: Context | None = None) -> Verdict:
    return ArmStep().check(c or context(), f)


def test_armed_hosts_are_done() -> None:
    assert well(verdict(facts()))


@pytest.mark.parametrize(
    "fact",
    [
        {"in4": "present"},
        {"out6": "absent"},
        {"fence_entries": 1},
        {"cut_entries": 1},
        {"image": "none"},
        {"unit_state": "inactive"},
    ],
    ids=str,
)
def test_one_false_fact_is_not_armed(fact: dict[str, Any]) -> None:
    assert stopped_by(verdict(facts(**fact))) == [("arm.ready", "dest2")]


def spec(old: str, new: str) -> Reading[bytes]:
    assert isinstance(SPEC, Seen)
    changed = SPEC.value.replace(old.encode(), new.encode())
    assert changed != SPEC.value
    return Seen(changed)


@pytest.mark.parametrize(
    "other",
    [
        Absent("spec"),
        spec("rehearsal=no", "rehearsal=yes"),
        spec("client_ports=2181", "client_ports=2182"),
        spec("unit=", "start=/opt/start\nunit="),
    ],
    ids=["no spec", "a rehearsal's", "another port", "a command that the inventory does not name"],
)
def test_a_host_armed_for_something_else_is_armed_again(other: Reading[bytes]) -> None:
    f = facts()
    assert verdict(replace(f, specs={**f.specs, "dest2": other})) == Ready(("dest2",))


def test_what_the_program_adds_to_a_spec_does_not_count() -> None:
    f = facts()
    assert well(verdict(replace(f, specs={**f.specs, "dest2": spec("unit=", "own=1\nunit=")})))


def test_idle_hosts_are_to_be_armed_and_no_others() -> None:
    assert verdict(facts(phase="idle")) == Ready(("dest2",))
    assert stopped_by(verdict(facts(phase="fenced"))) == [("arm.phase", "dest2")]
    assert stopped_by(verdict(facts(silent="dest1"))) == [("host.dest1", "dest1")]


WRONG: dict[str, tuple[Mapping[str, Any], tuple[str, str]]] = {
    "source's members are not read": ({"members": SILENT}, ("arm.source-config", "source")),
    "a spec is not read": ({"specs": {"dest2": SILENT}}, ("arm.spec", "dest2")),
    "a config is not read": ({"configs": {"dest2": SILENT}}, ("arm.config", "dest2")),
    "source was reconfigured": (
        {"configs": {"dest2": Seen(ZooConfig({"version": "6"}, {}))}},
        ("arm.members", "dest2"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_known_or_has_changed_blocks(name: str) -> None:
    changes, blocks = WRONG[name]
    f = facts()
    whole: dict[str, Any] = {
        key: {**getattr(f, key), **new} if isinstance(new, dict) else new for key, new in changes.items()
    }
    assert stopped_by(verdict(replace(f, **whole))) == [blocks]


def test_a_host_without_an_address_that_a_rule_can_hold_blocks() -> None:
    c = context()
    hosts = tuple(
        h.model_copy(update={"address": "d2.example"}) if h.name == "dest2" else h
        for h in c.inventory.dest.hosts
    )
    dest = c.inventory.dest.model_copy(update={"hosts": hosts})
    named = replace(c, inventory=c.inventory.model_copy(update={"dest": dest}))
    assert stopped_by(verdict(facts(), named)) == [("arm.address", "dest2")]


def back(hosts: Statuses[HostStatus], unrestored: frozenset[str] = frozenset()) -> Verdict:
    c = replace(context(way=Way.BACK), unrestored=unrestored)
    return ArmStep().check(c, ArmFacts(DestStates(hosts, hosts), Absent("not asked"), {}))


def test_the_way_back_disarms_whoever_is_armed_or_still_holds_a_file_of_ours() -> None:
    idle = replace(ARMED, phase="idle")
    assert back(statuses(ARMED)) == Ready(DEST)
    assert back(statuses(idle, phase="armed")) == Ready(("dest2",))
    assert back(statuses(idle), frozenset({"dest3"})) == Ready(("dest3",))
    assert well(back(statuses(idle)))
    assert isinstance(back(statuses(idle, silent="dest1")), Blocked)
