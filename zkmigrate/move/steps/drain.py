"""What: wait until no request is outstanding on dest, read source's zxid Z, then wait until every dest host
has applied Z.

Why now: with clients refused no new request is sent, and every request already sent must be on dest before
the cut. The order matters: up to 39 transactions followed a Z that was read while requests were outstanding.
Z is read once, because source continues for its other tenants and dest would never have its newest zxid.

Clients may notice: nothing more than at the fence.

Way back: nothing was changed.

Proof: outstanding is 0 on every dest host, then every dest zxid is at least Z.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.hosts.facts.status import Drain, drain
from zkmigrate.move.facts.dest_status import unanswered
from zkmigrate.move.facts.records import Drained
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import claim, each, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict, Waiting
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.facts.ensemble import source_view

DRAIN_DEADLINE_S = 3.0


@dataclass(frozen=True)
class DrainFacts:
    """The outstanding requests of dest, and zxids of both ensembles.

    before: the outstanding requests of each dest host; not read again once there are none. leader, z:
    source's leader and its zxid, read after that; None while a request is outstanding. after: the zxid of
    each dest host, read after Z.
    """

    before: dict[str, Reading[Drain]]
    leader: str | None
    z: int | None
    after: dict[str, Reading[Drain]]


class DrainStep(Reads[DrainFacts]):
    id = "drain"
    title = "Drain outstanding requests"

    def observe(self, c: Context, look: Look) -> DrainFacts:
        hosts = c.inventory.dest_names
        if "z" in c.kept:
            after = look.each(hosts, lambda host: drain(look, host))
            return DrainFacts({}, c.kept["leader"], c.kept["z"], after)
        before = look.each(hosts, lambda host: drain(look, host))
        if not all(isinstance(r, Seen) and r.value.outstanding == 0 for r in before.values()):
            return DrainFacts(before, None, None, {})
        view = source_view(c.inventory, look)
        z = view.leading.zxid if view.leading is not None else None
        return DrainFacts(before, view.leader, z, look.each(hosts, lambda host: drain(look, host)))

    def check(self, c: Context, f: DrainFacts) -> Verdict:
        for readings in (f.before, f.after):
            if unread := unanswered("drain.answer", readings):
                return Blocked(unread)
        busy = {
            h: r.value.outstanding for h, r in f.before.items() if isinstance(r, Seen) and r.value.outstanding
        }
        if busy:
            return Waiting(
                "no request is outstanding on dest",
                f"outstanding requests: {each(busy)}",
                DRAIN_DEADLINE_S,
                0.02,
            )
        if f.z is None:
            return Waiting("source's leader answers", f"leader: {f.leader or 'none'}", DRAIN_DEADLINE_S, 0.05)
        zxids = {h: r.value.zxid for h, r in f.after.items() if isinstance(r, Seen)}
        behind = {h: format_zxid(z) for h, z in zxids.items() if z < f.z}
        if behind:
            return Waiting(
                "every dest host has source's zxid",
                f"Z {format_zxid(f.z)}, behind: {each(behind)}",
                DRAIN_DEADLINE_S,
                0.02,
                keep={"z": f.z, "leader": f.leader},
            )
        findings = tuple(
            claim(
                "drain.applied",
                "the dest host has applied every transaction up to Z",
                True,
                target=host,
                seen=format_zxid(zxid),
                needed=f"at least {format_zxid(f.z)}",
            )
            for host, zxid in zxids.items()
        )
        return Done(findings, Drained(f.z, f.leader, zxids).encode())


MEANINGS = meanings(
    """
    drain.applied: A dest host has not applied everything up to the last zxid of source. Cause: The host still
    applies received transactions. To do: Wait. If this does not end, check the host's disk.

    drain.answer: The newest zxid of a dest host is not known. Cause: Its client port or zkm-host does not
    answer. To do: Find out why, then resume.
    """
)
