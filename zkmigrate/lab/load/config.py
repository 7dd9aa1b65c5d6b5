"""What a load run is told: one JSON file, shared by all kinds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from zkmigrate.lab.failure import LabError

KAFKA_KINDS = ("producer", "consumer", "metadata")
KINDS = (*KAFKA_KINDS, "raw", "tenant")


class LoadConfigError(LabError):
    """``load.json`` holds something a load run cannot use."""


@dataclass(frozen=True)
class LoadConfig:
    """Where the load goes and how much of it there is.  Rates are per second over the whole kind.

    ``bootstrap`` is Kafka's ``host:port,…`` list; ``raw_hosts`` maps a dest host's name to its client
    address ``host:port``; ``tenant_servers`` are source's client addresses.  Raw creates are sent
    ``raw_burst`` at a time, so that several are in flight whenever a connection dies, and never more than
    ``raw_in_flight``.  Every ``metadata_create_every``th metadata change creates a topic, the others turn a
    setting of one of the newest; up to ``metadata_in_flight`` are asked at once, each of another topic.
    ``notices`` is the znode of Kafka's notices of changed settings: one more client beside the raw ones
    takes old ones away there; "" for none.
    """

    bootstrap: str = ""
    replication_factor: int = 3
    min_insync: int = 2
    topics: tuple[str, ...] = ("load-a", "load-b")
    partitions: int = 6
    produce_rate: float = 100.0
    record_bytes: int = 200
    group: str = "load"
    metadata_rate: float = 1.0
    metadata_create_every: int = 5
    metadata_in_flight: int = 1
    raw_hosts: dict[str, str] = field(default_factory=dict)
    raw_root: str = "/kafka/zkmigrate-raw"
    raw_rate: float = 60.0
    raw_burst: int = 4
    raw_in_flight: int = 16
    notices: str = ""
    tenant_servers: tuple[str, ...] = ()
    tenant_root: str = "/other"
    tenant_rate: float = 60.0
    tenant_large_bytes: int = 900 * 1024
    session_timeout_ms: int = 18_000
    flush_deadline_s: float = 120.0
    drain_deadline_s: float = 90.0

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def write(self, path: Path) -> None:
        path.write_text(self.to_json() + "\n")


_RATES = {"produce_rate", "metadata_rate", "raw_rate", "tenant_rate"}
_DEADLINES = {"flush_deadline_s", "drain_deadline_s"}
_NAMES = {"topics", "tenant_servers"}


def parse_config(text: str, origin: str) -> LoadConfig:
    """Read a load configuration; ``origin`` names the file in errors.

    Raises LoadConfigError for unknown keys and wrong types: a mistyped rate must not become the default.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise LoadConfigError(f"{origin}: not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise LoadConfigError(f"{origin}: seen {type(raw).__name__}, needed an object")
    known = {item.name: item.default for item in fields(LoadConfig)}
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise LoadConfigError(f"{origin}: unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return LoadConfig(**{key: _typed(origin, key, value, known[key]) for key, value in raw.items()})


def _typed(origin: str, key: str, value: Any, default: Any) -> Any:
    def refuse(needed: str) -> LoadConfigError:
        return LoadConfigError(f"{origin}: {key}: seen {value!r}, needed {needed}")

    if key == "raw_hosts":
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise refuse('an object of "name": "host:port"')
        for address in value.values():
            parse_address(address)
        return dict(value)
    if key in _NAMES:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise refuse("a list of strings")
        for address in value if key == "tenant_servers" else ():
            parse_address(address)
        return tuple(value)
    if isinstance(value, bool):
        raise refuse("a number" if not isinstance(default, str) else "a string")
    if key in _RATES | _DEADLINES:
        if not isinstance(value, int | float) or value <= 0:
            raise refuse("a number above 0")
        return float(value)
    if isinstance(default, int):
        if not isinstance(value, int) or value <= 0:
            raise refuse("a whole number above 0")
        return value
    if not isinstance(value, str):
        raise refuse("a string")
    return value


def load_config(path: Path) -> LoadConfig:
    """Read ``load.json``; raises LoadConfigError when it cannot be read or understood."""
    try:
        text = path.read_text()
    except OSError as error:
        raise LoadConfigError(f"{path}: {error.strerror}") from error
    return parse_config(text, str(path))


def parse_address(text: str) -> tuple[str, int]:
    """``host:port`` → (host, port)."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise LoadConfigError(f"address: seen {text!r}, needed host:port")
    return host, int(port)
