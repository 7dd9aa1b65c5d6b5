"""``reassign.adapt`` in the inventory: a throttle whose rates follow the load."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from zkmigrate.throttle.values import LEAST, MOST, Rate, Settings

_BytesS = Annotated[int, Field(ge=LEAST, le=MOST)]
_Limit = Annotated[float, Field(gt=0, le=3_600_000)]


class BrokerCap(BaseModel):
    """What one broker can send and receive."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Annotated[int, Field(ge=0, le=2**31 - 1)]
    cap_bytes_s: _BytesS


class Adapt(BaseModel):
    """How the rates follow the load. ``reassign.throttle_bytes_s`` is where they begin.

    tick_s: seconds between two decisions; Kafka evens a rate out over 11 s. interfaces: of each host, where
    the route to its address does not tell. The other keys are those of :class:`Settings`; a rate takes only
    the steps floor, floor x raise_factor and so on, so that few different ones are ever sent.
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
    interfaces: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9._@-]{1,15}$")], ...] = ()

    @property
    def disks_count(self) -> bool:
        """Whether a limit concerns the brokers' disks. Else a host may have none that the kernel counts."""
        return self.busy_limit is not None or self.await_limit_ms is not None

    def settings(self) -> Settings:
        """The controller's settings. UsageError where the keys do not go together."""
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
    """At most some hundred rates. A rate that rises by the factor lands on the next one."""
    found = [floor]
    while (above := math.floor(found[-1] * factor)) <= most:
        found.append(above)
    return tuple(found)
