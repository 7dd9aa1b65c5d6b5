"""What: compare both clusters once more: log ends, all records written since the step arm, and groups'
commits.

Why now: nothing can write on either cluster, so everything that is equal now stays equal until the
applications are opened.

Clients may notice: they still wait.

Way back: nothing was changed.

Proof: the log ends are equal and have not changed since the step drain, and the commits are equal. The
records written since the step arm are equal in offset, timestamp, key, value and headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict
from zkmigrate.runbook.model.step_record import known, needed
from zkmigrate.topics.mirror.questions import CompareCommits, CompareRecords, GroupPair
from zkmigrate.topics.topic_move.arm_step import Compared, equal_records, ranges_to_compare
from zkmigrate.topics.topic_move.facts import (
    Armed,
    Copiers,
    Drained,
    Ends,
    Gateways,
    both_ends,
    by_part,
    copiers,
    forward,
    gateways,
)
from zkmigrate.topics.topic_move.rules import (
    cannot_read,
    check_commits,
    check_copiers_report,
    check_leases,
    check_source_ends,
    part_name,
)
from zkmigrate.topics.topic_move.section import move_of, switched


@dataclass(frozen=True)
class ProveFacts:
    """Facts for the step prove.

    compared: the comparison of the records that were written since the step arm.
    """

    gateways: Gateways
    ends: Reading[Ends]
    compared: Compared
    groups: Reading[Mapping[str, GroupPair]]
    copiers: Copiers


class ProveStep(Reads[ProveFacts]):
    id = "prove"
    title = "Prove that both clusters are equal"

    def observe(self, c: Context, look: Look) -> ProveFacts:
        topics, pair = switched(c.inventory), forward(c)
        ends = both_ends(c, look)
        armed = known(Armed, c)
        done = by_part(armed.compared) if armed else {}
        most = move_of(c.inventory).topic_move.proved
        ranges = ranges_to_compare(done, ends.value, most) if isinstance(ends, Seen) else {}
        return ProveFacts(
            gateways(c, look),
            ends,
            look.ask(CompareRecords(*pair, ranges)) if ranges else Seen({}),
            look.ask(CompareCommits(*pair, topics.topics, topics.groups)),
            copiers(c, look, move_of(c.inventory).topic_move.target),
        )

    def check(self, c: Context, f: ProveFacts) -> Verdict:
        if f.gateways.unknown:
            return Blocked(f.gateways.unknown)
        if wrong := (*check_leases(f.gateways), *check_copiers_report(f.copiers)):
            return Blocked(wrong)
        if not isinstance(f.ends, Seen):
            return Blocked((cannot_read("ends", f.ends),))
        drained = by_part(needed(Drained, c).ends)
        if wrong := check_source_ends(drained, f.ends.value):
            return Blocked(wrong)
        apart = [part_name(part) for part, one in f.ends.value.items() if not one.equal]
        held, seen = equal_records(f.compared)
        return Done.unless_blocked(
            (
                claim(
                    "switch.prove-ends",
                    "both logs of every partition have equal ends",
                    not apart,
                    seen=few(apart) or f"{len(f.ends.value):,} partitions",
                    needed="equal ends",
                ),
                claim(
                    "switch.prove-records",
                    "the records written since the step `arm` are equal, where both clusters still have them",
                    held,
                    seen=seen,
                    needed="the same offsets, timestamps, keys, values and headers",
                ),
                check_commits(f.groups),
                claim(
                    "switch.prove-copiers",
                    "no copier runs",
                    not f.copiers.running,
                    seen=f"a copier runs on {few(f.copiers.running)}" if f.copiers.running else "none",
                    needed=f"{f.copiers.unit} stopped on every mirror host",
                ),
            )
        )


MEANINGS = meanings(
    """
    switch.prove-ends: A partition ends at different offsets on the two clusters. Cause: Another client wrote
    to one of them. To do: Let the run roll back. Find the client that wrote.

    switch.prove-copiers: A copier to target runs again. Cause: Somebody started it, or an earlier order to
    start it arrived late. To do: Let the run roll back. Find out who started it.

    switch.prove-records: Records differ between the clusters, or could not be read. Cause: Another client
    wrote on target, a broker does not respond, or retention deletes records faster than they are compared. To
    do: Let the run roll back. Run zkmigrate mirror compare to see the first difference. If retention is the
    cause, raise retention.ms and retention.bytes on both clusters.
    """
)
