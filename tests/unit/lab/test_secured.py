"""A secured lab: what it may be, and what its servers and clients get for it."""

from __future__ import annotations

import json
import re
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.protocol.serialization import SASL, write_buffer

from zkmigrate.lab import credentials as made_credentials
from zkmigrate.lab import render, secured
from zkmigrate.lab.credentials import OPERATOR, RAW, Credentials, kafka_login_of, login_of
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.kafka_login import PLAINTEXT, KafkaLogin
from zkmigrate.lab.load.config import LoadConfig, parse_config
from zkmigrate.lab.load.target import config_for
from zkmigrate.lab.login import OPEN, Login
from zkmigrate.lab.security import Kind, parse
from zkmigrate.lab.shape import Shape
from zkmigrate.lab.spec import SECURE_PORT, LabSpec, hosts_of
from zkmigrate.zookeeper.data.digest_md5 import answer

FULL = ("quorum-sasl", "quorum-tls", "sasl", "tls", "acl")


def spec(*kinds: str, version: str = "3.5.8", kafka: str = "2.8.2") -> LabSpec:
    return LabSpec(source_version=version, dest_version=version, kafka_version=kafka, security=kinds)


def settings(*kinds: str, version: str = "3.5.8") -> dict[str, str]:
    return secured.zookeeper_settings(spec(*kinds, version=version), version)


@pytest.fixture(scope="module")
def credentials() -> Credentials:
    return Credentials.generate("abcdef", spec(*FULL))


def files(host: str, of: LabSpec, credentials: Credentials) -> dict[str, render.HostFile]:
    plan = next(plan for plan in hosts_of(of) if plan.name == host)
    return {file.path: file for file in render.host_files(of, plan, "KEY", "PUBLIC", credentials)}


@pytest.mark.parametrize(
    ("kinds", "versions", "said"),
    [
        (("tsl",), {}, "security tsl is not possible; possible: quorum-sasl, quorum-tls, sasl, tls, acl"),
        (("enforce", "tls"), {"version": "3.9.5"}, "enforce needs sasl"),
        (("enforce", "sasl"), {"version": "3.5.8"}, "needed: 3.7 or newer"),
        (("acl",), {"version": "3.4.14"}, "needed: 3.5 or newer"),
        (("tls",), {"kafka": "2.3.1"}, "needed: 2.5 or newer"),
        (("kafka-tls",), {"kafka": "2.3.1"}, "needed: 2.7 or newer"),
        (("kafka-acl",), {}, "needs kafka-tls or kafka-sasl"),
    ],
)
def test_what_no_version_can_do_is_refused(
    kinds: tuple[str, ...], versions: dict[str, Any], said: str
) -> None:
    with pytest.raises(LabError, match=said):
        spec(*kinds, **versions)


def test_security_survives_json_and_older_records_have_none() -> None:
    whole = spec(*FULL)
    assert LabSpec.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    older = {key: value for key, value in LabSpec().to_json().items() if key != "security"}
    assert LabSpec.from_json(older) == LabSpec()
    assert parse(" sasl, tls,") == ("sasl", "tls")
    assert parse("") == ()
    assert parse("full") == tuple(kind for kind in Kind if kind is not Kind.ENFORCE)


def test_no_security_changes_nothing() -> None:
    assert settings() == secured.kafka_settings(spec()) == {}
    assert render.source_zoo_cfg(spec()).splitlines()[4] == "clientPort=2181"
    assert login_of(Path("/lab"), spec(), OPERATOR) == OPEN
    assert OPEN.credentials().context() is None


def test_fips_mode_goes_where_servers_of_3_9_log_in_to_each_other_and_nowhere_else() -> None:
    """With it on they never elect; where it need not be off, it stays as it is."""
    assert settings("quorum-sasl", version="3.9.5")["fips-mode"] == "false"
    assert "fips-mode" not in settings("quorum-sasl", version="3.8.4")
    assert "fips-mode" not in settings("quorum-tls", "sasl", "tls", "acl", version="3.9.5")


def test_the_port_with_tls_is_the_only_one_and_speaks_what_brokers_speak() -> None:
    lines = render.source_zoo_cfg(spec("tls", version="3.9.5")).splitlines()
    assert "secureClientPort=2281" in lines
    assert not any(line.startswith("clientPort=") for line in lines)
    assert "ssl.enabledProtocols=TLSv1.2,TLSv1.3" in lines
    assert "ssl.enabledProtocols" not in settings("tls", version="3.8.4")
    assert config_for(spec("tls")).raw_hosts["dest1"] == "10.71.0.21:2281"


@pytest.mark.parametrize(
    ("kinds", "on"), [(("acl",), False), (("acl", "sasl"), True), (("acl", "tls"), True), (("sasl",), False)]
)
def test_brokers_set_acls_only_where_they_have_an_identity(kinds: tuple[str, ...], on: bool) -> None:
    """A broker without one refuses to start with `zookeeper.set.acl`."""
    assert ("zookeeper.set.acl" in secured.kafka_settings(spec(*kinds))) is on


def test_the_servers_files_agree_and_only_their_account_reads_keys(credentials: Credentials) -> None:
    whole = spec(*FULL)
    jaas = {
        name: files(name, whole, credentials)["/etc/zookeeper/security/jaas.conf"]
        for name in ("source1", "dest3")
    }
    assert jaas["source1"] == jaas["dest3"]
    text = str(jaas["dest3"].content)
    passwords = credentials.passwords
    assert re.findall(r"^(\w+) \{", text, re.MULTILINE) == ["Server", "QuorumServer", "QuorumLearner"]
    assert f'user_quorum="{passwords["quorum"]}"' in text
    assert f'password="{passwords["quorum"]}"' in text
    broker = files("broker1", whole, credentials)
    assert f'password="{passwords["kafka"]}"' in str(broker["/etc/kafka/security/jaas.conf"].content)
    assert f'user_kafka="{passwords["kafka"]}"' in text
    for path in ("/etc/zookeeper/security/host.pem", "/etc/kafka/security/host.pem"):
        found = broker if "kafka" in path else files("dest3", whole, credentials)
        assert found[path].mode == 0o600
        assert "PRIVATE KEY" in str(found[path].content)
    everything = {
        name: files(name, whole, credentials) for name in ("source1", "dest1", "broker1", "client1")
    }
    visible = [
        file.content or ""
        for found in everything.values()
        for path, file in found.items()
        if "/security/" not in path
    ]
    assert not [user for user, password in passwords.items() if any(password in text for text in visible)]


def test_a_certificate_names_its_host_and_serves_both_sides(credentials: Credentials) -> None:
    for name, address, common in (
        ("source1", "10.71.0.11", "source1"), ("broker2", "10.71.0.32", "kafka"),
        ("client", "10.71.0.41", "client"),
    ):  # fmt: skip
        one = x509.load_pem_x509_certificate(credentials.certificates[name].certificate.encode())
        names = one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == [address]
        assert one.subject.rfc4514_string() == f"CN={common}"
        usage = one.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert len(list(usage)) == 2


def test_the_operator_and_the_load_log_in_with_files_that_only_root_reads(
    credentials: Credentials, tmp_path: Path
) -> None:
    folder = tmp_path / "zookeeper"
    credentials.write(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    operator, raw = (login_of(folder, spec(*FULL), user) for user in (OPERATOR, RAW))
    assert (operator.sasl_user, operator.digest_user) == ("operator", "super")
    assert (raw.sasl_user, raw.digest_user) == ("raw", "raw")
    assert isinstance(operator.credentials().context(), ssl.SSLContext)
    config = LoadConfig(login=operator, raw_login=raw)
    assert parse_config(config.to_json(), "load.json") == config
    assert not any(password in config.to_json() for password in credentials.passwords.values())
    client = operator.client("10.71.0.11:2281")
    assert list(client.auth_data) == [("digest", f"super:{credentials.passwords['super']}")]
    assert client.use_ssl
    assert login_of(folder, spec("quorum-sasl", "quorum-tls"), OPERATOR) == OPEN


def test_the_super_users_digest_is_the_one_that_zookeeper_computes() -> None:
    """The value is from `DigestAuthenticationProvider super:test` of ZooKeeper 3.8.4."""
    own = Credentials("", {}, {made_credentials.SUPER: "test"})
    assert own.super_digest == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


def test_kafkas_own_kinds_leave_zookeeper_as_it_is_and_need_brokers_with_zookeeper() -> None:
    assert settings("kafka-tls", "kafka-sasl", "kafka-acl") == {}
    shape = Shape.from_json(
        {"clusters": [{"name": "kr", "version": "3.9.1", "brokers": [{"controller": True}]}]}
    )
    with pytest.raises(LabError, match="only for clusters with ZooKeeper"):
        LabSpec(shape=shape, security=("kafka-sasl",))
    assert LabSpec(shape=shape, security=("tls",)).client_port == SECURE_PORT


def test_a_broker_has_its_listener_store_and_users(credentials: Credentials) -> None:
    both = spec("kafka-tls", "kafka-sasl", "kafka-acl")
    own = files("broker1", both, credentials)
    properties = dict(line.split("=", 1) for line in str(own[render.SERVER_PROPERTIES].content).splitlines())
    assert properties["listeners"] == "SASL_SSL://10.71.0.31:9092"
    assert properties["security.inter.broker.protocol"] == "SASL_SSL"
    assert properties["super.users"] == "User:kafka;User:operator"
    store = own["/etc/kafka/security/listener.p12"]
    assert store.mode == 0o600
    password = properties["ssl.keystore.password"].encode()
    assert pkcs12.load_key_and_certificates(store.data or b"", password)[1] is not None
    assert "zookeeper.sasl.client=false" in str(own[render.KAFKA_ENV].content)
    assert "zookeeper.sasl.client" not in str(files("broker1", spec("kafka-sasl", "sasl"), credentials)[
        render.KAFKA_ENV].content)  # fmt: skip


@pytest.mark.parametrize(
    ("kinds", "user", "needed"),
    [
        ((), OPERATOR, PLAINTEXT),
        (
            ("kafka-tls",),
            OPERATOR,
            KafkaLogin("SSL", ca="/l/ca.pem", certificate="/l/operator.pem", key="/l/operator.key"),
        ),
        (
            ("kafka-sasl",),
            "client",
            KafkaLogin("SASL_PLAINTEXT", "SCRAM-SHA-256", "client", "/l/client.password"),
        ),
        (
            ("kafka-sasl", "kafka-tls"),
            "kafka",
            KafkaLogin("SASL_SSL", "PLAIN", "kafka", "/l/kafka.password", "/l/ca.pem"),
        ),
    ],
)
def test_who_logs_in_to_kafka_and_how(kinds: tuple[str, ...], user: str, needed: KafkaLogin) -> None:
    assert kafka_login_of(Path("/l"), spec(*kinds), user) == needed


def test_both_libraries_get_the_password_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("word\n")
    login = KafkaLogin("SASL_SSL", "PLAIN", "me", str(tmp_path / "secret"), "ca.pem")
    assert login.librdkafka("a:1,b:2") == {
        "bootstrap.servers": "a:1,b:2", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
        "sasl.username": "me", "sasl.password": "word", "ssl.ca.location": "ca.pem",
    }  # fmt: skip
    assert login.kafka_python("a:1,b:2") == {
        "bootstrap_servers": ["a:1", "b:2"], "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me", "sasl_plain_password": "word", "ssl_cafile": "ca.pem",
    }  # fmt: skip


class Connection:
    """As much of kazoo's connection as a login uses: it answers each message with the next of these."""

    def __init__(self, *answers: bytes, err: int = 0) -> None:
        self.answers, self.err, self.sent = list(answers), err, list[bytes]()

    def _submit(self, request: SASL, _timeout_s: float, _xid: int) -> None:
        self.sent.append(request.challenge)

    def _read_header(self, _timeout_s: float) -> tuple[Any, bytes, int]:
        return SimpleNamespace(err=self.err), write_buffer(self.answers.pop(0)), 0


CHALLENGE = b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess'


def log_in(tmp_path: Path, connection: Connection) -> None:
    (tmp_path / "secret").touch(0o600)
    (tmp_path / "secret").write_text("word\n")
    client = Login(sasl_user="me", sasl_password=str(tmp_path / "secret")).client("127.0.0.1:1")
    own = client._connection
    own._submit, own._read_header = connection._submit, connection._read_header
    own._authenticate_with_sasl("", 1.0)


def test_a_login_ends_with_the_servers_own_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _bytes: "c")
    connection = Connection(CHALLENGE, answer(CHALLENGE, "me", "word", "c").confirmation)
    log_in(tmp_path, connection)
    assert connection.sent == [b"", answer(CHALLENGE, "me", "word", "c").message]


@pytest.mark.parametrize("connection", [Connection(CHALLENGE, b"rspauth=0"), Connection(b"", err=-115)])
def test_a_login_that_the_server_refuses_or_cannot_prove_ends_the_client(
    tmp_path: Path, connection: Connection
) -> None:
    """kazoo closes the client for this error; it ends its own thread for others."""
    with pytest.raises(AuthFailedError):
        log_in(tmp_path, connection)


def test_a_connection_that_is_lost_during_the_login_is_made_again(tmp_path: Path) -> None:
    """kazoo connects again after this error."""
    lost = Connection()

    def dropped(_timeout_s: float) -> tuple[Any, bytes, int]:
        raise ConnectionDropped("socket connection broken")

    lost._read_header = dropped  # type: ignore[method-assign]
    with pytest.raises(ConnectionDropped):
        log_in(tmp_path, lost)


def test_only_kinds_that_log_in_give_servers_a_jaas_file(credentials: Credentials) -> None:
    for kind in (Kind.QUORUM_SASL, Kind.QUORUM_TLS, Kind.SASL, Kind.TLS, Kind.ACL):
        own = files("source1", spec(kind), credentials)
        logs_in = kind in (Kind.SASL, Kind.QUORUM_SASL)
        assert ("/etc/zookeeper/security/jaas.conf" in own) is logs_in
        flags = str(own[render.JAVA_ENV].content)
        assert ("java.security.auth.login.config=/etc/zookeeper/security/jaas.conf" in flags) is logs_in
        assert ("superDigest=super:" in flags) is (kind is Kind.ACL)
