"""Single conditions of the preflight: one false fact, and the check that must see it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from tests.unit.preflight_world import context, healthy
from zkmigrate.model.fact import Seen
from zkmigrate.model.finding import Finding, Held, Severity
from zkmigrate.preflight import run_preflight
from zkmigrate.preflight.check import ALWAYS, AT_FIRST, JOINED, Check, Gate, Judged, Scope
from zkmigrate.preflight.evidence import Evidence
from zkmigrate.preflight.security import in_kafka, in_zookeeper

ZOO_CFG = "/etc/zookeeper/conf/zoo.cfg"


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
    found = run_preflight(type(c)(c.run, inventory), world, "preflight")
    return {f.target: f for f in found if f.id == "dest.myid"}


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
    "key",
    [
        "sasl.enabled.mechanisms",
        "ssl.keystore.location",
        "listener.name.internal.ssl.keystore.location",
        "listener.name.internal.sasl.enabled.mechanisms",
        "zookeeper.ssl.client.enable",
        "zookeeper.set.acl",
        "zookeeper.clientCnxnSocket",
    ],
)
def test_each_kind_of_kafka_setting_that_speaks_of_sasl_or_tls_is_named(key: str) -> None:
    assert in_kafka({key: "x", "log.dirs": "/k"}) == (key,)
    assert in_kafka({key: "false"}) == ()


@pytest.mark.parametrize(
    "key",
    [
        "ssl.quorum.keyStore.location",
        "zookeeper.ssl.keyStore.location",
        "sslQuorum",
        "secureClientPort",
        "secureClientPortAddress",
        "portUnification",
        "client.portUnification",
        "quorum.auth.enableSasl",
        "authProvider.1",
        "requireClientAuthScheme",
        "sessionRequireClientSASLAuth",
        "enforce.auth.enabled",
        "kerberos.removeHostFromPrincipal",
        "jaasLoginRenew",
        "sasl.serverPrincipal",
        "client.secure",
        "superUser",
        "DigestAuthenticationProvider.superDigest",
        "X509AuthenticationProvider.superUser",
        "java.security.auth.login.config",
        "javax.net.ssl.trustStore",
    ],
)
def test_each_kind_of_zookeeper_setting_that_speaks_of_sasl_or_tls_is_named(key: str) -> None:
    assert in_zookeeper({key: "x", "tickTime": "2000"}) == (key,)
    assert in_zookeeper({key: "false"}) == ()


def test_a_server_on_netty_is_named() -> None:
    key = "zookeeper.serverCnxnFactory"
    assert in_zookeeper({key: "org.apache.zookeeper.server.NettyServerCnxnFactory"}) == (key,)
    assert in_zookeeper({key: "org.apache.zookeeper.server.NIOServerCnxnFactory"}) == ()


def fails(gates: tuple[Gate, ...], early: bool = False, severity: Severity = Severity.BLOCK) -> Check:
    def decide(_c: object, _e: object) -> Iterable[Judged]:
        yield Judged(False, "it is not so")

    return Check("t.check", "it is so", Scope.CLUSTER, gates, severity, early, "", decide)


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
    found = [check.findings(context(), cast(Evidence, None), gate) for gate in Gate]
    assert tuple(f[0].severity.value if f else "over" for f in found) == weights
    assert list(Gate) == ["preflight", "roll", "cutover"]
