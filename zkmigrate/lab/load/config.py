"""Read and write the configuration of a load run: one JSON file that all kinds share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.kafka_login import PLAINTEXT, KafkaLogin
from zkmigrate.lab.login import OPEN, Login

KAFKA_KINDS = ("producer", "consumer", "metadata")
MOVE_KINDS = (*KAFKA_KINDS, "raw", "tenant")
KINDS = (*MOVE_KINDS, "samples")


class LoadConfigError(LabError):
    """A load configuration that cannot be read or that has a wrong value."""


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port of ``host:port``. Raises ValueError for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not an address. Needed: host:port")
    return host, int(port)


def _address(text: str) -> str:
    parse_address(text)
    return text


Address = Annotated[str, AfterValidator(_address)]
_Finite = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Step = tuple[_Finite, _Finite]
"""One step of a plan: the duration in seconds, and the rate per second during the step."""


@dataclass(frozen=True)
class LoadConfig:
    """The addresses that the load connects to, and the amount of load.

    Rates are per second over all clients of a kind, except ``raw_rate``, which is per dest host. bootstrap:
    Kafka's ``host:port,…`` list. raw_hosts: the client address of each dest host, ``host:port``.
    tenant_servers: source's client addresses. cluster_zookeeper: the connect string, with chroot, of the
    ensemble that ``samples`` reads in addition to the brokers; "" reads only the brokers.

    produce_plan: steps that replace ``produce_rate``. After the last step, the last rate stays; with
    ``produce_repeat`` the plan begins again.

    raw_burst: how many creates are sent together, so that several are in flight when a connection breaks.
    raw_in_flight: the largest number of unanswered creates per host. notices: the znode under which Kafka
    writes notices of changed settings. One more client deletes old notices there; "" deletes none.

    metadata_create_every: each change whose number is a multiple of this creates a topic. Other changes alter
    a setting of a recent topic. metadata_in_flight: the largest number of changes at once, each for a
    different topic. metadata_sets: replica lists (broker ids) for every second new topic, used in turn.

    kafka_login: how clients log in to Kafka. raw_login, tenant_login: how these kinds log in to ZooKeeper.
    login: the same for ``samples``, for notices and for listings.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    bootstrap: str = ""
    replication_factor: PositiveInt = 3
    min_insync: PositiveInt = 2
    topics: tuple[str, ...] = ("load-a", "load-b")
    partitions: PositiveInt = 6
    produce_rate: PositiveFloat = 100.0
    produce_plan: tuple[Step, ...] = ()
    produce_repeat: bool = False
    record_bytes: PositiveInt = 200
    group: str = "load"
    metadata_rate: PositiveFloat = 1.0
    metadata_create_every: PositiveInt = 5
    metadata_in_flight: PositiveInt = 1
    metadata_sets: tuple[tuple[PositiveInt, ...], ...] = ()
    cluster_zookeeper: str = ""
    raw_hosts: dict[str, Address] = field(default_factory=dict)
    raw_root: str = "/kafka/zkmigrate-raw"
    raw_rate: PositiveFloat = 60.0
    raw_burst: PositiveInt = 4
    raw_in_flight: PositiveInt = 16
    notices: str = ""
    tenant_servers: tuple[Address, ...] = ()
    tenant_root: str = "/other"
    tenant_rate: PositiveFloat = 60.0
    kafka_login: KafkaLogin = PLAINTEXT
    login: Login = OPEN
    raw_login: Login = OPEN
    tenant_login: Login = OPEN
    tenant_large_bytes: PositiveInt = 900 * 1024
    session_timeout_ms: PositiveInt = 18_000
    flush_deadline_s: PositiveFloat = 120.0
    drain_deadline_s: PositiveFloat = 90.0

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def write(self, path: Path) -> None:
        path.write_text(self.to_json() + "\n")


def parse_plan(text: str) -> tuple[Step, ...]:
    """Return the steps of a plan such as ``60:100,30:200``: seconds and rate of each step.

    Raises LoadConfigError.
    """
    try:
        steps = [tuple(float(word) for word in step.split(":")) for step in text.split(",")]
        return TypeAdapter(tuple[Step, ...]).validate_python(steps)
    except (ValueError, ValidationError):
        raise LoadConfigError(
            f"produce plan {text!r} is not possible. Needed: SECONDS:RATE, for each step, with commas "
            "between, as in 60:100,30:200,60:50; each number above 0"
        ) from None


def parse_config(text: str, origin: str) -> LoadConfig:
    """Return the load configuration in a JSON text.

    origin: the file's name for error messages. Raises LoadConfigError for unknown keys and wrong types, so
    that a misspelled rate does not silently become the default.
    """
    try:
        return TypeAdapter(LoadConfig).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        seen = f", seen {first['input']!r}" if key else ""
        raise LoadConfigError(": ".join(filter(None, (origin, key, first["msg"]))) + seen) from error


def load_config(path: Path) -> LoadConfig:
    """Read ``load.json``. Raises LoadConfigError if the file cannot be read or is not valid."""
    try:
        text = path.read_text()
    except OSError as error:
        raise LoadConfigError(f"{path}: {error.strerror}") from error
    return parse_config(text, str(path))
