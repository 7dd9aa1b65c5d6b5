"""Log the lab's own clients in to Kafka, with TLS and SASL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class KafkaLogin:
    """How a client logs in to brokers; an empty text stands for what it does not use.

    protocol: as Kafka names it, such as ``SASL_SSL``. mechanism, user, password: for SASL; the password is in
    the file of this name. ca, certificate, key: PEM files for TLS.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def librdkafka(self, bootstrap: str) -> dict[str, Any]:
        """Return the settings of a client of confluent-kafka. bootstrap: ``host:port,…``."""
        found = {
            "sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": self.secret(),
            "ssl.ca.location": self.ca, "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.key,
        }  # fmt: skip
        used = {key: value for key, value in found.items() if value}
        return {"bootstrap.servers": bootstrap, "security.protocol": self.protocol, **used}

    def kafka_python(self, bootstrap: str) -> dict[str, Any]:
        """Return the options of a client of kafka-python. bootstrap: ``host:port,…``."""
        found = {
            "sasl_mechanism": self.mechanism, "sasl_plain_username": self.user,
            "sasl_plain_password": self.secret(), "ssl_cafile": self.ca, "ssl_certfile": self.certificate,
            "ssl_keyfile": self.key,
        }  # fmt: skip
        used = {key: value for key, value in found.items() if value}
        return {"bootstrap_servers": bootstrap.split(","), "security_protocol": self.protocol, **used}

    def secret(self) -> str:
        """Return the password; an empty text without SASL."""
        return Path(self.password).read_text().removesuffix("\n") if self.password else ""


PLAINTEXT = KafkaLogin()
"""The login of a client that needs none."""
