"""What: list the subtrees that source's other tenants left on dest, and check the named ones; change nothing.

Why now: a subtree may be deleted only if no client owns, watches or has written to it on dest.

Clients may notice: nothing; every znode outside the chroots is listed, and every dest server answers wchp.

Way back: nothing was changed.

Proof: each subtree outside every chroot is listed with its size, and each named subtree with its users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.dependent import AnyDependent
from zkmigrate.move.facts.tenant_znodes import Outside, look_outside
from zkmigrate.move.questions import Node, ReadTree
from zkmigrate.move.rules.clean_up import Subtree, dest_findings, subtree_findings, subtree_of, summary
from zkmigrate.runbook.accepted import accepted
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Finding, Severity, blocking, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Reads, Verdict

Named: TypeAlias = Callable[[Inventory], tuple[str, tuple[str, ...]]]
"""A function that returns the id of the run that moved to this dest (empty for none), and the subtrees to
delete.
"""


@dataclass(frozen=True)
class CheckFacts:
    """The part of dest outside every chroot, and its subtrees.

    around: None if the inventory names no move.
    """

    around: Outside | None
    trees: tuple[Subtree, ...] = ()


class CleanUpCheckStep(Reads[CheckFacts]):
    id = "tenants"
    title = "Find what other tenants left on dest"

    def __init__(self, dependent: AnyDependent, named: Named) -> None:
        self._dependent = dependent
        self._named = named

    def observe(self, c: Context, look: Look) -> CheckFacts:
        run, _ = self._named(c.inventory)
        if not run:
            return CheckFacts(None)
        around = look_outside(c, look, self._dependent, run)
        if not isinstance(around.cut, Seen):
            return CheckFacts(around)
        cut = around.cut.value
        return CheckFacts(
            around, tuple(subtree(look, path, look.ask(ReadTree(path)), cut) for path in around.paths)
        )

    def check(self, c: Context, f: CheckFacts) -> Verdict:
        if f.around is None:
            return Done()
        _, named = self._named(c.inventory)
        common = dest_findings(f.around.cut, f.around.users)
        own = {tree.path: judge(c, f.around, tree) for tree in f.trees}
        missing = [path for path in named if path not in f.around.paths]
        matched = claim(
            "clean-up.names",
            "every entry of leftovers.subtrees is a topmost subtree of dest outside every chroot",
            not missing,
            seen=few(missing) or f"{len(named)} entries",
            needed=few(f.around.paths, 20) or "no such subtree",
            moves=("correct the entry, or remove the entry",),
        )
        if not named:
            common = tuple(replace(one, severity=Severity.WARN) for one in common)
        return Done.unless_blocked(
            (
                *accepted(c.inventory.accept, common, f.around.at),
                *(_found(tree, blocking(own[tree.path])) for tree in f.trees),
                *(finding for path in named for finding in own.get(path, ())),
                matched,
            )
        )


def subtree(look: Look, path: str, nodes: tuple[Node, ...], cut: int, *, begun: bool = False) -> Subtree:
    """Return a subtree of dest with the reasons that forbid its deletion. Parameters as for `subtree_of`."""
    parent = path.rpartition("/")[0] or "/"
    above = look.ask(ReadTree(parent, deep=False))
    return subtree_of(path, nodes, above, cut, begun=begun)


def judge(c: Context, around: Outside, tree: Subtree) -> tuple[Finding, ...]:
    """Return the findings about a subtree. A finding that a person has accepted does not block."""
    assert isinstance(around.cut, Seen)
    return accepted(c.inventory.accept, subtree_findings(tree, around.cut.value, around.users), around.at)


def _found(tree: Subtree, against: tuple[Finding, ...]) -> Finding:
    allowed = f"cannot be deleted: {few(one.id for one in against)}" if against else "can be deleted"
    return claim(
        "clean-up.found",
        "source's other tenants left nothing on dest",
        False,
        seen=f"{summary(tree)}: {allowed}",
        moves=("to delete it, add it to leftovers.subtrees",),
        target=tree.path,
        severity=Severity.WARN,
    )


MEANINGS = meanings(
    """
    clean-up.found: A subtree of dest outside every chroot, its size, and what forbids its deletion. Cause:
    The move copied all of source. This does not block. To do: To delete the subtree, add it to
    leftovers.subtrees.

    clean-up.names: An entry of leftovers.subtrees is not the top of a subtree outside every chroot. Cause:
    The entry is mistyped, the subtree is already deleted, or a broker's chroot lies in it. To do: Correct or
    remove the entry.
    """
)
