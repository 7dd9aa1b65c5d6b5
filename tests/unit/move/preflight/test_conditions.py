"""Single conditions of the preflight: one false fact, and the check that must see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import pytest

from tests.unit.move.preflight.test_checks import (
    DATA,
    PROPERTIES,
    ZOO_CFG,
    Break,
    both,
    config,
    dynamic,
    entries,
    file,
    kafka,
    no_entries,
    no_file,
    word,
)
from tests.unit.preflight_world import (
    CHECKS,
    CMDLINE,
    RUNS,
    SURROUNDINGS,
    TIMEOUT,
    WHITELIST,
    PreflightWorld,
    context,
    facts_of,
    healthy,
    recorded,
    run_preflight,
    server_properties,
    view,
    words_of,
)
from tests.unit.secured_world import SETTINGS
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.preflight.check import ALWAYS, AT_FIRST, JOINED, Check, Gate, Judged, Scope, unseen
from zkmigrate.move.preflight.evidence import Evidence, gather
from zkmigrate.move.preflight.security import not_supported
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.runbook.model.step import Context, Retired


def found(world: PreflightWorld, id: str, gate: str, target: str, c: Context | None = None) -> Finding:
    """The one finding of a check about a target."""
    (one,) = (f for f in run_preflight(c or context(), world, gate) if (f.id, f.target) == (id, target))
    return one


def broker_file(more: str, hosts: str = "10.71.0.11:2181") -> Break:
    return file("broker1", PROPERTIES, f"{server_properties(1, hosts)}{more}".encode())


SERVER_3 = "server.3=10.71.0.13:2888:3888"

# check, gate, target, the one false fact, what of it must be told
# fmt: off
FALSE: list[tuple[str, str, str, Break, str]] = [
    ("source.quorum", "preflight", "", word("source1", "srvr", recorded("leader.srvr")), "source1 leader"),
    ("source.config", "preflight", "source2", config(SERVER_3, f"{SERVER_3}|10.71.9.13:2888:3888"),
     "a server line that cannot be parsed"),
    ("source.config", "preflight", "source2", config(SERVER_3, "server.3=10.71.0.13:2888:3889"),
     "server.3 uses ports 2888:3889"),
    ("source.config", "preflight", "source2", config(f"{SERVER_3}\n", ""), "no line for server.3 (source3)"),
    ("source.config", "preflight", "source2", config("clientPort=2181", "clientPort=2182"),
     "clientPort 2182"),
    ("source.config", "preflight", "source2", config("tickTime=2000", "tickTime=2000\ndataLogDir=/logs"),
     "dataLogDir=/logs, in the inventory /var/lib/zookeeper"),
    ("source.reconfig", "preflight", "source1",
     both(dynamic("source2"), word("source1", "conf", f"conf{WHITELIST}")), "version 0x0"),
    ("dest.empty", "preflight", "dest2", entries("dest2", f"{DATA}/version-2", "snapshot.500000000"),
     "snapshot.500000000"),
    ("dest.myid", "preflight", "dest1", file("source1", f"{DATA}/myid", b"11\n"),
     "source uses [1, 2, 3, 11]"),
    ("dest.session-bounds", "preflight", "", config("tickTime=2000", "tickTime=2000\nminSessionTimeout=1000"),
     "dest 4000 to 40000 ms, source2 1000 to 40000 ms"),
    ("dest.latency", "roll", "dest1",
     lambda w: w.programs.update({("dest1", "surroundings"): Seen(SURROUNDINGS.replace("=0 214", "=3 214"))}),
     "3 slow fsyncs in 214 lines"),
    ("kafka.controller", "preflight", "", kafka(replace(view(), controller=7)), "name 7, which is not"),
    ("kafka.addresses", "preflight", "broker1",
     kafka(replace(view(), brokers={**view().brokers, 1: ("10.71.0.31", 9093, "r1")})), "10.71.0.31:9093"),
    ("kafka.config", "preflight", "broker1", broker_file("", "10.71.0.11:2181,10.71.0.99:2181"),
     "zookeeper.connect names 10.71.0.99, not a source host"),
    ("host.commands", "preflight", "broker2",
     lambda w: w.programs.update({("broker2", "status"): Seen(RUNS.replace("pid=311", "pid=0"))}),
     "active, no process listens"),
    ("kafka.kraft", "preflight", "broker1", broker_file("process.roles=broker\n"), "process.roles=broker"),
    ("kafka.kraft", "roll", "broker1", broker_file("controller.quorum.voters=1@10.71.0.31:9094\n"),
     "controller.quorum.voters=1@10.71.0.31:9094"),
]
# fmt: on


@pytest.mark.parametrize(("id", "gate", "target", "false", "told"), FALSE)
def test_one_false_fact_is_seen(id: str, gate: str, target: str, false: Break, told: str) -> None:
    world = healthy()
    assert found(world, id, gate, target).held is Held.YES
    false(world)
    finding = found(world, id, gate, target)
    assert finding.held is Held.NO
    assert told in finding.seen
    assert finding.blocks is (finding.severity is Severity.BLOCK)


def nobody_owns(world: PreflightWorld) -> None:
    """No session owns anything under the chroot, so that there is no smallest timeout of them."""
    for key, told in world.words.items():
        if key[1] == "dump" and isinstance(told, Seen):
            world.words[key] = Seen(told.value.replace("/kafka/", "/solr/"))


@pytest.mark.parametrize(("id", "blocks"), [("kafka.session-timeout", True), ("run.forward", False)])
def test_a_timeout_that_nobody_tells_does_not_hold(id: str, blocks: bool) -> None:
    world = healthy()
    nobody_owns(world)
    finding = found(world, id, "cutover", "")
    assert (finding.held, finding.blocks) == (Held.UNKNOWN, blocks)


def test_what_is_wrong_in_dests_own_config_is_told_though_sources_is_not_read() -> None:
    world, c = healthy(), context()
    for n in (1, 2, 3):
        no_file(f"source{n}", ZOO_CFG)(world)
    dest = c.inventory.dest
    without = dest.model_copy(update={"settings": {**dest.settings, "initLimit": "0"}})
    c = replace(c, inventory=c.inventory.model_copy(update={"dest": without}))
    finding = found(world, "dest.config", "preflight", "", c)
    assert (finding.held, finding.seen) == (Held.NO, "no initLimit in dest.settings")


def with_an_observer() -> Context:
    """Source3 is an observer of source's own."""
    c = context()
    first, second, third = c.inventory.source.hosts
    hosts = (first, second, third.model_copy(update={"observer": True}))
    source = c.inventory.source.model_copy(update={"hosts": hosts})
    return replace(c, inventory=c.inventory.model_copy(update={"source": source}))


def test_an_observer_of_sources_own_observes_and_does_not_vote() -> None:
    world, c = healthy(), with_an_observer()
    assert found(world, "source.quorum", "preflight", "", c).held is Held.NO, "it follows"
    assert "server.3 is participant" in found(world, "source.config", "preflight", "source1", c).seen
    word("source3", "srvr", recorded("observer.srvr"))(world)
    finding = found(world, "source.quorum", "preflight", "", c)
    assert (finding.held, "2 in sync" in finding.seen) == (Held.NO, True), "two followers, and one has a vote"
    leader = recorded("leader.mntr").replace("zk_synced_followers\t2", "zk_synced_followers\t1")
    word("source2", "mntr", leader)(world)
    assert found(world, "source.quorum", "preflight", "", c).held is Held.YES
    for n in (1, 2, 3):
        config(SERVER_3, f"{SERVER_3}:observer", f"source{n}")(world)
        assert found(world, "source.config", "preflight", f"source{n}", c).held is Held.YES
    word("source3", "srvr", recorded("unserving.srvr"))(world)
    assert found(world, "source.quorum", "preflight", "", c).held is Held.NO
    assert found(healthy(), "source.quorum", "preflight", "").held is Held.YES


def test_a_server_of_source_that_votes_is_no_observer() -> None:
    world = healthy()
    config(SERVER_3, f"{SERVER_3}:observer")(world)
    finding = found(world, "source.config", "preflight", "source2")
    assert (finding.held, "server.3 is observer" in finding.seen) == (Held.NO, True)


@pytest.mark.parametrize(("server", "held"), [(2, Held.YES), (3, Held.NO)])
def test_only_a_servers_own_line_may_listen_anywhere(server: int, held: Held) -> None:
    world = healthy()
    config(f"server.{server}=10.71.0.1{server}:", f"server.{server}=0.0.0.0:")(world)
    assert found(world, "source.config", "preflight", "source2").held is held


def test_a_broker_that_may_run_with_another_file_is_unknown() -> None:
    world = healthy()
    other = "/opt/kafka/config"
    world.files["broker1", "/proc/311/cmdline"] = words_of(*CMDLINE[:-1], f"{other}/server.properties")
    no_entries("broker1", other)(world)
    finding = found(world, "kafka.started-with", "preflight", "broker1")
    assert (finding.held, finding.blocks) == (Held.UNKNOWN, True)


@pytest.mark.parametrize("small", ["/logs", DATA])
def test_each_of_two_directories_needs_room(small: str) -> None:
    world, c = healthy(), context()
    dest = c.inventory.dest.model_copy(update={"log_dir": "/logs"})
    c = replace(c, inventory=c.inventory.model_copy(update={"dest": dest}))
    for n in (1, 2, 3):
        world.programs[f"dest{n}", "facts"] = Seen(f"{facts_of(2, n)}disk_free_kib=1048576 /logs\n")
    assert found(world, "dest.disk", "preflight", "dest2", c).held is Held.YES
    facts = f"{facts_of(2, 2)}disk_free_kib=1048576 /logs\n"
    world.programs["dest2", "facts"] = Seen(facts.replace(f"1048576 {small}", f"1024 {small}"))
    finding = found(world, "dest.disk", "preflight", "dest2", c)
    assert (finding.held, f"{small} 1 MiB free" in finding.seen) == (Held.NO, True)


@pytest.mark.parametrize(
    ("on", "list_of_source3", "held"),
    [
        ("10.71.0.38", "", Held.YES),
        ("10.71.0.39", "", Held.NO),
        ("10.71.0.38", f"cons{WHITELIST}", Held.UNKNOWN),
    ],
    ids=["away", "back", "not known of source3"],
)
def test_a_retired_broker_stays_away_from_source(on: str, list_of_source3: str, held: Held) -> None:
    world = healthy()
    there = world.words["source1", "cons"]
    assert isinstance(there, Seen)
    client = f" /{on}:40009[1](queued=0,recved=2,sent=2,sid=0x100000000000a,lop=PING,est=1,to=20000,"
    more = client + "lcxid=0x1,lzxid=0x1,lresp=1,llat=1,minlat=0,avglat=1,maxlat=1)"
    world.words["source1", "cons"] = Seen(f"{there.value.rstrip()}\n{more}\n\n")
    if list_of_source3:
        world.words["source3", "cons"] = Seen(list_of_source3)
    gone = Retired("broker9", 9, ("10.71.0.39",), "ops", "its disk is broken")
    finding = found(world, "kafka.retired", "cutover", "broker9", replace(context(), retired=(gone,)))
    assert (finding.held, finding.blocks) == (held, held is not Held.YES)


@pytest.mark.parametrize("id", ["kafka.left-source", "kafka.retired", "kafka.sessions-on-dest"])
def test_what_was_not_looked_at_is_unknown(id: str) -> None:
    gone = Retired("broker9", 9, ("10.71.0.39",), "ops", "its disk is broken")
    c = replace(context(), retired=(gone,))
    blind = replace(gather(c, KAFKA, healthy(), "cutover"), clients=None, homes=None)
    (check,) = (check for check in CHECKS if check.id == id)
    assert {judged.held for judged in check.decide(c, blind)} == {None}


def myids(config: str, myid: int) -> dict[str, Finding]:
    """``dest.myid`` by host where source's third server has this line, and dest2 this id."""
    world, c = healthy(), context()
    for n in (1, 2, 3):
        there = world.files[f"source{n}", ZOO_CFG]
        assert isinstance(there, Seen)
        text = there.value.replace(b"server.3=", config.encode())
        assert (text != there.value) is (config != "server.3=")
        world.files[f"source{n}", ZOO_CFG] = Seen(text)
    hosts = tuple(
        h.model_copy(update={"myid": myid}) if h.name == "dest2" else h for h in c.inventory.dest.hosts
    )
    dest = c.inventory.dest.model_copy(update={"hosts": hosts})
    inventory = c.inventory.model_copy(update={"dest": dest})
    judged = run_preflight(type(c)(c.run, inventory), world, "preflight")
    return {f.target: f for f in judged if f.id == "dest.myid"}


@pytest.mark.parametrize(
    ("config", "myid", "held"),
    [
        ("server.3=", 12, Held.YES),
        ("server.3=", 254, Held.YES),
        ("server.3=", 255, Held.NO),
        ("server.30=", 12, Held.NO),
        ("server.3=", 3, Held.NO),
    ],
    ids=["above source's", "the largest", "too large", "between source's", "one of source's"],
)
def test_a_dest_myid_is_above_every_one_of_sources(config: str, myid: int, held: Held) -> None:
    finding = myids(config, myid)["dest2"]
    assert finding.held is held
    assert finding.blocks is (held is Held.NO)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.context.supplier.class", "org.example.Own"),
        ("ssl.crl", "true"),
        ("ssl.quorum.ocsp", "true"),
        ("ssl.authProvider", "own"),
        ("quorum.auth.kerberos.servicePrincipal", "zk/_HOST"),
        ("kerberos.removeHostFromPrincipal", "true"),
        ("java.security.krb5.conf", "/etc/krb5.conf"),
        ("javax.net.ssl.trustStore", "/k"),
        ("authProvider.ensemble", "org.apache.zookeeper.server.auth.EnsembleAuthenticationProvider"),
        ("sasl.serverPrincipal", "zk"),
        ("serverCnxnFactory", "org.example.Own"),
    ],
)
def test_each_kind_of_security_that_nobody_has_tried_is_named(key: str, value: str) -> None:
    assert next(not_supported({key: value, "tickTime": "2000"})).startswith(key)
    off = {key: "false"} if not key.startswith(("authProvider", "serverCnxn", "ssl.authP")) else {}
    assert list(not_supported(off)) == []


@pytest.mark.parametrize("key", sorted(SETTINGS))
def test_each_kind_of_security_that_a_move_supports_is_let_through(key: str) -> None:
    assert list(not_supported({key: SETTINGS[key]})) == []


NOT_SO = Judged(False, "it is not so")


def fails(
    gates: tuple[Gate, ...], early: bool = False, severity: Severity = Severity.BLOCK, judged: Judged = NOT_SO
) -> Check:
    def decide(_c: object, _e: object) -> Iterable[Judged]:
        yield judged

    return Check("t.check", "it is so", Scope.CLUSTER, gates, severity, early, "", "", decide)


@pytest.mark.parametrize(
    ("check", "weights"),
    [
        (fails(AT_FIRST), ("block", "over", "over")),
        (fails(JOINED), ("info", "block", "block")),
        (fails(ALWAYS), ("block", "block", "block")),
        (fails((Gate.CUTOVER,)), ("info", "info", "block")),
        (fails((Gate.CUTOVER,), early=True), ("warn", "warn", "block")),
        (fails((Gate.ROLL,)), ("info", "block", "over")),
        (fails(ALWAYS, severity=Severity.WARN), ("warn", "warn", "warn")),
    ],
)
def test_a_check_comes_later_counts_or_is_over_by_the_order_of_the_gates(
    check: Check, weights: tuple[str, ...]
) -> None:
    told = [check.findings(context(), cast(Evidence, None), gate) for gate in Gate]
    assert tuple(f[0].severity.value if f else "over" for f in told) == weights
    assert list(Gate) == ["preflight", "roll", "cutover"]


@pytest.mark.parametrize(
    ("judged", "severity", "weight"),
    [
        (Judged(None, "not told yet", later=True), Severity.BLOCK, Severity.INFO),
        (Judged(None, "not told"), Severity.BLOCK, Severity.BLOCK),
        (Judged(False, "the wrong machine", blocks=True), Severity.WARN, Severity.BLOCK),
        (Judged(False, "another address"), Severity.WARN, Severity.WARN),
    ],
    ids=["later", "now", "in the way", "a warning"],
)
def test_a_verdict_may_weigh_less_or_more_than_its_check(
    judged: Judged, severity: Severity, weight: Severity
) -> None:
    check = fails(ALWAYS, severity=severity, judged=judged)
    (finding,) = check.findings(context(), cast(Evidence, None), Gate.ROLL)
    assert finding.severity is weight
    assert finding.blocks is (weight is Severity.BLOCK)


@pytest.mark.parametrize(
    "reading",
    [Absent("no single leader"), TIMEOUT, Unknown("denied", "sudo: a password is required")],
    ids=str,
)
def test_evidence_that_could_not_be_had_never_passes(reading: Reading[object]) -> None:
    assert unseen(reading, "an answer").held is None
