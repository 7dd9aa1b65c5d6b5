"""By hand: what a person types, reads and decides where the tool cannot be used, as values beside the steps.

The page (``runbook/``) makes the boxes of a step from its changes. What has to be looked at around them, and
what a hand does less well, is the step's own: its ``by_hand``. What the page says around the steps is the
runbook's: :class:`Manual`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.look import Look
from zkmigrate.model.step import Context, Way

STOPPED = "read what the host said; mend it and run the step again, or walk back"
WALK_BACK = "walk back"
"""In ``Block.otherwise``: the page names the way back from here behind it."""


@dataclass(frozen=True)
class Block:
    """One fenced block: what is pasted at once.

    hosts: whom it is about. expect: what it must say, in words. otherwise: what to do if it says something
    else.
    """

    hosts: tuple[str, ...]
    text: tuple[str, ...]
    expect: str = ""
    otherwise: str = STOPPED
    way: Way = Way.FORWARD


class Sheet(Protocol):
    """The changes of one step, to be made into boxes.

    Lines are bash. They use the functions of the page: those of ``byhand/hand.sh`` and the manual's own.
    """

    @property
    def inventory(self) -> Inventory: ...
    @property
    def rehearsal(self) -> bool: ...

    def hosts(self, way: Way) -> tuple[str, ...]:
        """The targets that are hosts, in the order of the walk: going back, the last one comes first."""
        ...

    def waves(self, way: Way) -> tuple[Block, ...]:
        """The n-th change of every target at once, one box each; those on clusters in boxes behind them."""
        ...

    def alone(self, host: str, way: Way, made: Mapping[str, str] = ...) -> tuple[Block, ...]:
        """Every change of one host in a box of its own. made: path of a file that is written there → the
        local file in which a box before has put its content."""
        ...

    def on_clusters(self, way: Way) -> tuple[Block, ...]:
        """The changes on clusters, as lines of the cluster's own tool."""
        ...


Boxes = Callable[[Sheet], tuple[Block, ...]]


@dataclass(frozen=True)
class ByHand:
    """How a step is done by hand.

    needs: what must be so before it. weaker: what the tool does there that a hand does not. forward / back:
    its boxes. alone: hosts are changed one after the other, and each has a leg of its own. last: the host
    that is changed last, from what can be seen now; empty where that is not known.
    """

    needs: str = ""
    weaker: str = ""
    forward: Boxes = lambda s: s.waves(Way.FORWARD)
    back: Boxes = lambda s: s.waves(Way.BACK)
    alone: bool = False
    last: Callable[[Inventory, Look], str] = lambda _inventory, _look: ""


@runtime_checkable
class DoneByHand(Protocol):
    """A step that says more of itself than its changes do."""

    by_hand: ByHand


def of(step: object) -> ByHand:
    """How this step is done by hand: by its changes alone where it says nothing."""
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
    """What a page to print and sign says, as plain text or Markdown, without cells of a table.

    title: what is done. before: the step before which it is signed. must: what must be true, and who says so.
    figures: what was measured or reckoned, and the seconds, from what can be seen now. no_return: each point
    of no return, and what holds from then on. people: pairs of roles with a name and a phone. signed: who
    signs.
    """

    title: Callable[[Inventory], str]
    before: str
    must: Rows
    figures: Callable[[Context, Look], Rows]
    no_return: Callable[[Inventory], Rows]
    people: Rows
    signed: tuple[str, ...]


@dataclass(frozen=True)
class Manual:
    """What the page says of a runbook around its steps; each text is Markdown.

    first: what is read before anything else. functions: bash functions that only look, as text. known: the
    lines that set what they use; the page itself sets ``DEST``, the hosts that keep the lock. prepare: behind
    the boxes that prepare. release: before the box that gives the hosts back (``{run}``). end: the page's
    last line. window: before the steps of a window (``{line}``, ``{stage}``, ``{last}``). phases: what each
    phase of a window means for whoever comes in the middle. There ``{name}`` of turns stands for the way back
    from that step, ``{stage}`` for the stage that opens the door.
    go_no_go: the page to sign, if there is one.
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
