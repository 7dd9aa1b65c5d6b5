"""Sampling: what a run records in passing, for its report and the live view; no decision rests on it.

A playbook says what is asked and how answers are told; ``runbook/engine/samples.py`` records them.
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
    """For a run without samples."""


Note: TypeAlias = Callable[[str, Body], None]
"""Takes the kind of a sample and its body, as of now."""

_OLD_S = 3.0


@dataclass(frozen=True)
class Question:
    """A question asked every ``every_s`` seconds. kind: of the sample. ask: gives its body, None for no
    sample; an error means no sample too."""

    kind: str
    every_s: float
    ask: Callable[[], Body | None]


class View(Protocol):
    """How samples are shown on a screen. Times are seconds on the clock that dates the samples. hosts: those
    with a line of their own."""

    def take(self, at: float, kind: str, body: Body) -> None:
        """Take in a sample of any kind."""

    def head(self, hosts: Collection[str], now: float) -> tuple[str, bool] | None:
        """A line above the hosts, and whether it tells of trouble; None for no line."""

    def host(self, host: str, hosts: Collection[str], now: float) -> str:
        """What is known of a host, or empty."""

    def troubled(self, host: str) -> bool:
        """Whether the newest sample tells of trouble with a host."""


@dataclass(frozen=True)
class Sampling:
    """What is sampled of one system. view: one for each screen. canary: the kind of its samples, and what
    writes into the system while clients may notice the run: ``module:name`` of a function of the inventory
    that gives ``site.sampler.Canary`` or None; ``Look.produced`` tells its records to steps. heard: the kind
    of sample, the request of the steps whose answers are sampled, and the body of an answer. report: what a
    report says of it; one sampling of a playbook at most has it."""

    questions: Callable[[Inventory, Look], tuple[Question, ...]]
    view: Callable[[], View]
    canary: tuple[str, str] | None = None
    heard: tuple[str, type[Request[Any]], Callable[[Any], Body]] | None = None
    report: SampleReport | None = None


def span(seconds: float) -> str:
    """A duration on a screen."""
    seconds = max(0.0, seconds)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def age(seconds: float) -> str:
    """How old a sample is, where that matters."""
    return f" ({span(seconds)} old)" if seconds >= _OLD_S else ""
