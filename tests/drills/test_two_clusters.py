"""Two Kafka clusters of one source, moved one after the other, each to a dest ensemble of its own.

Both clusters are under load during both moves, at the chroots ``/kafka-a`` and ``/kafka-b``. Dest has to be
empty before the join, so the clusters cannot share one. Nobody may notice the move of the other cluster: its
brokers keep their sessions, registrations and controller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.drills.labs import Chain, Play, finish_load
from tests.drills.roll_site import require
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.judge.gaps import ack_gaps, longest_s
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.json_lines import load_recording
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import of_cluster, runner_for
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.shape import Shape
from zkmigrate.lab.spec import LONG_SESSIONS
from zkmigrate.lab.wait import TimedProgress

pytestmark = pytest.mark.drill

MINUTES = 15
KINDS = ("producer", "consumer", "metadata")
FLOWING_S, MOVE_S, TRIES = 120.0, 900.0, 4
RATES = {"produce_rate": 30.0, "metadata_rate": 0.5, "drain_deadline_s": 300.0}
SHAPE = {
    "ensembles": [
        {"name": "source"}, {"name": "dest-a", "empty": True}, {"name": "dest-b", "empty": True}
    ],
    "clusters": [
        {"name": f"kafka-{x}", "ensemble": "source", "chroot": f"/kafka-{x}", "brokers": [{}, {}]}
        for x in "ab"
    ],
}  # fmt: skip
MOVES = {"kafka-a": "dest-a", "kafka-b": "dest-b"}
"""The clusters in the order of their moves, each with its dest ensemble."""


@dataclass
class TwoClusters:
    """One lab with two clusters under load. homes: the ensemble that each cluster uses now."""

    lab: Lab
    directory: Path
    loads: dict[str, LoadRunner]
    homes: dict[str, str] = field(default_factory=lambda: dict.fromkeys(MOVES, "source"))

    def move(self, cluster: str) -> str:
        """Move a cluster, and compare what the other one had before with what it has now."""
        (other,) = MOVES.keys() - {cluster}
        before, began = self._owned(other), time.monotonic_ns()
        folder = self.directory / cluster
        write_inventory(self.lab, folder / "migration.yml", moved=(cluster, MOVES[cluster]))
        operator = Operator(self.lab, folder, cluster)
        operator.through("cutover", "run", "--until", "cutover", limit_s=MOVE_S, tries=TRIES, progress=print)
        operator.through("rest", "resume", limit_s=MOVE_S, tries=TRIES, progress=print)
        self.homes[cluster] = MOVES[cluster]
        ended = time.monotonic_ns()
        for load in self.loads.values():
            load.wait_flowing(KINDS, FLOWING_S, since_ns=ended)
        after = self._owned(other)
        require(after == before, f"{other} had {before}, now {after}")
        gaps = ", ".join(f"{one} {self._gap_s(one, began, ended)} s" for one in MOVES)
        return f"{len(before)} ephemerals of {other} are the same; longest time without acks: {gaps}"

    def _owned(self, cluster: str) -> dict[str, tuple[int, int]]:
        """Return owner and czxid of the cluster's ephemerals, by path."""
        top = self.lab.cluster(cluster).chroot
        with self.lab.zookeeper(self.homes[cluster]) as client:
            paths = [f"{top}/brokers/ids/{id}" for id in client.get_children(f"{top}/brokers/ids")]
            stats = {path: client.exists(path) for path in (*paths, f"{top}/controller")}
        return {path: (stat.ephemeralOwner, stat.czxid) for path, stat in stats.items() if stat}

    def _gap_s(self, cluster: str, began: int, ended: int) -> float | None:
        acks = load_recording(self.loads[cluster].directory, "producer").of("ack")
        return longest_s(ack_gaps((ack for ack in acks if began <= ack["mono_ns"] <= ended), ended))

    def judge(self, cluster: str) -> str:
        """End the load of a cluster and judge it."""
        return finish_load(self.loads[cluster], {"lost": 0, "duplicated": 0})


CASES = {
    "first": ("kafka-a moves to dest-a, to the end", "kafka-b keeps its ephemerals on source"),
    "second": ("kafka-b moves to dest-b, to the end", "kafka-a keeps its ephemerals on dest-a"),
    "load-first": ("what kafka-a's clients recorded over both moves", "lost 0, duplicated 0"),
    "load-second": ("what kafka-b's clients recorded over both moves", "lost 0, duplicated 0"),
}
"""What is done and what is expected, by name, in order."""


@pytest.fixture(scope="module")
def chain(directory: Path) -> Iterator[Chain]:
    spec = replace(LONG_SESSIONS, shape=Shape.from_json(SHAPE))
    with ExitStack() as stack:
        lab = stack.enter_context(Lab.up(spec, TimedProgress()))
        loads = {}
        for cluster in MOVES:
            history = directory / cluster / "history"
            loads[cluster] = runner_for(lab, history, **of_cluster(spec, cluster), **RATES)
            stack.callback(loads[cluster].kill)
            loads[cluster].start(KINDS)
            loads[cluster].wait_flowing(KINDS, FLOWING_S)
        both = TwoClusters(lab, directory, loads)
        first, second = MOVES
        acts = (
            lambda: both.move(first), lambda: both.move(second),
            lambda: both.judge(first), lambda: both.judge(second),
        )  # fmt: skip
        yield Chain(dict(zip(CASES, acts, strict=True)))


@pytest.mark.parametrize("name", CASES)
def test_two_clusters_of_one_source_move_in_turn(chain: Chain, name: str, play: Play) -> None:
    play(*CASES[name], lambda: chain.play(name))
