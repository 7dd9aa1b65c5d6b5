"""The section ``reassign.adapt`` of the inventory: a throttle whose rates follow the load."""

from __future__ import annotations

import math
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from zkmigrate.kafka.rates import LEAST, MOST, Rate, Settings

_BytesS = Annotated[int, Field(ge=LEAST, le=MOST)]
_Limit = Annotated[float, Field(gt=0, le=3_600_000)]
_Interfaces = tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9._@-]{1,15}$")], ...]
_Disks = tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9._!-]{1,64}$")], ...]
_URL = r"^http://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/?&=%-]*)?$"


class BrokerCap(BaseModel):
    """The bytes per second that one broker can send, and that it can receive."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Annotated[int, Field(ge=0, le=2**31 - 1)]
    cap_bytes_s: _BytesS


class Exporter(BaseModel):
    """The address of an exporter that serves Prometheus text about one broker's host.

    disks, interfaces: the disks and interfaces of this host; they replace those of :class:`Adapt`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Annotated[int, Field(ge=0, le=2**31 - 1)]
    url: Annotated[str, Field(pattern=_URL, max_length=400)]
    disks: _Disks = ()
    interfaces: _Interfaces = ()

    @field_validator("url")
    @classmethod
    def _names_a_port(cls, url: str) -> str:
        """Refuse a URL whose address or port is invalid. Raises ValueError."""
        if urlsplit(url).port == 0:
            raise ValueError("port 0 is not a valid port")
        return url


class Adapt(BaseModel):
    """How the rates follow the load; they begin at ``reassign.throttle_bytes_s``.

    tick_s: seconds between two decisions; more than 11, because Kafka averages a rate over 11 s.
    source: where the load is read: from ``/proc`` by ssh, or from the ``exporters``, which serve node
    exporter's metrics.
    interfaces: network interfaces of each host, if the route to its address does not show them.
    disks: the disks of the log directories, as exporters name them.

    The other keys are those of :class:`Settings`. A rate takes only the steps floor, floor x raise_factor and
    so on, so that few different rates are ever sent.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    cap_bytes_s: _BytesS
    caps: tuple[BrokerCap, ...] = ()
    percent: Annotated[int, Field(ge=1, le=100)] = 80
    floor_bytes_s: _BytesS = 1_000_000
    raise_factor: Annotated[float, Field(ge=1.2, le=4)] = 1.25
    busy_limit: Annotated[float, Field(gt=0, le=1)] | None = 0.9
    await_limit_ms: _Limit | None = None
    latency_limit_ms: _Limit | None = None
    keep_ticks: Annotated[int, Field(ge=0, le=100)] = 1
    pause_ticks: Annotated[int, Field(ge=2, le=100)] = 3
    end_within_s: Annotated[float, Field(ge=60, le=31_536_000)] = 86_400.0
    raise_to_end: bool = False
    tick_s: Annotated[float, Field(ge=12, le=600)] = 15.0
    source: Literal["proc", "prometheus"] = "proc"
    exporters: tuple[Exporter, ...] = ()
    disks: _Disks = ()
    interfaces: _Interfaces = ()

    @property
    def disks_count(self) -> bool:
        """Whether a limit concerns the brokers' disks.

        If none does, the disks of a host need not be known.
        """
        return self.busy_limit is not None or self.await_limit_ms is not None

    def source_wrong(self) -> str:
        """Return why the load cannot be read with these keys, or an empty string."""
        if self.source == "proc":
            extra = [key for key in ("exporters", "disks") if getattr(self, key)]
            return (
                f"{extra[0]} needs source: prometheus (needed: this source, or no {extra[0]})"
                if extra
                else ""
            )
        if not self.exporters:
            return "source is prometheus, and exporters is empty (needed: id and url for each broker)"
        ids = [one.id for one in self.exporters]
        if twice := sorted({id for id in ids if ids.count(id) > 1}):
            return f"exporters names broker {twice[0]} more than once (needed: one url for each broker)"
        for one in self.exporters:
            if not (one.interfaces or self.interfaces):
                return f"no interfaces for the exporter of broker {one.id} (needed: such as [eth0])"
            if self.disks_count and not (one.disks or self.disks):
                needed = "such as [sda], or busy_limit: null"
                return f"no disks for the exporter of broker {one.id} (needed: {needed})"
        return ""

    def settings(self) -> Settings:
        """Return the settings of the rate control. Raises UsageError if the keys contradict each other."""
        caps = {one.id: Rate(one.cap_bytes_s, one.cap_bytes_s) for one in self.caps}
        most = max((self.cap_bytes_s, *(cap.leader for cap in caps.values())))
        return Settings(
            floor=self.floor_bytes_s,
            cap=Rate(self.cap_bytes_s, self.cap_bytes_s),
            caps=caps,
            percent=Rate(self.percent, self.percent),
            keep_ticks=self.keep_ticks,
            raise_factor=self.raise_factor,
            busy_limit=self.busy_limit,
            await_limit_ms=self.await_limit_ms,
            latency_limit_ms=self.latency_limit_ms,
            pause_ticks=self.pause_ticks,
            end_within_s=self.end_within_s,
            raise_to_end=self.raise_to_end,
            steps=_steps(self.floor_bytes_s, self.raise_factor, most),
        )


def _steps(floor: int, factor: float, most: int) -> tuple[int, ...]:
    """Return the allowed rates, a few hundred at most; each is the previous rate times the factor."""
    found = [floor]
    while (above := math.floor(found[-1] * factor)) <= most:
        found.append(above)
    return tuple(found)
