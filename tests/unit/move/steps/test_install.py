"""INSTALL: the program is on every host; going back, on none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.move.steps.facts import DEST, SILENT, context, stopped_by, well
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.facts.runs import StaysForOthers
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.steps.install import InstallFacts, InstallStep, move_policy
from zkmigrate.runbook.model import policy
from zkmigrate.runbook.model.change import InstallProgram
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.step import Done, Ready, Verdict, Way

HOSTS = (*DEST, "broker1", "broker2", "broker3")
THERE: Reading[bytes] = Seen(zkm_host.program())
GONE: Reading[bytes] = Absent("zkm-host")


def installed(way: Way = Way.FORWARD, all_hosts: Reading[bytes] = THERE, **one: Reading[bytes]) -> Verdict:
    return InstallStep(KAFKA).check(context(way=way), facts({**dict.fromkeys(HOSTS, all_hosts), **one}))


def policy_of(host: str) -> Seen[tuple[bytes, ...]]:
    """The policy that belongs on a host, beside another run's."""
    return Seen((b"lock\n", policy.text(move_policy(KAFKA, context().inventory, host)).encode()))


def facts(programs: dict[str, Reading[bytes]], **policies: Reading[tuple[bytes, ...]]) -> InstallFacts:
    """These programs, and the right policy on every host but for these."""
    return InstallFacts(programs, {host: policy_of(host) for host in programs} | policies)


def test_the_same_program_on_every_host_is_installed() -> None:
    assert well(installed())


@pytest.mark.parametrize(
    "other", [GONE, Seen(b""), Seen(zkm_host.program() + b"\n")], ids=["none", "empty", "longer"]
)
def test_a_host_with_another_program_or_none_gets_it(other: Reading[bytes]) -> None:
    assert installed(broker2=other) == Ready(("broker2",))


@pytest.mark.parametrize("other", [(), (b"",), (b"lock\n",)], ids=["none", "empty", "another"])
def test_a_host_with_another_policy_or_none_gets_that_of_the_inventory(other: tuple[bytes, ...]) -> None:
    there = facts(dict.fromkeys(HOSTS, THERE), dest2=Seen(other))
    assert InstallStep(KAFKA).check(context(), there) == Ready(("dest2",))
    [change] = InstallStep(KAFKA).plan(context(), there, "dest2")
    assert isinstance(change, InstallProgram)
    assert change.path == zkm_host.policy_path(context().run)
    assert change.policy.encode() == policy_of("dest2").value[1]
    silent = facts(dict.fromkeys(HOSTS, THERE), dest2=SILENT)
    assert stopped_by(InstallStep(KAFKA).check(context(), silent)) == [("install.answer", "dest2")]


def test_the_policy_fixes_the_ports_of_the_cut_that_source_tells() -> None:
    step, programs = InstallStep(KAFKA), dict.fromkeys(HOSTS, THERE)
    lines = move_policy(KAFKA, context().inventory, "dest1", (7777,))
    [ports] = [line for line in lines if line.startswith("arm cut_ports=")]
    assert "7777" in ports.partition("=")[2].split(",")
    told = replace(facts(programs), ports=Seen((7777,)))
    assert step.check(context(), told) == Ready(DEST)
    [change] = step.plan(context(), told, "dest1")
    assert isinstance(change, InstallProgram)
    assert ports in change.policy.splitlines()
    # a server of source that does not answer later takes no policy away
    allowed = {host: policy.text(move_policy(KAFKA, context().inventory, host, (7777,))) for host in DEST}
    more = {host: Seen((text.encode(),)) for host, text in allowed.items()}
    for later in (Seen(()), SILENT):
        assert well(step.check(context(), replace(facts(programs, **more), ports=later)))
    assert stopped_by(step.check(context(), replace(facts({**programs, "dest1": GONE}), ports=SILENT))) == [
        ("install.ports", "source")
    ]


def test_a_host_that_is_only_read_may_change_nothing() -> None:
    inventory = context().inventory
    assert move_policy(KAFKA, inventory, inventory.source_names[0]) == ()
    assert "window" not in move_policy(KAFKA, inventory, "broker1")


def test_a_host_that_does_not_tell_blocks_both_ways() -> None:
    assert stopped_by(installed(dest2=SILENT)) == [("install.answer", "dest2")]
    assert stopped_by(installed(Way.BACK, GONE, dest2=SILENT)) == [("install.answer", "dest2")]


def test_going_back_the_program_goes_from_wherever_it_is_whatever_it_holds() -> None:
    assert well(installed(Way.BACK, GONE))
    assert installed(Way.BACK, GONE, dest3=Seen(b"another version")) == Ready(("dest3",))


def test_going_back_it_is_told_for_which_run_the_program_stays() -> None:
    stays = StaysForOthers("zkm-host stays for run-2")
    back = installed(Way.BACK, GONE, broker1=stays)
    assert isinstance(back, Done)
    assert [(f.id, f.target, f.seen) for f in back.findings] == [("install.gone", "broker1", stays.what)]
    assert installed(Way.BACK, THERE, broker1=stays) == Ready(tuple(h for h in HOSTS if h != "broker1"))


def test_a_run_that_keeps_what_it_finds_removes_only_what_it_brought() -> None:
    found = {**dict.fromkeys(HOSTS, THERE), "broker2": GONE, "broker3": Seen(b"older")}
    step = InstallStep(KAFKA, keep=True)
    fresh = step.check(context(), facts(found))
    assert fresh == Ready(("broker2", "broker3"), record={"without": ["broker2"]})
    everywhere = facts(dict.fromkeys(HOSTS, THERE))
    back = context(way=Way.BACK, install={"without": ["broker2"]})
    assert step.check(back, everywhere) == Ready(("broker2",))
    assert well(step.check(context(way=Way.BACK), everywhere))
    again = replace(context(install={"without": ["broker2"]}), begun=True)
    half = facts({**dict.fromkeys(HOSTS, THERE), "broker3": Seen(b"older")})
    assert step.check(again, half) == Ready(("broker3",), record={"without": ["broker2"]})
