"""Define the samples that a run takes for its report and the live view. No decision depends on samples.

A playbook defines the questions and how answers are shown; ``runbook/engine/samples.py`` records them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from zkmigrate.runbook.model.look import Look, Request
from zkmigrate.runbook.model.report import SampleReport

if TYPE_CHECKING:
    from zkmigrate.inventory.inventory import Inventory

Body: TypeAlias = Mapping[str, Any]
"""A sample without its kind and times: JSON values."""


def note_nothing(_kind: str, _body: Body) -> None:
    """Discard a sample, for a run without samples."""


Note: TypeAlias = Callable[[str, Body], None]
"""A callback that records a sample, given its kind and body, with the current time."""

_OLD_S = 3.0


@dataclass(frozen=True)
class Question:
    """A question asked every ``every_s`` seconds.

    kind: the kind of its samples. ask: returns a sample's body, or None for no sample; an error means no
    sample too.
    """

    kind: str
    every_s: float
    ask: Callable[[], Body | None]


class View(Protocol):
    """The presentation of one sampling on a screen.

    Times are seconds on the clock that dates the samples. hosts: the hosts that have a line each.
    """

    def take(self, at: float, kind: str, body: Body) -> None:
        """Store a sample of any kind."""

    def head(self, hosts: Collection[str], now: float) -> tuple[str, bool] | None:
        """Return a line above the hosts and whether it reports trouble, or None for no line."""

    def host(self, host: str, hosts: Collection[str], now: float) -> str:
        """Return the text shown for a host, or an empty string."""

    def troubled(self, host: str) -> bool:
        """Return whether the newest sample reports trouble with a host."""


@dataclass(frozen=True)
class Sampling:
    """The sampling of one system.

    - view: creates the view for one screen.
    - canary: the kind of its samples, and the program that writes into the system while clients may notice
      the run. It is ``module:name`` of a function of the inventory that returns a ``site.sampler.Canary`` or
      None. ``Look.produced`` gives its records to steps.
    - heard: samples what steps ask anyway: the kind of the samples, the type of request whose answers are
      sampled, and the function that returns the body for an answer.
    - report: how a report shows the samples; at most one sampling of a playbook has it.
    """

    questions: Callable[[Inventory, Look], tuple[Question, ...]]
    view: Callable[[], View]
    canary: tuple[str, str] | None = None
    heard: tuple[str, type[Request[Any]], Callable[[Any], Body]] | None = None
    report: SampleReport | None = None


def span(seconds: float) -> str:
    """Return a duration as short text for a screen."""
    seconds = max(0.0, seconds)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def age(seconds: float) -> str:
    """Return the age of a sample as text, or an empty string if it is recent."""
    return f" ({span(seconds)} old)" if seconds >= _OLD_S else ""
