"""Readings: the result of a look at the world.

A missing tool, a timeout and an empty answer are three different facts. So a look returns :class:`Seen`,
:class:`Absent` or :class:`Unknown`, never a bare value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)

Cause: TypeAlias = Literal["timeout", "refused", "unreachable", "denied", "missing-tool", "garbled", "failed"]

NotHeard: TypeAlias = Literal["timeout", "refused", "unreachable"]
"""The causes that mean that there was no answer."""


@dataclass(frozen=True)
class Seen(Generic[T_co]):
    """A look that succeeded. value: what it found."""

    value: T_co


@dataclass(frozen=True)
class Absent:
    """A look that succeeded and proved that a file, znode or entry does not exist."""

    what: str = ""


@dataclass(frozen=True)
class Unknown:
    """A look that failed. It proves nothing, not even absence."""

    cause: Cause
    why: str

    def __str__(self) -> str:
        return f"unknown ({self.cause}): {self.why}"


Reading: TypeAlias = Seen[T_co] | Absent | Unknown
