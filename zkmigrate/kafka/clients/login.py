"""Log in to Kafka: kafka-python's settings for TLS and SASL, and the exchange on a connection of our own.

Format: Kafka protocol guide, "SASL Authentication Sequence" (KIP-43, KIP-152).
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from zkmigrate import secret
from zkmigrate.credentials import tls_context
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.inventory.login import KafkaClient

Settings: TypeAlias = Mapping[str, Any]
"""kafka-python's settings ``security_protocol``, ``ssl_context`` and ``sasl_…``; empty for plain text."""
Login: TypeAlias = Callable[[], Settings]
"""Returns the settings for a new connection, with secrets that are read now. Raises SecretError."""

_LOG = logging.getLogger("kafka")
_LOG.addHandler(logging.NullHandler())  # errors are reported in readings
_LOG.setLevel(logging.INFO)  # kafka-python logs passwords at the level DEBUG


def login_of(inventory: Inventory) -> Login:
    """Return how to log in to the brokers of an inventory."""
    client = inventory.kafka.client if inventory.has("kafka") else None
    return lambda: settings(client, "kafka.client")


def settings(client: KafkaClient | None, key: str) -> Settings:
    """Return kafka-python's settings. key: the section's key in the inventory. Raises SecretError."""
    if client is None:
        return {}
    found: dict[str, Any] = {"security_protocol": client.protocol}
    if client.tls:
        found["ssl_context"] = tls_context(client, key)
    if client.sasl:
        assert client.password is not None
        found["sasl_mechanism"] = client.mechanism
        found["sasl_plain_username"] = client.user
        found["sasl_plain_password"] = secret.read(client.password, f"{key}.password")
    return found


def secure(sock: socket.socket, address: str, settings: Settings) -> socket.socket:
    """Begin TLS on a connection if the settings say so. Raises OSError."""
    context: ssl.SSLContext | None = settings.get("ssl_context")
    return sock if context is None else context.wrap_socket(sock, server_hostname=address)


def authenticate(ask: Callable[[int, int, bytes], bytes], settings: Settings) -> None:
    """Log in with SASL if the settings say so.

    ask: sends a request of this API key, version and body, and returns the body of the answer. Raises
    ValueError if the broker refuses, and what ``ask`` raises.
    """
    mechanism = settings.get("sasl_mechanism")
    if mechanism is None:
        return
    user = f"the login of {settings['sasl_plain_username']} with {mechanism}"
    hello = ask(SaslHandshakeRequest.API_KEY, 1, SaslHandshakeRequest(mechanism=mechanism).encode(version=1))
    offered = SaslHandshakeResponse.decode(hello, version=1)
    if offered.error_code:
        raise ValueError(
            f"the broker offers {', '.join(offered.mechanisms) or 'no mechanism'}, not {mechanism}"
        )
    exchange = get_sasl_mechanism(mechanism)(**settings)
    while not exchange.is_done():
        request = SaslAuthenticateRequest(exchange.auth_bytes())
        answer = SaslAuthenticateResponse.decode(
            ask(SaslAuthenticateRequest.API_KEY, 0, request.encode(version=0)), version=0
        )
        if answer.error_code:
            raise ValueError(f"the broker refused {user}: {answer.error_message or answer.error_code}")
        try:
            exchange.receive(answer.auth_bytes)
        except KeyError:
            raise ValueError(f"the broker refused {user}: malformed answer") from None
    if not exchange.is_authenticated():
        raise ValueError(f"the broker did not prove that it knows the password of {user}")
