"""Settings of logins and of TLS, certificates, and brokers' connections: each mistake by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.unit.preflight_world import (
    CMDLINE,
    SOURCE_CFG,
    PreflightWorld,
    file_entry,
    recorded,
    run_preflight,
    words_of,
)
from tests.unit.secured_world import (
    AUTHORITY,
    BROKER_CA,
    BROKER_JAAS,
    BROKER_STORE,
    FLAGS,
    JAVA_ENV,
    SETTINGS,
    STORE,
    ZOO_CFG,
    authority,
    issue,
    section,
    secured,
    secured_context,
)
from zkmigrate.inventory.inventory import Ports, Service, Window
from zkmigrate.inventory.login import ZooKeeper, ZooKeeperClient
from zkmigrate.move.preflight.security import X509_PROVIDER
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.step import Context

Break = Callable[[PreflightWorld], None]
Settings = dict[str, str | None]
PROPERTIES = "/etc/kafka/server.properties"
FIPS: Settings = {"fips-mode": "false"}
ALL = ("dest1", "dest2", "dest3")
SOURCE = ("source1", "source2", "source3")


def found(
    world: PreflightWorld,
    settings: Mapping[str, str | None] | None = None,
    gate: str = "preflight",
    c: Context | None = None,
) -> dict[tuple[str, str], Finding]:
    given = c or secured_context(**{**FIPS, **(settings or {})})
    return {(f.id, f.target): f for f in run_preflight(given, world, gate)}


def put(path: str, content: bytes, *hosts: str) -> Break:
    return lambda w: w.files.update({(host, path): Seen(content) for host in hosts})


def more(line: str, *hosts: str) -> Break:
    """Another line in source's zoo.cfg."""
    own = "".join(f"{key}={value}\n" for key, value in SETTINGS.items())
    return put(ZOO_CFG, f"{SOURCE_CFG}{own}{line}\n".encode(), *(hosts or SOURCE))


def flags(text: str, *hosts: str) -> Break:
    return put(JAVA_ENV, f'SERVER_JVMFLAGS="{text}"\n'.encode(), *hosts)


def of_broker(line: str) -> Break:
    def broken(world: PreflightWorld) -> None:
        there = world.files["broker1", PROPERTIES]
        assert isinstance(there, Seen)
        world.files["broker1", PROPERTIES] = Seen(there.value + line.encode() + b"\n")

    return broken


def fine(_world: PreflightWorld) -> None:
    """Nothing is broken in the world."""


def close(path: str, *hosts: str) -> Break:
    return lambda w: w.files.update({(host, path): Unknown("denied", "permission denied") for host in hosts})


ADDRESS = "10.71.0.21"
OTHER = authority("other").public
DIGEST = FLAGS.rpartition("=")[0]
CASES: list[tuple[str, str, Break, Settings, str]] = [
    ("dest.fips", "dest1", fine, {"fips-mode": "true"}, "fips-mode=true"),
    ("dest.quorum-login", "dest1", fine, {"quorum.auth.serverRequireSasl": None},
     "quorum.auth.serverRequireSasl: false, source1 true"),
    ("dest.quorum-login", "dest1", more("quorum.auth.enableSasl=false", "source2"), {},
     "quorum.auth.enableSasl: true, source2 false"),
    ("dest.required-login", "dest1", fine, {"enforce.auth.enabled": "true"},
     "enforce.auth.enabled without enforce.auth.schemes: the server would not start"),
    ("dest.required-login", "dest1", fine, {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"},
     "enforce.auth.enabled: true, source1 false"),
    ("dest.required-login", "dest1", more("sessionRequireClientSASLAuth=true"), {},
     "sessionRequireClientSASLAuth: false, source1 true"),
    ("dest.auth-providers", "dest1", fine, {"authProvider.1": None},
     "no SASLAuthenticationProvider, which source1 has"),
    ("dest.auth-providers", "dest1", more(f"authProvider.x={X509_PROVIDER}"), {},
     "no X509AuthenticationProvider, which source1 has"),
    ("dest.super-user", "dest1", flags(f"{DIGEST}=super:canary-other", "dest1"), {},
     "DigestAuthenticationProvider.superDigest: another one than source1 has"),
    ("dest.super-user", "dest1", flags(FLAGS.partition(" ")[0], "dest1"), {},
     "DigestAuthenticationProvider.superDigest: only source1 has it"),
    ("dest.super-user", "dest1", flags(FLAGS.partition(" ")[0], *SOURCE), {},
     "DigestAuthenticationProvider.superDigest: only this host has it"),
    ("dest.tls-settings", "dest1", fine, {"sslQuorum": "false"}, "sslQuorum: false, source1 true"),
    ("dest.tls-settings", "dest1", fine, {"portUnification": "true"}, "portUnification: true, source1 false"),
    ("dest.tls-settings", "dest1", more("client.portUnification=true"), {},
     "client.portUnification: false, source1 true"),
    ("dest.tls-settings", "dest1", more("ssl.clientAuth=none"), {}, "ssl.clientAuth: need, source1 none"),
    ("dest.tls-settings", "dest1", fine, {"ssl.quorum.hostnameVerification": "false"},
     "ssl.quorum.hostnameVerification: false, source1 true"),
    ("dest.tls-settings", "dest1", fine,
     {"serverCnxnFactory": "org.apache.zookeeper.server.NIOServerCnxnFactory"},
     "secureClientPort without serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"),
    ("dest.tls-settings", "dest1", more("secureClientPort="), {}, "secureClientPort: only dest1 has it"),
    ("dest.tls-settings", "dest1", more("ssl.quorum.protocol=TLSv1.2"),
     {"ssl.quorum.enabledProtocols": "TLSv1.3"}, "TLS versions of the quorum: TLSv1.3, source1 TLSv1.2"),
    ("dest.certificate", "dest1", put(STORE, issue("d", ADDRESS, days=-1).store, "dest1"), {},
     "quorum: it is valid only until 1969-12-31T00:16Z"),
    ("dest.certificate", "dest1", put(STORE, issue("d", ADDRESS, days=5).store, "dest1"), {},
     "port for clients: it is valid only until 1970-01-06T00:16Z"),
    ("dest.certificate", "dest1",
     put(STORE, issue("d", ADDRESS, uses=(ExtendedKeyUsageOID.SERVER_AUTH,)).store, "dest1"), {},
     "quorum: it does not permit clientAuth"),
    ("dest.certificate", "dest1", put(STORE, issue("d", ADDRESS, signs=False).store, "dest1"), {},
     "it does not permit digitalSignature"),
    ("dest.certificate-names", "dest1", put(STORE, issue("d", "10.9.9.9", "dest1").store, "dest1"), {},
     "quorum: it names 10.9.9.9, dest1"),
    ("dest.certificate-names", "dest1", put(STORE, issue("d").store, "dest1"), {}, "it names nothing"),
    ("dest.trust", "dest1", put(AUTHORITY, OTHER, "dest1"), {},
     "dest1 does not trust dest2's certificate: its issuer CN=authority is not there"),
    ("dest.trust", "dest2", put(AUTHORITY, OTHER, "dest2"), {},
     "dest2 does not trust source1's certificate: its issuer CN=authority is not there"),
    ("dest.trust", "dest1", put(AUTHORITY, OTHER, "source2"), {},
     "source2 does not trust dest1's certificate: its issuer CN=authority is not there"),
    ("dest.trust", "dest1", put(STORE, issue("d", "10.71.0.22", by="other").store, "dest2"), {},
     "dest1 does not trust dest2's certificate: its issuer CN=other is not there"),
    # the same name and another key: only the signature tells
    ("dest.trust", "dest1", put(AUTHORITY, issue("authority", by=None, days=99).public, "dest1"), {},
     "dest1 does not trust dest2's certificate: signature does not match"),
    ("source.stores", "source1", close(STORE, "source1"), {}, "permission denied"),
    ("kafka.trusts-dest", "broker1", put(BROKER_CA, OTHER, "broker1"), {},
     "broker1 does not trust dest1's certificate: its issuer CN=authority is not there"),
    ("kafka.trusts-dest", "broker1", put(STORE, issue("d", "10.9.9.9").store, "dest2"), {},
     "dest2's certificate does not name 10.71.0.22"),
    ("kafka.trusts-dest", "broker1", put(BROKER_STORE, issue("k", by="other").store, "broker1"), {},
     "dest1 does not trust broker1's certificate: its issuer CN=other is not there"),
    ("kafka.trusts-dest", "broker1", put(BROKER_STORE, issue("k", days=1).store, "broker1"), {},
     "broker1's certificate: it is valid only until"),
    ("kafka.trusts-dest", "broker1",
     put(BROKER_STORE, issue("k", uses=(ExtendedKeyUsageOID.SERVER_AUTH,)).store, "broker1"), {},
     "broker1's certificate does not permit clientAuth"),
    ("kafka.trusts-dest", "broker1", of_broker("zookeeper.ssl.keystore.location="), {},
     "dest1 demands a certificate, and broker1 has none"),
    ("kafka.tls-versions", "broker1", fine, {"ssl.enabledProtocols": "TLSv1.3"}, "TLSv1.2; dest1 TLSv1.3"),
    ("kafka.tls-versions", "broker1", of_broker("zookeeper.ssl.enabled.protocols=TLSv1.3"),
     {"ssl.enabledProtocols": "TLSv1.2"}, "TLSv1.3; dest1 TLSv1.2"),
    ("kafka.zookeeper-login", "broker1",
     put(BROKER_JAAS, section("Client", username="other", password="canary").encode(), "broker1"), {},
     "section for clients of dest1 lacks the user 'other', with whom broker1 logs in"),
    ("kafka.zookeeper-login", "broker1",
     put(BROKER_JAAS, section("Client", username="kafka", password="canary").encode(), "broker1"), {},
     "section for clients of dest1 has another password for 'kafka' than broker1"),
]  # fmt: skip
OF_WARNING = ("source.stores",)
VERSIONS: Settings = {"ssl.enabledProtocols": "TLSv1.2,TLSv1.3"}


@pytest.mark.parametrize(("id", "target", "broken", "settings", "seen"), CASES)
def test_each_mistake_is_one_finding_that_blocks(
    id: str, target: str, broken: Break, settings: Settings, seen: str
) -> None:
    right = found(secured(), VERSIONS)[id, target]
    assert right.held is Held.YES, right
    world = secured()
    broken(world)
    told = found(world, {**VERSIONS, **settings})[id, target]
    assert told.held is (Held.UNKNOWN if id in OF_WARNING else Held.NO)
    assert told.blocks is (id not in OF_WARNING)
    assert seen in told.seen
    assert told.moves
    assert "canary" not in repr(told)


@pytest.mark.parametrize("gate", ["preflight", "roll", "cutover"])
def test_a_secured_world_in_order_passes(gate: str) -> None:
    told = found(secured(), VERSIONS, gate)
    assert {key: f.seen for key, f in told.items() if f.blocks} == {}


@pytest.mark.parametrize(("id", "target", "broken"), [
    *((id, "dest1", close(JAVA_ENV, "dest1")) for id in (
        "dest.fips", "dest.quorum-login", "dest.required-login", "dest.auth-providers", "dest.super-user",
        "dest.tls-settings", "dest.certificate", "dest.certificate-names", "dest.trust")),
    *((id, "dest1", close(ZOO_CFG, "source2")) for id in (
        "dest.quorum-login", "dest.required-login", "dest.auth-providers", "dest.super-user",
        "dest.tls-settings")),
    ("source.stores", "source2", close(ZOO_CFG, "source2")),
    ("dest.certificate", "dest1", close(STORE, "dest1")),
    ("dest.certificate", "dest1", close(AUTHORITY, "dest1")),
    ("dest.certificate-names", "dest1", close(STORE, "dest1")),
    ("dest.trust", "dest1", close(AUTHORITY, "dest1")),
    *((id, "broker1", close(PROPERTIES, "broker1")) for id in (
        "kafka.trusts-dest", "kafka.tls-versions", "kafka.zookeeper-login")),
    ("kafka.trusts-dest", "broker1", close(BROKER_CA, "broker1")),
    ("kafka.trusts-dest", "broker1", close(BROKER_STORE, "broker1")),
    ("kafka.trusts-dest", "broker1", close(AUTHORITY, "dest1")),
    ("kafka.trusts-dest", "broker1", close(STORE, "dest3")),
    ("kafka.tls-versions", "broker1", close(JAVA_ENV, "dest3")),
    ("kafka.zookeeper-login", "broker1", close("/proc/311/cmdline", "broker1")),
    ("kafka.zookeeper-login", "broker1", close("/etc/zookeeper/jaas.conf", "dest3")),
])  # fmt: skip
def test_what_cannot_be_read_is_unknown(id: str, target: str, broken: Break) -> None:
    world = secured()
    broken(world)
    told = found(world, VERSIONS)[id, target]
    assert told.held is Held.UNKNOWN


JARS = "/opt/zookeeper/lib"


@pytest.mark.parametrize(("jar", "held"), [("3.8.4", Held.YES), ("3.9.5", Held.NO), ("", Held.UNKNOWN)])
def test_without_fips_mode_the_release_counts_and_jars_show_it_before_the_join(jar: str, held: Held) -> None:
    world, c = secured(), secured_context(**{"fips-mode": "false"})
    settings = {key: value for key, value in c.inventory.dest.settings.items() if key != "fips-mode"}
    dest = c.inventory.dest.model_copy(
        update={"settings": settings, "service": Service(unit="zookeeper.service")}
    )
    c = replace(c, inventory=c.inventory.model_copy(update={"dest": dest}))
    facts = world.programs["dest1", "facts"]
    assert isinstance(facts, Seen)
    words = f"path=/usr/bin/java ; argv[]=/usr/bin/java -cp {JARS}/* X ; ignore_errors=no ;"
    start = f"unit.ExecStart={{ {words} }}\n"
    world.programs["dest1", "facts"] = Seen(facts.value + start)
    world.listings["dest1", JARS] = Seen((file_entry(f"zookeeper-{jar}.jar" if jar else "other.jar"),))
    assert found(world, c=c)["dest.fips", "dest1"].held is held
    assert found(world, c=c, gate="roll")["dest.fips", "dest1"].held is Held.YES, "3.5.8 runs"
    new = recorded("observer.srvr").replace("3.5.8", "3.9.5")
    world.words["dest1", "srvr"] = Seen(new)
    assert found(world, c=c, gate="cutover")["dest.fips", "dest1"].held is Held.NO


def test_in_fips_mode_no_server_checks_names_and_a_wrong_one_only_warns() -> None:
    world = secured()
    put(STORE, issue("d", "10.9.9.9").store, "dest1")(world)
    for host in (*SOURCE, *ALL):
        word = world.words[host, "srvr"]
        assert isinstance(word, Seen)
        world.words[host, "srvr"] = Seen(word.value.replace("3.5.8", "3.9.5"))
    more("fips-mode=true")(world)
    told = found(world, {"fips-mode": "true"}, "cutover")["dest.certificate-names", "dest1"]
    assert (told.held, told.blocks) == (Held.NO, False)
    told = found(world, FIPS, "cutover")["dest.certificate-names", "dest1"]
    assert (told.held, told.blocks) == (Held.NO, True)


def test_certificates_must_last_until_the_end_of_the_window() -> None:
    world = secured()
    put(STORE, issue("d", ADDRESS, days=30).store, "dest1")(world)
    assert found(world)["dest.certificate", "dest1"].held is Held.YES
    c = secured_context(**FIPS)
    window = Window(begin="1970-03-01T00:00Z", end="1970-03-02T00:00Z")
    policy = c.inventory.policy.model_copy(update={"window": window})
    c = replace(c, inventory=c.inventory.model_copy(update={"policy": policy}))
    assert "valid only until 1970-01-31" in found(world, c=c)["dest.certificate", "dest1"].seen


def store_of(password: str) -> bytes:
    own = issue("d", ADDRESS)
    form = serialization.BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(b"d", own.key, own.certificate, None, form)


@pytest.mark.parametrize(("content", "password", "seen"), [
    (store_of("canary"), Seen(b"canary\n"), ""),
    (store_of("canary"), Seen(b"other\n"), "its password is another one"),
    (store_of("canary"), Unknown("denied", "permission denied"), "permission denied"),
    (b"\xfe\xed\xfe\xed\0\0\0\2", Seen(b"canary\n"), "it is a JKS store, which zkmigrate does not read"),
    (b"-----BEGIN CERTIFICATE-----\nAA\n", Seen(b"canary\n"), "no PEM or PKCS12 store"),
])  # fmt: skip
def test_stores_are_pem_or_pkcs12_with_a_password_in_a_file(
    content: bytes, password: Reading[bytes], seen: str
) -> None:
    world = secured()
    world.files["dest1", "/etc/zookeeper/store.p12"] = Seen(content)
    world.files["dest1", "/etc/zookeeper/password"] = password
    own = issue("dest1", ADDRESS).store
    settings = {
        "ssl.quorum.keyStore.location": "/etc/zookeeper/store.p12",
        "ssl.quorum.keyStore.passwordPath": "/etc/zookeeper/password",
    }
    for host in ("dest2", "dest3"):
        put("/etc/zookeeper/store.p12", own, host)(world)
        put("/etc/zookeeper/password", b"x", host)(world)
    told = found(world, settings)["dest.certificate", "dest1"]
    assert told.held is (Held.UNKNOWN if seen else Held.YES)
    assert seen in told.seen
    assert "canary" not in repr(told)


def test_a_broker_without_security_is_left_alone() -> None:
    world = secured()
    world.files["broker1", "/proc/311/cmdline"] = words_of(
        "java", "-Dzookeeper.sasl.client=false", *CMDLINE[1:]
    )
    assert found(world)["kafka.zookeeper-login", "broker1"].seen == "no SASL to ZooKeeper"
    of_broker("zookeeper.ssl.client.enable=false")(world)
    assert found(world)["kafka.trusts-dest", "broker1"].seen == "no TLS to ZooKeeper"
    assert found(world)["kafka.tls-versions", "broker1"].seen == "no TLS to ZooKeeper"


def with_ports(c: Context, source: Ports, dest: Ports, client: ZooKeeperClient) -> Context:
    given = c.inventory
    changed = {
        "source": given.source.model_copy(update={"ports": source}),
        "dest": given.dest.model_copy(update={"ports": dest}),
        "zookeeper": ZooKeeper(client=client),
    }
    return replace(c, inventory=given.model_copy(update=changed))


ONLY_TLS = Ports(secure=2281)
WHOLE = secured_context().inventory.zookeeper.client


@pytest.mark.parametrize(("settings", "flag", "seen"), [
    ({"admin.enableServer": "false"}, "", "admin.enableServer=false"),
    ({"admin.serverAddress": "127.0.0.1"}, "", "admin.serverAddress=127.0.0.1"),
    ({"admin.forceHttps": "true"}, "", "admin.forceHttps=true"),
    ({"admin.commandURL": "/other"}, "", "admin.commandURL=/other"),
    ({}, " -Dzookeeper.admin.serverPort=9999", "admin.serverPort=9999 in the JVM's flags"),
    ({"admin.serverPort": "9999"}, "", ""),
])  # fmt: skip
def test_a_dest_with_tls_alone_needs_its_admin_server(settings: Settings, flag: str, seen: str) -> None:
    world = secured()
    flags(FLAGS + flag, "dest1")(world)
    c = secured_context(**{**FIPS, **VERSIONS, **settings})
    told = found(world, c=with_ports(c, ONLY_TLS, ONLY_TLS, WHOLE))["dest.admin-server", "dest1"]
    assert (told.held, told.blocks) == ((Held.NO, True) if seen else (Held.YES, False))
    assert seen in told.seen
    assert found(world, c=c)["dest.admin-server", "dest1"].seen == "port 2181 answers without TLS"
    close(JAVA_ENV, "dest1")(world)
    told = found(world, c=with_ports(c, ONLY_TLS, ONLY_TLS, WHOLE))["dest.admin-server", "dest1"]
    assert told.held is Held.UNKNOWN


@pytest.mark.parametrize(("source", "dest", "without", "line", "seen"), [
    (ONLY_TLS, Ports(), "tls", "", "client.tls is missing, and zkmigrate uses source's port 2281, with TLS"),
    (Ports(), Ports(client=2181, secure=2281), "tls", "", "zkmigrate uses dest's port 2281, with TLS"),
    (Ports(), ONLY_TLS, "tls", "", "client.tls is missing, and zkmigrate uses dest's port 2281, with TLS"),
    (Ports(), Ports(), "sasl", "", "zookeeper.client has no sasl and no digest"),
    (Ports(), Ports(), "sasl", "sessionRequireClientSASLAuth=true",
     "zookeeper.client.sasl is missing, and source1, source2, source3 serve only who has logged in"),
    (Ports(), Ports(), "tls", "", ""),
])  # fmt: skip
def test_what_migration_yml_lacks_to_log_in_is_named(
    source: Ports, dest: Ports, without: str, line: str, seen: str
) -> None:
    world = secured()
    if line:
        more(line)(world)
    client = WHOLE.model_copy(update={without: None})
    c = with_ports(secured_context(**FIPS), source, dest, client)
    told = found(world, c=c)["operator.zookeeper-client", ""]
    assert (told.held, told.blocks) == ((Held.NO, True) if seen else (Held.YES, False))
    assert seen in told.seen
    close(ZOO_CFG, "source1")(world)
    whole = with_ports(c, source, dest, WHOLE)
    assert found(world, c=whole)["operator.zookeeper-client", ""].held is Held.UNKNOWN


@pytest.mark.parametrize(("lines", "seen"), [
    ("listeners=SSL://:9092", "port 9092 is SSL, and kafka.client is missing"),
    ("listeners=A://:9092,B://:9093\nlistener.security.protocol.map=A:SASL_SSL,B:PLAINTEXT",
     "port 9092 is SASL_SSL, and kafka.client is missing"),
    ("listeners=A://:9092\nlistener.security.protocol.map=A:PLAINTEXT", ""),
])  # fmt: skip
def test_a_broker_that_needs_a_login_needs_the_section_kafka_client(lines: str, seen: str) -> None:
    world = secured()
    of_broker(lines)(world)
    told = found(world)["kafka.client", "broker1"]
    assert (told.held, told.blocks) == ((Held.NO, True) if seen else (Held.YES, False))
    assert seen in told.seen
    close(PROPERTIES, "broker1")(world)
    assert found(world)["kafka.client", "broker1"].held is Held.UNKNOWN


def test_a_broker_with_tls_by_a_flag_is_unknown() -> None:
    world = secured()
    of_broker("zookeeper.ssl.client.enable=false")(world)
    world.files["broker1", "/proc/311/cmdline"] = words_of(
        CMDLINE[0], "-Dzookeeper.client.secure=true", *CMDLINE[1:]
    )
    told = found(world)["kafka.trusts-dest", "broker1"]
    assert told.held is Held.UNKNOWN
    assert "the JVM's flags, not server.properties, switch TLS to ZooKeeper on" in told.seen


def test_a_broker_without_tls_is_not_sent_to_a_port_with_tls() -> None:
    world = secured()
    of_broker("zookeeper.ssl.client.enable=false")(world)
    both = Ports(client=2181, secure=2281)
    for dest, held in ((both, Held.YES), (ONLY_TLS, Held.NO)):
        c = with_ports(secured_context(**FIPS), both, dest, WHOLE)
        assert found(world, c=c)["kafka.tls-versions", "broker1"].held is held


def test_kerberos_of_a_broker_is_refused_by_name() -> None:
    world = secured()
    own = b"Client {\n com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;\n};\n"
    put(BROKER_JAAS, own, "broker1")(world)
    told = found(world)["kafka.zookeeper-login", "broker1"]
    assert told.held is Held.NO
    assert "Kerberos" in told.seen


def test_who_asks_no_client_for_a_certificate_needs_no_trust_store() -> None:
    world = secured()
    settings = {**FIPS, **VERSIONS, "ssl.clientAuth": "none", "ssl.trustStore.location": ""}
    assert found(world, settings)["dest.certificate", "dest1"].held is Held.YES
    settings = {**FIPS, **VERSIONS, "ssl.trustStore.location": ""}
    assert found(world, settings)["dest.certificate", "dest1"].held is Held.UNKNOWN
