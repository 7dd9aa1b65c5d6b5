"""The removal of a broker under load that is disturbed, as ``reassign_faults`` disturbs moves.

``python -m zkmigrate.lab.drills.remove_faults``: each case empties broker 6, which holds four
partitions of the load, and leaves it running. The next case begins when it has been refilled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from zkmigrate.lab.cluster_site import LOADED, not_as
from zkmigrate.lab.drills.reassign_faults import (
    AWAY,
    PACE,
    POINTS,
    TARGET,
    Aim,
    Faults,
    Played,
    Point,
    Versions,
    options,
    play,
)
from zkmigrate.lab.drills.runner import directory_option, run_drill

NAME = "remove_faults"
OF_MOVES = ("target-returns", "target-dead", "disk-full", "follow")
"""Cases about the broker that is emptied here, or about the throttle alone."""


@dataclass
class RemovalFaults(Faults):
    """The cases of the removal. Broker 6 is what goes."""

    book: tuple[str, str] = ("--playbook", "kafka_remove_brokers")
    points: tuple[Point, ...] = (*POINTS[:2], Point("first-move", ("ReassignPartition", "any", 0)), POINTS[3])

    def aim(self, case: str, **pace: int) -> Aim:
        section = {"brokers": [TARGET], "shutdown": False, **PACE, **pace}
        before = {
            name: one.replicas
            for name, one in self.site.partitions().items()
            if name.rpartition("-")[0] in LOADED
        }
        return Aim(self.site.operator(case, {"removal": section}), before, self.wrong)

    def wrong(self) -> list[str]:
        """The partitions that broker 6 still holds, and those with a replica that is not in sync."""
        now = self.site.partitions()
        held = [f"{name} on {TARGET}" for name, one in now.items() if TARGET in one.replicas]
        return held + not_as(now, {name: one.replicas for name, one in now.items()})

    def ready(self) -> None:
        self.bring(AWAY)

    def cases(self) -> list[Played]:
        return [(*case[:4], True) for case in super().cases() if case[0] not in OF_MOVES]


@click.command()
@options
@directory_option(NAME)
def main(versions: Versions, only: str, directory: Path) -> None:
    """Empty a broker under load, with one fault each time."""
    run_drill(NAME, directory, lambda at, said, found: play(RemovalFaults, at, said, found, versions, only))


if __name__ == "__main__":
    main()
