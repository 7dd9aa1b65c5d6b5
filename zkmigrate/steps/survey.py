"""What: read the whole subtree on source and the newest transaction on every disk, once.

Why now: it costs time in proportion to the tree; the window then reads only what came since.

Clients may notice: nothing; it only reads.

Way back: nothing was changed by this step.

Proof: source's subtree and every dest disk could be read without error, source's leader counts the dest hosts
as learners, and the smallest session timeout leaves time for a way back.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.facts.disk import durable_tail
from zkmigrate.facts.ensemble import leader_mntr, learners, source_view
from zkmigrate.facts.ownership import Ownership, from_json, to_json
from zkmigrate.facts.subtree import source_ownership
from zkmigrate.facts.window import LOOK_MOVES, unknown
from zkmigrate.model.change import Applied, Changes
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.finding import Finding, claim
from zkmigrate.model.look import Look
from zkmigrate.model.step import Blocked, Context, Done, Hazard, Verdict, Way
from zkmigrate.rules.window import deadlines, expected_way_back_s
from zkmigrate.steps.cursors import cursor_of
from zkmigrate.steps.cursors import to_json as cursor_json
from zkmigrate.zkdata.errors import ZkDataError
from zkmigrate.zkdata.tail import Tail
from zkmigrate.zkdata.txnlog import Cursor

# FENCE to SEAL took 1.0 s at best where this was measured; less time than this is no window at all.
LEAST_TO_SEAL_S = 1.0


@dataclass(frozen=True)
class SurveyFacts:
    """leader: source's leader; learners: how many it counts; ownership with the cursor in the leader's log;
    tails: newest durable transaction of every dest host."""

    leader: str
    learners: int | None
    ownership: Reading[tuple[Ownership, Cursor | None]]
    tails: dict[str, Reading[Tail]]


class SurveyStep:
    """See the module."""

    id = "survey"
    title = "Read the subtree and the disks"
    hazard = Hazard.READ_ONLY

    def observe(self, c: Context, look: Look) -> SurveyFacts:
        source, dest = c.inventory.source, c.inventory.dest
        view = source_view(c.inventory, look)
        if view.leader is None:
            return SurveyFacts("", None, Unknown("failed", f"source has no leader: {view.modes()}"), {})
        mntr = leader_mntr(look, view.leader)

        def tail(host: str) -> Reading[Tail]:
            try:
                cursor = cursor_of(c, host) if "survey" in c.records else None
                return Seen(durable_tail(look, host, dest.data_dir, dest.txn_dir, cursor))
            except (HostError, ZkDataError) as error:
                return Unknown("failed", str(error))

        count = learners(mntr.value) if isinstance(mntr, Seen) else None
        chroot, known = c.inventory.kafka.chroot, _known(c, view.leader)
        read = source_ownership(look, view.leader, source.data_dir, source.txn_dir, chroot, known)
        return SurveyFacts(view.leader, count, read, look.each(c.inventory.dest_names, tail))

    def check(self, c: Context, f: SurveyFacts, way: Way) -> Verdict:
        if way is Way.BACK:
            return Done()
        findings = _readable(c, f)
        if any(x.blocks for x in findings) or not isinstance(f.ownership, Seen):
            return Blocked(findings)
        state, cursor = f.ownership.value
        cursors = {h: cursor_json(r.value.cursor) for h, r in f.tails.items() if isinstance(r, Seen)}
        record = {
            "leader": f.leader,
            "learners": f.learners,
            "ownership": to_json(state),
            "cursors": {**cursors, f.leader: cursor_json(cursor)},
            "smallest_timeout_ms": state.smallest_timeout_ms,
        }
        return Done(findings, record)

    def plan(self, c: Context, f: SurveyFacts, target: str) -> Changes:
        return ()

    def undo(self, c: Context, f: SurveyFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()


def _known(c: Context, leader: str) -> tuple[Ownership, Cursor] | None:
    """What an earlier survey of this run (the rehearsal's) read from the same leader."""
    earlier = c.records.get("survey", {})
    cursor = cursor_of(c, leader) if earlier.get("leader") == leader else None
    return None if cursor is None else (from_json(earlier["ownership"]), cursor)


def _readable(c: Context, f: SurveyFacts) -> tuple[Finding, ...]:
    findings = [unknown("survey.tail", h, r) for h, r in f.tails.items() if not isinstance(r, Seen)]
    if not isinstance(f.ownership, Seen):
        findings.append(unknown("survey.subtree", f.leader or "source", f.ownership))
        return tuple(findings)
    state, _ = f.ownership.value
    findings.append(
        claim(
            "survey.learners",
            "source's leader counts its learners",
            f.learners is not None and f.learners >= len(c.inventory.dest.hosts),
            seen=str(f.learners),
            needed=f"at least {len(c.inventory.dest.hosts)}",
            moves=LOOK_MOVES,
        )
    )
    timeout = state.smallest_timeout_ms
    if timeout is None or c.rehearsal:
        return tuple(findings)
    way_back = expected_way_back_s(c)
    limits = deadlines(timeout / 1000, way_back)
    findings.append(
        claim(
            "survey.way-back",
            "the smallest session timeout leaves time for a way back",
            limits.start_back > LEAST_TO_SEAL_S,
            seen=f"timeout {timeout} ms, way back {way_back:.1f} s as rehearsed: it would have to start "
            f"{limits.start_back:.1f} s after FENCE",
            needed=f"more than {LEAST_TO_SEAL_S:g} s, to reach SEAL in",
            moves=(
                "rehearse again on a quieter machine: zkmigrate rollback --to rehearse, then run",
                "raise zookeeper.session.timeout.ms and restart the brokers (the roll does)",
            ),
        )
    )
    return tuple(findings)
