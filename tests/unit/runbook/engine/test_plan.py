"""Plans, diffs and runbooks hold no value of a setting that is named like a secret."""

from __future__ import annotations

import pytest

from zkmigrate.runbook.engine.plan import without_secrets


@pytest.mark.parametrize(
    "content",
    [
        "ssl.keystore.password=topsecret",
        "ssl.keystore.key=-----BEGIN PRIVATE KEY-----topsecret",
        "ssl.keystore.key=-----BEGIN PRIVATE KEY----- \\\n topsecret \\\n topsecret",
        "delegation.token.master.key=topsecret",
        "superDigest=super:topsecret",
        "sasl.kerberos.keytab=topsecret",
        "zookeeper.jaas=topsecret",
        'sasl.jaas.config=org.example.Module required \\\n  username="a" password="topsecret";',
        'sasl.jaas.config=org.example.Module required \\\r\n  username="a" \\\r\n  password="topsecret";',
        '  org.example.Module required username="a" password="topsecret";',
        "  org.example.Module required password='topsecret and more';",
        '  org.example.Module required password="top\\"secret";',
        "KAFKA_OPTS=-Xmx1g -Djavax.net.ssl.keyStorePassword=topsecret -Da=b",
        'JVMFLAGS="-Dzookeeper.DigestAuthenticationProvider.superDigest=super:topsecret"',
        "#ssl.key.password = topsecret",
        "user_admin_secret: topsecret",
    ],
)
def test_a_secret_is_hidden_wherever_it_stands(content: str) -> None:
    shown = without_secrets(f"a=1\n{content}\nb=2\n".encode())
    assert "secret" not in shown.replace("_secret", "")
    assert "(hidden)" in shown
    assert shown.startswith("a=1\n")
    assert shown.endswith("\nb=2\n")


def test_what_is_no_secret_stays_as_it_is() -> None:
    content = (
        "zookeeper.connect=a:2181/kafka\nssl.keystore.location=/etc/k.jks\nlog.cleaner.dedupe=1\n"
        "delegation.token.max.lifetime.ms=1\nlistener.name.x=\\\n  y\nnode.id=3\n"
        "ssl.keyStore.passwordPath=/etc/zookeeper/password\nsecret.file.path=/etc/s\n"
    )
    assert without_secrets(content.encode()) == content
