"""TLS and SASL from Kafka's client properties, and no secret in any message."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ports import free_port
from zkmigrate import deadline
from zkmigrate.errors import HostError, UsageError
from zkmigrate.topics.mirror.clients import cluster
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.clients.security import of, settings

HOST = "127.0.0.1"
SECRET = "s3cr3t"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def jaas(options: str, module: str = SCRAM) -> str:
    return f"{module} required {options};"


def sasl(options: str, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": jaas(options),
        **more,
    }


GOOD = f'username="alice" password="{SECRET}"'


def test_a_user_and_a_password_are_read() -> None:
    assert of(sasl(GOOD)) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
    }
    assert of({}) == {"security_protocol": "PLAINTEXT"}
    assert settings(None) == {}


def test_brokers_that_want_tls_are_named_with_what_is_missing() -> None:
    with socket.create_server((HOST, 0)) as server:

        def end_each() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    client.settimeout(1)
                    with client, suppress(TimeoutError):  # a client may never send
                        client.recv(100)

        thread = threading.Thread(target=end_each)
        thread.start()
        try:
            with (
                deadline.within(2),
                pytest.raises(HostError, match=r"give clusters\[\]\.client in migration"),
            ):
                Cluster("source", [f"{HOST}:{server.getsockname()[1]}"])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    with deadline.within(1), pytest.raises(HostError, match="did not respond") as refused:
        Cluster("source", [f"{HOST}:{free_port()}"])
    assert "clusters[]" not in str(refused.value)


def test_a_file_is_read_with_javas_escapes(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# of the mirror\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\ngroup.id=any\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '  username=bob password="a\\\\"b; \\\\\\\\c\\u0041";\n'
    )
    told = settings(file)
    assert told["sasl_plain_username"] == "bob"
    assert told["sasl_plain_password"] == 'a"b; \\cA'


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security.protocol": "KERBEROS"}, "security.protocol is KERBEROS"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is GSSAPI. Possible: PLAIN"),
        (sasl(GOOD, **{"sasl.mechanism": "OAUTHBEARER"}), "sasl.mechanism is OAUTHBEARER"),
        (sasl(GOOD, **{"sasl.mechanism": "PLAIN"}), "PlainLoginModule required"),
        (sasl(GOOD, **{"sasl.jaas.config": jaas(GOOD)[:-1]}), "sasl.jaas.config does not have the form"),
        (sasl(f'password="{SECRET}"'), "has no username"),
        (sasl('username="alice"'), "has no password"),
        (sasl(GOOD, **{"ssl.truststore.password": SECRET}), "ssl.truststore.password: unknown setting"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "ca.jks"}, "is JKS. Needed: PEM"),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.location": "/no/ca.pem",
                "ssl.truststore.type": "PEM",
            },
            "ssl.truststore.location",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": SECRET}, "ssl.truststore.certificates"),
        (
            {
                "security.protocol": "SSL",
                "ssl.keystore.location": "/no/key.pem",
                "ssl.keystore.type": "PEM",
                "ssl.key.password": SECRET,
            },
            "ssl.keystore.location /no/key.pem",
        ),
    ],
)
def test_what_is_missing_or_not_known_is_named_without_a_secret(
    properties: Mapping[str, str], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    with pytest.raises(UsageError, match=r"client\.properties: ") as caught:
        settings(file)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.properties cannot be read: No such file"):
        settings(tmp_path / "none.properties")
    (tmp_path / "bytes").write_bytes(b"a=\\u1")
    with pytest.raises(UsageError, match="bytes: line 1 holds a"):
        settings(tmp_path / "bytes")


def certificate(folder: Path, password: str = "") -> Path:
    """A key and its certificate in one file."""
    key, file = folder / "key.pem", folder / "own.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-keyout", str(key), "-out", str(file), "-days", "2", "-subj", "/CN=mirror"]
    words += ["-passout", f"pass:{password}"] if password else ["-nodes"]
    subprocess.run(words, check=True, capture_output=True)
    file.write_text(file.read_text() + key.read_text())
    return file


def test_certificates_are_checked_and_names_too_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    own = str(certificate(tmp_path, SECRET))
    tls = {
        "security.protocol": "SSL",
        "ssl.truststore.location": own,
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": own,
        "ssl.keystore.type": "PEM",
        "ssl.key.password": SECRET,
    }
    context = of(tls)["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1
    anyone = of(tls | {"ssl.endpoint.identification.algorithm": ""})["ssl_context"]
    assert (anyone.verify_mode, anyone.check_hostname) == (ssl.CERT_REQUIRED, False)
    for wrong in ({"ssl.key.password": "other"}, {"ssl.key.password": ""}):
        with pytest.raises(UsageError, match=r"ssl.key.password") as caught:
            of(tls | wrong)
        assert SECRET not in str(caught.value)


def test_the_clients_log_is_shut_where_it_shows_passwords() -> None:
    """At DEBUG kafka-python logs its configuration and each request of a login."""
    assert cluster.Cluster is not None
    for name in ("kafka.admin.client", "kafka.net.connection"):
        assert logging.getLogger(name).getEffectiveLevel() >= logging.INFO
