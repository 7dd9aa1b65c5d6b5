"""Read the listeners of a broker from server.properties, as KafkaConfig does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ENDPOINT = re.compile(r"(?P<name>[^:/]+)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
PLAINTEXT = "PLAINTEXT"


@dataclass(frozen=True)
class Listener:
    """An address that a broker listens on.

    host: "" for all addresses. protocol: the security protocol by the broker's own map, in capitals; the
    listener's name if the map lacks it.
    """

    name: str
    host: str
    port: int
    protocol: str


def listeners(properties: Mapping[str, str]) -> tuple[Listener, ...]:
    """Return the listeners in their order.

    Without ``listeners`` the keys of old releases count, and without those port 9092 on all addresses.
    """
    protocols = _protocols(properties)
    text = properties.get("listeners", "").strip()
    if not text:
        host, port = properties.get("host.name", "").strip(), properties.get("port", "").strip()
        text = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port or '9092'}"
    found = []
    for item in text.split(","):
        match = _ENDPOINT.fullmatch(item.strip())
        if match is None or not 0 < int(match["port"]) < 65536:
            continue
        name = match["name"].upper()
        host = match["v6"] or match["host"] or ""
        found.append(Listener(name, host, int(match["port"]), protocols.get(name, (name, ""))[0]))
    return tuple(found)


def for_clients(properties: Mapping[str, str]) -> Listener | None:
    """Return the listener by which a client without SASL and TLS reaches this broker, or None.

    The listener that brokers use among themselves is preferred, because every host reaches it.
    """
    control = properties.get("control.plane.listener.name", "").strip().upper()
    inner = properties.get("inter.broker.listener.name", "").strip().upper()
    usable = [one for one in listeners(properties) if one.protocol == PLAINTEXT and one.name != control]
    return next((one for one in usable if one.name == inner), usable[0] if usable else None)


def _protocols(properties: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    key = "listener.security.protocol.map"
    pairs = (item.partition(":") for item in properties.get(key, "").split(",") if ":" in item)
    return {name.strip().upper(): (protocol.strip().upper(), key) for name, _, protocol in pairs}
