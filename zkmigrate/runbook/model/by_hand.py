"""By hand: what a person types, checks and decides when the tool cannot be used.

``runbook/byhand/`` makes the boxes of a step from its changes. A step's ``by_hand`` adds the checks around
them and what a hand does less well. :class:`Manual` holds what the page says around the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Way

STOPPED = "read what the host said; mend it and run the step again, or walk back"
WALK_BACK = "walk back"
"""As ``Block.otherwise``: the page adds the name of the way back from here."""


@dataclass(frozen=True)
class Block:
    """One fenced block, pasted at once. hosts: whom it concerns. expect: what it must print, in words.
    otherwise: what to do when it prints something else."""

    hosts: tuple[str, ...]
    text: tuple[str, ...]
    expect: str = ""
    otherwise: str = STOPPED
    way: Way = Way.FORWARD


class Sheet(Protocol):
    """The changes of one step, to be made into boxes of bash. Lines may call the functions of
    ``runbook/byhand/hand.sh`` and of the manual."""

    @property
    def inventory(self) -> Inventory: ...
    @property
    def rehearsal(self) -> bool: ...

    def hosts(self, way: Way) -> tuple[str, ...]:
        """The targets that are hosts, in walking order: on the way back the last comes first."""

    def waves(self, way: Way) -> tuple[Block, ...]:
        """One box for the n-th change of every target; changes on clusters in boxes behind them."""

    def alone(self, host: str, way: Way, made: Mapping[str, str] = ...) -> tuple[Block, ...]:
        """Every change of one host in a box of its own. made: path of a file written there → the local file
        in which an earlier box put its content."""

    def on_clusters(self, way: Way) -> tuple[Block, ...]:
        """The changes on clusters, as lines of the cluster's own tool."""


Boxes = Callable[[Sheet], tuple[Block, ...]]


@dataclass(frozen=True)
class ByHand:
    """How a step is done by hand. needs: what must be true before it. weaker: what the tool does there and a
    hand does not. forward / back: its boxes. alone: hosts are changed one after the other, each with a
    section of its own. last: the host to change last, from what can be seen now; empty where unknown."""

    needs: str = ""
    weaker: str = ""
    forward: Boxes = lambda s: s.waves(Way.FORWARD)
    back: Boxes = lambda s: s.waves(Way.BACK)
    alone: bool = False
    last: Callable[[Inventory, Look], str] = lambda _inventory, _look: ""


@runtime_checkable
class DoneByHand(Protocol):
    """A step that adds instructions to those made from its changes."""

    by_hand: ByHand


def of(step: object) -> ByHand:
    """A step's own instructions; without any, its changes are all."""
    return step.by_hand if isinstance(step, DoneByHand) else ByHand()


_FIRST = """
Use this page when the tool cannot be used. The first choice is always `zkmigrate resume` or `rollback`. Never
both at once.

- A box is pasted whole into **one bash**. Better: `step NAME` runs the boxes of a step as they stand
  here, one after the other. It ends at the first command that fails. `back NAME` runs the way back of a step.
- **When a command fails, paste nothing more** before you know why: read what it said, mend it and run the
  step again, or walk back.
- A change of a cluster may be sent twice: it leaves what it leaves sent once.
- What has to be remembered is kept in the file `kept`. Terminal lost? The boxes of *Prepare* again.
"""

_RELEASE = """
When you stop working by hand, so that the tool need not wait. It then goes on from where the hosts are:
`zkmigrate resume --run-id {run} --journal-lost forward`, or `back`.
"""


Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class GoNoGo:
    """A page to print and sign, as plain text or Markdown without table cells. title: what is done. before:
    the step before which it is signed. must: what must be true, and who says so. figures: measured and
    calculated figures with their units, from what can be seen now. no_return: each point of no return, and
    what holds from then on. people: pairs of roles with name and phone. signed: who signs."""

    title: Callable[[Inventory], str]
    before: str
    must: Rows
    figures: Callable[[Context, Look], Rows]
    no_return: Callable[[Inventory], Rows]
    people: Rows
    signed: tuple[str, ...]


@dataclass(frozen=True)
class Manual:
    """What the page of a runbook says around its steps, in Markdown.

    first: what to read before anything else. functions: bash functions that only look. known: lines that set
    their variables; the page itself sets ``DEST``, the hosts that keep the lock. prepare: behind the boxes
    that prepare. release: before the box that returns the hosts to the tool (``{run}``). end: the last line.
    window: before the steps of a window (``{line}``, ``{stage}``, ``{last}``). phases: what each phase of a
    window means to somebody who arrives in the middle. turns: ``{name}`` in ``phases`` → the step from which
    the way back starts; ``{stage}`` there is the stage that opens the door. go_no_go: the page to sign, if
    any.
    """

    first: str = _FIRST
    functions: str = ""
    known: Callable[[Context], tuple[str, ...]] = lambda _context: ()
    prepare: str = ""
    release: str = _RELEASE
    end: Callable[[Inventory], str] = lambda _inventory: ""
    window: str = ""
    phases: str = ""
    turns: Mapping[str, str] = field(default_factory=dict)
    go_no_go: GoNoGo | None = None
