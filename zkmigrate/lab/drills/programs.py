"""The drill programs, in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """``python -m zkmigrate.lab.drills.NAME``, which leaves ``result.json`` in the directory it is given.

    usual_s: what it takes on two cores; the estimate before it has ever run here. limit_s: past it the
    program is ended, and has not held. drill, words: its module and further arguments, where it plays a part
    of that module's cases.
    """

    name: str
    what: str
    usual_s: int
    limit_s: int
    drill: str = ""
    words: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module for ``python -m``."""
        return f"zkmigrate.lab.drills.{self.drill or self.name}"


PROGRAMS = (
    Program("cuts", "the cut-over up to CHECK and back, again and again under load", 900, 5400),
    Program("start_order", "disks that differ: the safe order, kills in it, and the wrong order", 600, 3600),
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
    *(
        Program(
            f"reassign_{version}", f"moves of partitions on Kafka {version}, disturbed", 1200, 5400,
            drill="reassign_faults", words=("--kafka-version", version),
        )
        for version in ("2.8.2", "3.9.1", "4.3.1")
    ),
    Program("remove_faults", "the removal of a broker, disturbed: one lab for each Kafka", 3600, 10800),
    Program("topic_move", "topics switched to another cluster and back, and with faults", 2400, 9000),
    Program("versions", "whole moves between the versions that are called drilled", 1200, 7200),
)  # fmt: skip
