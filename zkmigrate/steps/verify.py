"""What: look again after twice the smallest session timeout: sessions, owners, brokers, dest's quorum.

Why now: a session that did not survive shows itself only when its timeout has passed on dest.

Clients may notice: nothing; this step only reads.

Way back: nothing was changed by this step.

Proof: every broker's registration and the controller have the owner and czxid of the baseline, every
partition
is fully in sync, dest has one leader and all others follow it.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.facts.ensemble import EnsembleView, dest_view
from zkmigrate.facts.sessions import Sessions, owning_sessions
from zkmigrate.facts.window import Statuses, statuses
from zkmigrate.model.change import Applied, Changes
from zkmigrate.model.fact import Absent, Reading, Seen
from zkmigrate.model.finding import claim
from zkmigrate.model.look import KafkaView, Look, Znode
from zkmigrate.model.step import Blocked, Context, Done, Hazard, Verdict, Waiting, Way
from zkmigrate.rules.next_wave import out_of_sync
from zkmigrate.steps.check import baseline, quorum, same_ownership

TIMEOUTS = 2


@dataclass(frozen=True)
class VerifyFacts:
    """settled_for: seconds since the last dest host opened its door."""

    hosts: Statuses
    settled_for: float
    servers: EnsembleView
    owners: Reading[Sessions]
    znodes: dict[str, Reading[Znode]]
    view: Reading[KafkaView]


class VerifyStep:
    """See the module."""

    id = "verify"
    title = "Verify on dest"
    hazard = Hazard.READ_ONLY

    def observe(self, c: Context, look: Look) -> VerifyFacts:
        hosts = statuses(c, look)
        settled = min((s.uptime_s - s.phase_since for s in hosts.at.values()), default=0.0)
        servers = dest_view(c.inventory, look)
        leader = servers.leader
        if leader is None or settled < _needed_s(c):
            return VerifyFacts(hosts, settled, servers, Absent("leader"), {}, look.kafka())
        znodes = look.each(tuple(baseline(c).ephemerals), lambda path: look.znode(leader, path))
        return VerifyFacts(
            hosts,
            settled,
            servers,
            owning_sessions(look, (leader,), c.inventory.kafka.chroot),
            znodes,
            look.kafka(),
        )

    def check(self, c: Context, f: VerifyFacts, way: Way) -> Verdict:
        if way is Way.BACK:
            return Done()
        if f.hosts.unknown:
            return Blocked(f.hosts.unknown)
        if wrong := f.hosts.outside("verify", "open"):
            return Blocked(wrong)
        needed = _needed_s(c)
        if f.settled_for < needed:
            return Waiting(
                "twice the smallest session timeout has passed since OPEN",
                f"{f.settled_for:.0f} of {needed:.0f} s",
                needed + 10.0,
                1.0,
            )
        if not isinstance(f.view, Seen) or out_of_sync(f.view.value, frozenset()):
            return Waiting("every partition is fully in sync", "brokers are catching up", 120.0, 0.5)
        synced = claim(
            "verify.isr",
            "every partition is fully in sync",
            True,
            seen=f"{len(f.view.value.partitions)} partitions",
        )
        findings = (
            *quorum(c, f.servers),
            *same_ownership(baseline(c), f.owners, f.znodes, exact=False),
            synced,
        )
        return Blocked(findings) if any(x.blocks for x in findings) else Done(findings)

    def plan(self, c: Context, f: VerifyFacts, target: str) -> Changes:
        return ()

    def undo(self, c: Context, f: VerifyFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()


def _needed_s(c: Context) -> float:
    smallest = baseline(c).smallest_timeout_ms
    return TIMEOUTS * (smallest or 0) / 1000
