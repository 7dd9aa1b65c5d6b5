"""Sampling: what a run sees in passing, for its report and for the live view; nothing is decided by it.

A playbook says what is asked and how the answers are told. ``engine/samples.py`` records them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from zkmigrate.model.look import KafkaView, Look
from zkmigrate.model.report import Told

if TYPE_CHECKING:
    from zkmigrate.inventory.inventory import Inventory

Body: TypeAlias = Mapping[str, Any]
"""What a sample holds beside its kind and its times: JSON values."""

Note: TypeAlias = Callable[[str, Body], None]
"""Takes the kind of a sample and its body, as of now."""

_OLD_S = 3.0


@dataclass(frozen=True)
class Question:
    """A question asked every so many seconds. kind: of the sample. ask: gives its body, None for no sample;
    it may raise, which is no sample either."""

    kind: str
    every_s: float
    ask: Callable[[], Body | None]


class View(Protocol):
    """How samples are told on a screen. Times are seconds on the clock that dates the samples; hosts: those
    that have a line of their own."""

    def take(self, at: float, kind: str, body: Body) -> None:
        """Take in a sample, of whatever kind."""
        ...

    def head(self, hosts: Collection[str], now: float) -> tuple[str, bool] | None:
        """A line above the hosts, and whether it tells of trouble; None for no line."""
        ...

    def host(self, host: str, hosts: Collection[str], now: float) -> str:
        """What is known of a host; empty where nothing is."""
        ...

    def troubled(self, host: str) -> bool:
        """Whether the newest sample tells of trouble with a host."""
        ...


@dataclass(frozen=True)
class Sampling:
    """What is sampled of one system.

    view: one for each screen. canary: the kind of its samples, and what writes into the system while its
    clients may notice the run, as ``module:name`` of a function that takes the inventory and gives
    ``site.sampler.Canary``, None where the inventory wants none. heard: the kind of the samples, and what is
    noted of Kafka as steps see it. told: what a report tells of the samples; of one sampling of a playbook at
    most.
    """

    questions: Callable[[Inventory, Look], tuple[Question, ...]]
    view: Callable[[], View]
    canary: tuple[str, str] | None = None
    heard: tuple[str, Callable[[KafkaView], Body]] | None = None
    told: Told | None = None


def span(seconds: float) -> str:
    """A time as a screen tells it."""
    seconds = max(0.0, seconds)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def age(seconds: float) -> str:
    """How old a sample is, where that is worth a word."""
    return f" ({span(seconds)} old)" if seconds >= _OLD_S else ""
