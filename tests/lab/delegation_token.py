"""Create a delegation token with Kafka's own tool, and log in with it."""

from __future__ import annotations

import base64
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from zkmigrate.lab import provision
from zkmigrate.lab.lab import Lab

KAFKA = "2.8.2"
"""The release whose tools are used; they speak with newer brokers too."""
LIMIT_S = 300


@dataclass(frozen=True)
class Token:
    """A delegation token: its public name, and the secret that a client shows."""

    id: str
    hmac: str

    def other(self) -> Token:
        """Return a token of this name with another secret."""
        return replace(self, hmac=base64.b64encode(bytes(64)).decode())


def create(lab: Lab, folder: Path) -> Token:
    """Create a token of the operator's user. folder: receives the client's settings."""
    done = _run(lab, folder, None, "kafka.admin.DelegationTokenCommand", "--create",
                "--max-life-time-period", "-1", "--renewer-principal", "User:operator")  # fmt: skip
    found = re.search(r"(?m)^(\S{22})\s+(\S{80,})\s+User:operator\b", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return Token(*found.groups())


def logs_in(lab: Lab, folder: Path, token: Token) -> bool:
    """Log in with a token, and return whether the brokers answered."""
    done = _run(lab, folder, token, "kafka.admin.BrokerApiVersionsCommand")
    return done.returncode == 0 and "-> (" in done.stdout


def _run(
    lab: Lab, folder: Path, token: Token | None, tool: str, *words: str
) -> subprocess.CompletedProcess[str]:
    login = lab.kafka_login()
    user, secret, more = (
        (token.id, token.hmac, ' tokenauth="true"') if token else (login.user, login.secret(), "")
    )
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config = folder / "token-client.properties"
    config.touch(0o600)
    config.write_text(
        f"security.protocol={login.protocol}\nsasl.mechanism={login.mechanism}\n"
        f'sasl.jaas.config={module} required username="{user}" password="{secret}"{more};\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={login.ca}\ndefault.api.timeout.ms=120000\n"
    )
    jars = ":".join(map(str, provision.kafka_classpath(KAFKA)))
    bootstrap = f"{lab.host('broker1').address}:9092"
    argv = ["java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars, tool]
    argv += ["--bootstrap-server", bootstrap, "--command-config", str(config), *words]
    with lab.operator():
        return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
