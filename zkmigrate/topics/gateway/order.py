"""The orders that a run gives to the gateway on a host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from zkmigrate.runbook.model.change import HostChange

GATEWAY = "gateway"
"""The channel to the gateway on a host."""
GatewayVerb: TypeAlias = Literal["route", "settle", "hold", "unhold", "seal", "unseal", "go"]


@dataclass(frozen=True)
class GatewayOrder(HostChange):
    """An order that a run sends to the gateway on a host.

    The gateway remembers the operation id, so that an order that is sent twice takes effect once. The fields
    order, app, to, hold and ttl_ms are the arguments of ``zkmigrate gateway order``.
    """

    host: str
    order: GatewayVerb
    app: str
    to: str = ""
    hold: str = ""
    ttl_ms: int = 0
    verb = "order"
    expect = "^done: "
    channel = GATEWAY

    @property
    def command(self) -> str:
        words = ("zkmigrate", "gateway", "order", "--config", "CONFIG", "--as", "N", self.order, "RUN.OPID")
        return " ".join((*words, self.app, *self.options()))

    def arguments(self) -> tuple[str, ...]:
        return (self.order, self.app, f"to={self.to}", f"hold={self.hold}", f"ttl_ms={self.ttl_ms}")

    def options(self) -> tuple[str, ...]:
        """Return the options that follow the application in ``zkmigrate gateway order``."""
        told = {"--to": self.to, "--hold": self.hold, "--ttl-ms": str(self.ttl_ms) if self.ttl_ms else ""}
        return tuple(word for option, value in told.items() if value for word in (option, value))

    def describe(self) -> str:
        more = [f"to {self.to}"] if self.to else []
        more += [f"for at most {self.ttl_ms} ms"] if self.ttl_ms else []
        return " ".join((f"send the gateway an order: {self.order} {self.app}", *more))
