"""What: delete the subtrees of source's other tenants on dest that the inventory names.

Why now: no client owns, watches or has written to these subtrees on dest. The content of each znode is
journaled before it is deleted.

Clients may notice: one transaction of dest for each 50 znodes.

Way back: the znodes are created again with data and ACL, parents first; existing znodes stay. Zxids, times,
versions and sequence counters begin anew, so that the subtree then counts as written on dest.

Proof: a new look finds no znode of the subtrees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.move.dependent import AnyDependent
from zkmigrate.move.facts.tenant_znodes import look_outside
from zkmigrate.move.questions import Node, ReadContents, ReadTree
from zkmigrate.move.rules.clean_up import dest_findings, next_batch
from zkmigrate.move.steps.clean_up_check import Named, judge, subtree
from zkmigrate.runbook.accepted import accepted
from zkmigrate.runbook.model.change import Applied, Changes, inverses
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Finding, blocking, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.zookeeper.changes import DEST, DeleteZnodes, mark

_JUDGED_S = 120.0
"""The maximum age, in seconds, of the reading of a subtree's users when its next batch is deleted."""


@dataclass(frozen=True)
class CleanUpFacts:
    """The next batch of znodes to delete, and the findings that forbid its deletion.

    rest: the remaining znodes of the subtree, parents before their children; empty if no named subtree is
    left. contents: the last of these znodes with their data; they form the batch. judged_at: when the users
    of dest were read, in seconds since the epoch.
    """

    rest: tuple[Node, ...] = ()
    contents: tuple[Node, ...] = ()
    findings: tuple[Finding, ...] = ()
    judged_at: float = 0.0

    @property
    def target(self) -> str:
        """The batch's name in the journal: its subtree, and the number of znodes left before it.

        The number falls with each batch. So the batch of a parent has a smaller number than those of its
        children.
        """
        return f"{self.rest[0].path}:{len(self.rest)}"


class CleanUpStep(Step[CleanUpFacts]):
    id = "delete"
    title = "Delete the named subtrees of dest"
    hazard = Hazard.REVERSIBLE

    def __init__(self, dependent: AnyDependent, named: Named) -> None:
        self._dependent = dependent
        self._named = named

    def observe(self, c: Context, look: Look) -> CleanUpFacts:
        if c.way is Way.BACK:
            return CleanUpFacts()
        return self._continued(c, look) or self._from_the_top(c, look)

    def _continued(self, c: Context, look: Look) -> CleanUpFacts | None:
        """Return the batch after the last batch that was sent.

        Returns None if the last batch is not deleted yet, or if nothing is left.
        """
        rest: tuple[Node, ...] = c.kept.get("rest", ())
        judged_at = c.kept.get("judged_at", 0.0)
        if not rest or look.wall() - judged_at > _JUDGED_S or _contents(look, rest):
            return None
        rest = rest[: -len(next_batch(rest))]
        if not rest:
            return None
        c.tell(f"deleting {rest[0].path}", f"{len(rest):,} znodes remain")
        return CleanUpFacts(rest, _contents(look, rest), judged_at=judged_at)

    def _from_the_top(self, c: Context, look: Look) -> CleanUpFacts:
        """List and judge the first named subtree that still exists."""
        run, named = self._named(c.inventory)
        around = look_outside(c, look, self._dependent, run)
        nodes: tuple[Node, ...] = next(filter(None, (look.ask(ReadTree(path)) for path in named)), ())
        if not nodes:
            return CleanUpFacts()
        path = nodes[0].path
        findings = accepted(c.inventory.accept, dest_findings(around.cut, around.users), around.at)
        outside = claim(
            "clean-up.names",
            "the named subtree is a topmost subtree of dest outside every chroot",
            path in around.paths,
            seen=path,
            needed=few(around.paths, 20),
            moves=("remove the entry from leftovers.subtrees",),
        )
        if isinstance(around.cut, Seen):
            begun = any(target.rpartition(":")[0] == path for target in c.unrestored)
            tree = subtree(look, path, nodes, around.cut.value, begun=begun)
            findings += judge(c, around, tree)
        return CleanUpFacts(nodes, _contents(look, nodes), (*findings, outside), around.at)

    def check(self, c: Context, f: CleanUpFacts) -> Verdict:
        if c.way is Way.BACK:
            parents_first = sorted(c.unrestored, key=lambda target: int(target.rpartition(":")[2]))
            return Ready((parents_first[0],)) if parents_first else Done()
        if blocking(f.findings):
            return Blocked(f.findings)
        if f.rest:
            return Ready((f.target,), keep={"rest": f.rest, "judged_at": f.judged_at})
        _, named = self._named(c.inventory)
        return Done((claim("clean-up.deleted", "no named subtree remains on dest", True, seen=few(named)),))

    def plan(self, c: Context, f: CleanUpFacts, target: str) -> Changes:
        """Return the deletion of the batch. Each znode is deleted only if it has not changed since it was
        judged.
        """
        there = {node.path: node for node in f.contents if node.acl is not None}
        nodes = tuple(
            (
                node.path,
                there[node.path].data,
                tuple((one.perms, one.scheme, one.id) for one in there[node.path].acl or ()),
                mark(node),
            )
            for node in reversed(next_batch(f.rest))
            if node.path in there
        )
        return (DeleteZnodes(DEST, nodes),) if nodes else ()

    def undo(self, c: Context, f: CleanUpFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return inverses(applied)

    def forecast(self, c: Context, look: Look) -> Forecast[CleanUpFacts]:
        """Return the named subtrees as targets, because batches are known only when the step is reached."""
        return Forecast(CleanUpFacts(), self._named(c.inventory)[1])

    def basis(self, c: Context, f: CleanUpFacts) -> Mapping[str, str]:
        """Return which subtrees are deleted, as the basis of the operator's consent.

        The content of the subtrees is judged and recorded when they are deleted.
        """
        return dict.fromkeys(self._named(c.inventory)[1], "a subtree of dest")


def _contents(look: Look, rest: tuple[Node, ...]) -> tuple[Node, ...]:
    return look.ask(ReadContents([node.path for node in next_batch(rest)]))


MEANINGS = meanings(
    """
    clean-up.deleted: The run deleted these subtrees from dest. Cause: This is a note, which does not
    block. To do: Nothing.
    """
)
