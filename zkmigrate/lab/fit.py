"""Choose the settings of a demo for a machine of a given speed.

All functions are pure. The slower the machine, the longer are sessions and leases, and the lower is the load.
The base values are those of a run under load on the machine of our published figures; they are scaled by the
slowness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zkmigrate.inventory.inventory import Policy as Defaults
from zkmigrate.lab.judge import Policy
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.spec import LabSpec

START_S = 0.7
"""The seconds that three ZooKeepers need to start together on the machine of our published figures.

The three starts take 1.3 s of processor time on two cores.
"""
ROUND_TRIP_MS = 1.5
"""The milliseconds of a ZooKeeper write on the machine of our published figures."""

ACK_GAP_S, TENANT_GAP_S = 10.0, 5.0
"""The longest allowed gaps in seconds on that machine, for the producer and for the other tenant.

Three JVMs that start beside the brokers delay a producer.
"""
WINDOW_OVER_FLOOR = 12.0
"""The longest allowed window, as a multiple of the time that three participants need to start alone.

Multiples of 2 to 7 were measured.
"""
_MOST = 8.0
_LEAST_LOAD = 1 / 16
_LONGEST_SESSION_S = 90.0
_FASTER = 1.25
"""The power of the slowness with which sessions and leases grow.

An idle lab takes a third of a core, so a machine of half the speed has less than half left for a move.
"""


@dataclass(frozen=True)
class Speed:
    """The measured speed of a machine.

    start_s: seconds to start three ZooKeepers at once. round_trip_ms: milliseconds for a write to one of
    them.
    """

    start_s: float
    round_trip_ms: float


@dataclass(frozen=True)
class Fit:
    """The settings of a demo. `slowness` is 1 on the machine of our published figures."""

    slowness: float = 1.0

    @property
    def session_timeout_ms(self) -> int:
        """The brokers' session timeout in milliseconds, a whole number of seconds."""
        seconds = min(_LONGEST_SESSION_S, LabSpec.session_timeout_ms / 1000 * self.slowness**_FASTER)
        return int(seconds) * 1000

    @property
    def load(self) -> float:
        """The fraction of the full load to run. The brokers' work for it slows a small machine most."""
        return max(_LEAST_LOAD, self.slowness**-2)

    def tick_time_ms(self, session_timeout_ms: int) -> int:
        """Return ZooKeeper's tick in milliseconds for these sessions, which last 20 ticks at most."""
        return max(LabSpec.tick_time_ms, -(-session_timeout_ms // 20))

    def rates(self) -> dict[str, float]:
        """Return rates and deadlines as fields of `LoadConfig`."""
        slower = {
            name: getattr(LoadConfig, name) * self.load
            for name in ("produce_rate", "metadata_rate", "raw_rate", "tenant_rate")
        }
        longer = {
            name: getattr(LoadConfig, name) * self.slowness
            for name in ("flush_deadline_s", "drain_deadline_s")
        }
        return {**slower, **longer}

    def policy(self, session_timeout_ms: int) -> dict[str, Any]:
        """Return the section `policy` of the inventory.

        T is the session timeout. The lease of the cut is at most a sixth of T, and the lease of the fence at
        most a third, well below the time of a window, but never shorter than the defaults.
        """
        defaults, timeout_s = Defaults(), session_timeout_ms / 1000
        lease, longer = defaults.lease, self.slowness**_FASTER
        cut_ms = max(lease.cut_ttl_ms, min(lease.cut_ttl_ms * longer, session_timeout_ms / 6))
        fence_ms = max(lease.fence_ttl_ms, min(lease.fence_ttl_ms * longer, session_timeout_ms / 3))
        return {
            "lease": {
                "fence_ttl_ms": int(fence_ms),
                "cut_ttl_ms": int(cut_ms),
                "renew_every_ms": int(cut_ms * lease.renew_every_ms / lease.cut_ttl_ms),
            },
            "open_limit_s": round(max(10.0, min(10.0 * self.slowness, timeout_s / 2)), 1),
            "way_back_s": round(
                max(defaults.way_back_s, min(defaults.way_back_s * self.slowness, timeout_s / 3)), 1
            ),
            "step_deadline_s": round(defaults.step_deadline_s * self.slowness),
        }

    def judge(self) -> Policy:
        """Return the limits by which the run is judged."""
        return Policy(
            ack_gap_limit_s=round(ACK_GAP_S * self.slowness, 1),
            tenant_gap_limit_s=round(TENANT_GAP_S * self.slowness, 1),
        )


AS_MEASURED = Fit()
"""The settings for the machine of our published figures."""


def fit(speed: Speed) -> Fit:
    """Return the settings for a machine of this speed.

    The slowness is at least 1, as on the machine of our published figures. It is at most 8, because a demo
    makes no sense on a slower machine.
    """
    # A ZooKeeper's write waits for the disk, so only a very slow disk makes it the larger of the two.
    slowness = max(speed.start_s / START_S, speed.round_trip_ms / ROUND_TRIP_MS / 4)
    return Fit(round(min(_MOST, max(1.0, slowness)), 2))


def describe(speed: Speed, chosen: Fit, spec: LabSpec) -> str:
    """Return a line of text with the measurement and the chosen settings."""
    lease = chosen.policy(spec.session_timeout_ms)["lease"]
    return (
        f"this machine starts three ZooKeepers in {speed.start_s:.1f} s ({START_S:g} s on the machine of our "
        f"figures). It writes to one in {speed.round_trip_ms:.0f} ms ({ROUND_TRIP_MS:g} ms). So: "
        f"sessions {spec.session_timeout_ms / 1000:g} s, load {chosen.load:.0%}, "
        f"lease {lease['cut_ttl_ms'] / 1000:.1f} s, limits of the judge x {chosen.slowness:g}"
    )
