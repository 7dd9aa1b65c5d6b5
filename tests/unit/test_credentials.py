"""TLS contexts of clients: the files that they need, and what is refused."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from tests.servers.secured import Certificates
from zkmigrate.credentials import tls_context
from zkmigrate.inventory.login import KafkaClient, Secret, Tls
from zkmigrate.secret import SecretError
from zkmigrate.topics.mirror.clients.pair import Pair
from zkmigrate.topics.mirror.questions import ClusterAt

KEY = "zookeeper.client.tls"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.write("one", "two")
    made.encrypt("one", "hunter2")
    return made


def wrong(tls: Tls) -> str:
    with pytest.raises(SecretError) as caught:
        tls_context(tls, KEY)
    told = str(caught.value)
    assert told.startswith(KEY)
    assert "hunter" not in told
    return told


def mine(own: Certificates, name: str, key: Path | None = None, password: Secret | None = None) -> Tls:
    return Tls(
        ca=str(own.authority),
        certificate=str(own.certificate(name)),
        key=str(key or own.key(name)),
        key_password=password,
    )


def test_names_are_checked_unless_the_inventory_says_otherwise(own: Certificates) -> None:
    checking = tls_context(mine(own, "two"), KEY)
    assert (checking.check_hostname, checking.verify_mode) == (True, ssl.CERT_REQUIRED)
    trusting = tls_context(Tls(ca=str(own.authority), verify_hostname=False), KEY)
    assert (trusting.check_hostname, trusting.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert len(trusting.get_ca_certs()) == 1, "the system's authorities are not trusted beside"


def test_a_key_that_others_may_read_is_refused(own: Certificates, tmp_path: Path) -> None:
    key = tmp_path / "two.key"
    key.write_text(own.key("two").read_text())
    key.chmod(0o640)
    assert "other accounts may use the file" in wrong(mine(own, "two", key))


def test_an_encrypted_key_needs_its_password(
    own: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKM_TEST_KEY", "hunter2")
    monkeypatch.setenv("ZKM_TEST_WRONG", "hunter3")
    encrypted = own.folder / "one.encrypted.key"
    assert tls_context(mine(own, "one", encrypted, Secret(env="ZKM_TEST_KEY")), KEY)
    assert "Needed: PEM files" in wrong(mine(own, "one", encrypted, Secret(env="ZKM_TEST_WRONG")))
    assert "Needed: PEM files" in wrong(mine(own, "one", encrypted))


def test_openssl_never_asks_the_terminal_for_a_password(
    own: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda _self, *words: given.append(words[-1]))
    tls_context(mine(own, "one"), KEY)
    assert given == [""]


def test_files_that_are_missing_or_do_not_fit_are_named(own: Certificates, tmp_path: Path) -> None:
    assert f"{KEY}.certificate, {KEY}.key: " in wrong(mine(own, "one", own.key("two")))
    (tmp_path / "text").write_text("no certificate")
    os.mkfifo(tmp_path / "pipe")
    for name, told in (("none", "No such file"), ("text", "Needed: PEM"), ("pipe", "a plain file is needed")):
        assert told in wrong(Tls(ca=str(tmp_path / name)))


def test_the_clusters_of_a_mirror_log_in_as_the_inventory_says(tmp_path: Path) -> None:
    client = KafkaClient(
        protocol="SASL_PLAINTEXT", mechanism="PLAIN", user="a", password=Secret(file=str(tmp_path / "none"))
    )
    pair = Pair(ClusterAt(("127.0.0.1:1",), client=client), ClusterAt(("127.0.0.1:1",)))
    unread = r"^clusters\[\]\.client\.password: the file .* cannot be read"
    with pytest.raises(SecretError, match=unread), pair.clusters():
        pass
