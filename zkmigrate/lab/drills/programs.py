"""The drill programs there are, in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """``python -m zkmigrate.lab.drills.NAME``, which leaves ``result.json`` in the directory it is given.

    usual_s: what it takes on two cores, for what is said to be left before it has ever run here. limit_s:
    past it the program is ended, and has not held. drill, words: where its name is not its module's, or it
    is a part of what that module plays.
    """

    name: str
    what: str
    usual_s: int
    limit_s: int
    drill: str = ""
    words: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """What ``python -m`` is given."""
        return f"zkmigrate.lab.drills.{self.drill or self.name}"


PROGRAMS = (
    Program("cuts", "the cut-over up to CHECK and back, again and again under load", 900, 5400),
    Program("start_order", "disks that differ: the safe order, deaths in it, and the wrong order", 600, 3600),
    Program("roll_faults", "up to the cut-over: refused, walked back from each step, disturbed", 2400, 7200),
    Program("retired", "a move in which one of three brokers dies and is retired", 420, 3600),
    Program(
        "window_faults", "a cut-over for each fault at each phase, but silent hosts", 2400, 10800,
        words=("--only", "^(?!silent-)"),
    ),
    Program(
        "window_silent", "a cut-over for each kind of silence of a host at each phase", 3600, 14400,
        drill="window_faults", words=("--only", "^silent-"),
    ),
    Program("after_open", "back to source behind the open door, with what dest did replayed", 240, 1800),
    Program("versions", "whole moves between the versions that are called drilled", 1200, 7200),
)  # fmt: skip
