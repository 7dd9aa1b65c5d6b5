"""The checks of what lies between the hosts, and of what else acts on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.move.preflight import test_checks, test_jaas, test_kafka, test_security, test_settings
from tests.unit.move.preflight.test_checks import Break, both, file, no_file, no_port, no_program, port, word
from tests.unit.preflight_world import (
    CHECKS,
    FACTS,
    SURROUNDINGS,
    TIMEOUT,
    PreflightWorld,
    context,
    healthy,
    inventory,
    recorded,
    run_preflight,
)
from zkmigrate.hosts.facts.surroundings import Process, Surroundings, parse_surroundings
from zkmigrate.inventory.inventory import Ports, Service
from zkmigrate.runbook.model.fact import Absent, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.runbook.model.step import Context

DENIED = Unknown("denied", "sudo: a password is required")


def around(host: str, old: str, new: str) -> Break:
    assert old in SURROUNDINGS
    return lambda w: w.programs.update({(host, "surroundings"): Seen(SURROUNDINGS.replace(old, new))})


def offers(host: str, line: str) -> Break:
    """The host's facts say this too."""
    return lambda w: w.programs.update({(host, "facts"): Seen(f"{FACTS}{line}\n")})


def date(host: str, said: str) -> Break:
    return lambda w: w.dates.update({host: Seen(said)})


def no_date(host: str) -> Break:
    return lambda w: w.dates.update({host: TIMEOUT})


def drops(host: str) -> Break:
    """Packets to the host's client port vanish; ssh to it works."""
    return lambda w: w.words.update({(host, "srvr"): TIMEOUT})


def silent(host: str) -> Break:
    """The host does not answer at all."""
    return both(drops(host), no_program(host, "status"))


HOSTS = [f"{role}{n}" for role in ("source", "dest", "broker") for n in (1, 2, 3)]
PLAIN = "main=311 net:[4026532281] java\n"

# check, gate, target, what breaks it, what of it must be told; what makes it unknown. As in test_checks.
# fmt: off
CASES: list[tuple[str, str, str, Break, str, Break]] = [
    (
        "dest.ports", "preflight", "dest2", port("dest2", "10.71.0.23", 3888, "timeout"),
        "dest3's election port 3888 timeout", no_port("dest2"),
    ),
    (
        "dest.ports", "preflight", "dest1", port("dest1", "10.71.0.22", 2888, "unreachable"),
        "dest2's quorum port 2888 unreachable", no_port("dest1"),
    ),
    (
        "dest.client-port", "preflight", "broker3", port("broker3", "10.71.0.21", 2181, "timeout"),
        "dest1 2181 timeout", no_port("broker3"),
    ),
    (
        "dest.client-port", "roll", "broker1", port("broker1", "10.71.0.22", 2181, "refused"),
        "dest2 2181 refused", no_port("broker1"),
    ),
    ("dest.from-operator", "preflight", "dest3", drops("dest3"), "timeout", silent("dest3")),
    (
        "host.namespace", "preflight", "dest2",
        file("dest2", "/opt/zookeeper/service", b"#!/bin/sh\nexec docker run -p 2181:2181 zookeeper\n"),
        "started by docker", no_file("dest2", "/opt/zookeeper/service"),
    ),
    (
        "host.namespace", "roll", "dest1", around("dest1", "listener=311 net:[4026532281] java\n", ""),
        "no process listens on the client port in net:[4026532281]",
        no_program("dest1", "surroundings", DENIED),
    ),
    (
        "host.namespace", "cutover", "dest3",
        around("dest3", "listener=311 net:[4026532281] java", "listener=77 net:[4026532281] docker-proxy"),
        "docker-proxy (77) in net:[4026532281]", around("dest3", "netns=net:[4026532281]\n", ""),
    ),
    (
        "host.namespace", "cutover", "dest1", around("dest1", PLAIN, PLAIN.replace("281]", "999]")),
        "java (311) in net:[4026532999], the rules in net:[4026532281]",
        around("dest1", PLAIN, PLAIN.replace("net:[4026532281]", "-")),
    ),
    (
        "host.keepers", "preflight", "broker2",
        around("broker2", PLAIN, f"{PLAIN}keeper=process 812 puppet\nkeeper=unit puppet.service\n"),
        "process 812 puppet; unit puppet.service", no_program("broker2", "surroundings"),
    ),
    (
        "host.keepers", "roll", "dest1", around("dest1", PLAIN, f"{PLAIN}keeper=cron /etc/cron.d/zk\n"),
        "cron /etc/cron.d/zk", no_program("dest1", "surroundings"),
    ),
    (
        "host.keepers", "preflight", "dest1", offers("dest1", "unit.NeedDaemonReload=yes"),
        "the unit's file has changed since systemd read it", no_program("dest1", "facts"),
    ),
    (
        "host.keepers", "cutover", "dest1", offers("dest1", "unit.TriggeredBy=zookeeper.socket"),
        "the unit is started by zookeeper.socket", around("dest1", PLAIN, "main=java\n"),
    ),
    (
        "run.clocks", "preflight", "", date("source3", "1001.75\n"), "source3 is 1.5 s ahead",
        both(*(no_date(host) for host in HOSTS)),
    ),
    (
        "run.clocks", "cutover", "",
        both(date("dest1", "999.5\n"), date("broker2", "1000.75\n")), "broker2 is 1.2 s ahead of dest1",
        both(*(date(host, "Sat Nov 21\n") for host in HOSTS[1:])),
    ),
]
# fmt: on


@pytest.mark.parametrize(("id", "gate", "target", "broken", "told", "hidden"), CASES)
def test_check(id: str, gate: str, target: str, broken: Break, told: str, hidden: Break) -> None:
    test_checks.test_check(id, gate, target, broken, told, hidden)


class Slow(PreflightWorld):
    """A login shell of one host takes its seconds."""

    clock = 0.0

    def now(self) -> float:
        return self.clock

    def date(self, host: str) -> Seen[str] | Absent | Unknown:
        self.clock += 2.5 if host == "source2" else 0.1
        return super().date(host)


def of(found: tuple[Finding, ...], id: str) -> dict[str, Finding]:
    return {f.target: f for f in found if f.id == id}


def test_a_login_shell_that_takes_seconds_is_named() -> None:
    world = Slow(**vars(healthy()))
    no_date("dest2")(world)
    found = of(run_preflight(context(), world, "preflight"), "host.login")
    assert len(found) == 9
    slow, silent = found.pop("source2"), found.pop("dest2")
    assert (slow.held, slow.seen, slow.severity) == (Held.NO, "it took 2.5 s", Severity.WARN)
    assert silent.held is Held.UNKNOWN
    assert {f.held for f in found.values()} == {Held.YES}


def with_systemd() -> Context:
    asked = inventory()
    systemd = {"service": Service(unit="any.service")}
    changed = {"dest": asked.dest.model_copy(update=systemd), "kafka": asked.kafka.model_copy(update=systemd)}
    return Context("r1", asked.model_copy(update=changed))


# host, what its facts say instead, what of it must be told
UNITS = [
    ("dest1", "LoadState=not-found", "not-found"),
    ("broker1", "LoadState=masked", "masked"),
    ("dest2", "ActiveState=active", "active"),
    ("broker3", "ActiveState=failed", "failed"),
]


@pytest.mark.parametrize(("host", "said", "told"), UNITS)
def test_a_unit_that_is_not_as_it_should_be_is_refused(host: str, said: str, told: str) -> None:
    world = healthy()
    held = {f.held for f in of(run_preflight(with_systemd(), world, "preflight"), "host.unit").values()}
    assert held == {Held.YES}
    lines = FACTS if host.startswith("dest") else FACTS.replace("ActiveState=inactive", "ActiveState=active")
    key = said.partition("=")[0]
    changed = [f"unit.{said}" if line.startswith(f"unit.{key}=") else line for line in lines.splitlines()]
    world.programs[host, "facts"] = Seen("\n".join(changed))
    found = of(run_preflight(with_systemd(), world, "preflight"), "host.unit")[host]
    assert (found.held, found.blocks) == (Held.NO, True)
    assert told in found.seen
    no_program(host, "facts")(world)
    assert of(run_preflight(with_systemd(), world, "preflight"), "host.unit")[host].held is Held.UNKNOWN


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("unit.PrivateNetwork=yes", "PrivateNetwork=yes"),
        ("unit.NetworkNamespacePath=/run/netns/zk", "NetworkNamespacePath=/run/netns/zk"),
        ("unit.ExecStart={ path=/usr/bin/podman ; argv[]=/usr/bin/podman start zk ; }", "started by podman"),
        (
            "unit.ExecStart={ path=/sbin/ip ; argv[]=/sbin/ip netns exec zk java ; }",
            "started by ip netns exec",
        ),
    ],
)
def test_a_unit_with_a_network_of_its_own_is_seen_before_it_runs(line: str, told: str) -> None:
    world = healthy()
    offers("dest2", line)(world)
    found = of(run_preflight(with_systemd(), world, "preflight"), "host.namespace")
    assert {host: f.held for host, f in found.items()} == {
        "dest1": Held.YES, "dest2": Held.NO, "dest3": Held.YES,
    }  # fmt: skip
    assert told in found["dest2"].seen
    assert found["dest2"].blocks


def test_a_container_in_the_hosts_own_network_is_none() -> None:
    world = healthy()
    offers("dest2", "unit.ExecStart={ argv[]=/usr/bin/docker run --network host zookeeper ; }")(world)
    found = of(run_preflight(with_systemd(), world, "preflight"), "host.namespace")
    assert found["dest2"].held is Held.YES
    world.programs["dest2", "facts"] = Seen(
        FACTS.replace("unit.LoadState=loaded", "unit.LoadState=not-found")
    )
    found = of(run_preflight(with_systemd(), world, "preflight"), "host.namespace")
    assert found["dest2"].held is Held.UNKNOWN, "what is not there tells nothing"


def test_where_mntr_tells_nothing_of_fsync_the_journal_does() -> None:
    """3.5: a count in the journal, and unknown where the server does not write there."""
    world = healthy()
    for lines, held in (("0 214", Held.YES), ("3 214", Held.NO), ("0 0", Held.UNKNOWN)):
        around("dest1", "slow_fsyncs=0 214", f"slow_fsyncs={lines}")(world)
        found = of(run_preflight(context(), world, "cutover"), "dest.latency")
        assert (found["dest1"].held, found["dest2"].held) == (held, Held.YES)
    no_program("dest1", "surroundings")(world)
    assert of(run_preflight(context(), world, "cutover"), "dest.latency")["dest1"].held is Held.UNKNOWN
    told = test_settings.of_version("3.8.4", "observer.mntr")
    word("dest1", "mntr", told)(world)
    assert of(run_preflight(context(), world, "cutover"), "dest.latency")["dest1"].held is Held.YES


ASKERS = ["", *HOSTS]


def with_names(world: PreflightWorld) -> Context:
    """An inventory in which dest1 goes by a name that everybody resolves."""
    asked = inventory()
    first = asked.dest.hosts[0].model_copy(update={"address": "dest1.example", "also": ("10.71.0.21",)})
    hosts = (first, *asked.dest.hosts[1:])
    for host in ASKERS:
        world.resolved[host, "dest1.example"] = Seen(("10.71.0.21",))
    return Context("r1", asked.model_copy(update={"dest": asked.dest.model_copy(update={"hosts": hosts})}))


def names(world: PreflightWorld, c: Context) -> Finding:
    return of(run_preflight(c, world, "roll"), "host.names")[""]


def test_without_names_nobody_is_asked_for_one() -> None:
    world = healthy()
    found = names(world, context())
    assert (found.held, found.seen) == (Held.YES, "0 names, the same everywhere")
    assert not [look for look in world.asked if look[0] == "addresses"]


@pytest.mark.parametrize("asker", ASKERS)
def test_a_name_that_means_another_address_somewhere_is_refused(asker: str) -> None:
    world = healthy()
    c = with_names(world)
    assert names(world, c).held is Held.YES
    where = asker or "this machine"
    world.resolved[asker, "dest1.example"] = Seen(("127.0.1.1",))
    assert (names(world, c).held, names(world, c).seen) == (Held.NO, f"dest1.example is 127.0.1.1 on {where}")
    world.resolved[asker, "dest1.example"] = Absent("dest1.example")
    assert names(world, c).seen == f"dest1.example is unknown on {where}"
    world.resolved[asker, "dest1.example"] = TIMEOUT
    assert names(world, c).held is Held.UNKNOWN
    assert names(world, c).blocks


def test_a_door_that_is_not_told_of_is_unknown() -> None:
    world = healthy()
    del world.reached["broker1"]
    world.programs["broker1", "reach"] = Seen("probe 10.71.0.21 2181 open\n")
    found = of(run_preflight(context(), world, "preflight"), "dest.client-port")["broker1"]
    assert (found.held, found.seen) == (Held.UNKNOWN, "dest2 2181 not reported; dest3 2181 not reported")
    del world.reached["dest1"]
    world.programs["dest1", "reach"] = Seen("probe 10.71.0.12 2888 open\nprobe 10.71.0.12 3888 open\n")
    ports = of(run_preflight(context(), world, "preflight"), "source.ports")
    assert (ports["source1"].held, ports["source2"].held) == (Held.UNKNOWN, Held.YES)


def test_an_unserving_dest_is_reached() -> None:
    world = healthy()
    word("dest1", "srvr", recorded("unserving.srvr"))(world)
    found = of(run_preflight(context(), world, "preflight"), "dest.from-operator")
    assert (found["dest1"].held, found["dest1"].seen) == (Held.YES, "it answers")


def test_surroundings_parse() -> None:
    text = SURROUNDINGS + "keeper=cron /etc/cron.d/x\nlistener=9 - systemd-socket- x\n"
    java = Process(311, "net:[4026532281]", "java")
    assert parse_surroundings(text) == Surroundings(
        "net:[4026532281]",
        (java, Process(9, "-", "systemd-socket- x")),
        java,
        ("cron /etc/cron.d/x",),
        (0, 214),
        (998,),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "netns",
        "netns=x\nlistener=java\n",
        "netns=x\nmain=1 ns java\n",
        "netns=x\nslow_fsyncs=3\n",
        "netns=x\nuser=root\n",
    ],
)
def test_surroundings_that_are_none_are_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_surroundings(text)


ELSEWHERE = {
    "operator.address", "host.login", "host.unit", "host.names", "run.hour", "run.forward",
    "dest.admin-server", "operator.zookeeper-client", "kafka.client",
    "kafka.canary-topic", "kafka.foreign-znodes", "kafka.retired", "kafka.stop-timeout", "dest.cut-ports",
}  # fmt: skip
"""Checks whose cases are tests of their own: above, in test_security, _run, _kafka and _canary, and in
the model world's test_retire."""


def test_every_check_has_its_cases() -> None:
    elsewhere = (
        *test_settings.CASES,
        *test_settings.SETTINGS,
        *test_kafka.CASES,
        *((id,) for id in test_jaas.IDS),
        *test_security.CASES,
    )
    assert {case[0] for case in (*test_checks.CASES, *elsewhere, *CASES)} | ELSEWHERE == {
        check.id for check in CHECKS
    }


def test_dest_with_tls_alone_needs_each_others_admin_server() -> None:
    """Without it no host would learn in the window that the others serve."""
    world = healthy()
    ports = Ports(secure=2281)
    dest = context().inventory.dest.model_copy(update={"ports": ports})
    c = replace(context(), inventory=context().inventory.model_copy(update={"dest": dest}))
    world.reached["dest1"] = {**world.reached["dest1"], "10.71.0.22:8080": "timeout"}
    told = {f.target: f for f in run_preflight(c, world, "preflight") if f.id == "dest.ports"}
    assert (told["dest1"].held, told["dest2"].held) == (Held.NO, Held.YES)
    assert "AdminServer port 8080" in told["dest1"].seen
