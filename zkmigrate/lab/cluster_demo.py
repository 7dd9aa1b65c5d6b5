"""Run the demos of playbooks that move partitions, on six loaded brokers in three racks, and judge them.

``kafka_reassign``: broker 6 joins late. Three plans of ``zkmigrate placement`` are run one after another: add
that broker, rebalance, and add a replica for a topic.

``kafka_remove_brokers``: brokers 5 and 6 are removed. Meanwhile topics are created, and every second new
topic has a replica on one of these brokers. With ``--policy`` our CreateTopicPolicy refuses such topics.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from zkmigrate.cluster.removal.rules import POLICY
from zkmigrate.lab.cluster_site import FOREIGN, POLICY_FILE, ClusterSite, directories_left, not_as
from zkmigrate.lab.judge.claims import Claim, Verdict, truth
from zkmigrate.lab.judge.history import RunHistory, load_history
from zkmigrate.lab.judge.kafka import kafka_claims
from zkmigrate.lab.judge.latency import p99_ms
from zkmigrate.lab.judge.moving import empty_claim, late_claim, moving_claims
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.json_lines import Recording, load_recording
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.spec import Role
from zkmigrate.lab.timeline import step_spans
from zkmigrate.lab.versions import broker_logs, kafka_version
from zkmigrate.lab.wait import Progress

REASSIGN, REMOVE = "kafka_reassign", "kafka_remove_brokers"
IN_FLIGHT = 4
"""The maximum number of moves at once."""
THROTTLE = 4_000_000
LOAD: Mapping[str, Any] = {
    "record_bytes": 10_000,
    "produce_plan": ((40.0, 300.0), (3600.0, 100.0)),
    "metadata_create_every": 1,
}
"""The load: first 120 MB, so that there is something to move, and then 1 MB/s.

A topic is created every second.
"""
LOADED_WITH = 11_000
"""The number of records that must be acknowledged before the first run.

With fewer records, the brokers' free bytes are so even that a plan moves nothing.
"""
RUN_S, FLOWING_S = 1500.0, 240.0
ALL = ("--topics", "load-.*", "--partition-size-threshold", "0", "--brokers", "-2")
PLANS: Mapping[str, tuple[str, ...]] = {
    "scale": ("scale", *ALL),
    "rebalance": ("rebalance", *ALL, "--any-broker"),
    "replication": ("rebuild", "--topics", "load-b", "--brokers", "-2", "--replication", "3"),
}
"""The arguments of ``zkmigrate placement`` for each plan, in the order of the runs."""
REMOVED = (5, 6)
REMOVE_SETS: Mapping[str, Sequence[Sequence[int]]] = {
    "load-a": ((1, 2, 3), (4, 5, 6), (5, 6, 1), (6, 4, 2), (2, 3, 5), (3, 1, 6)),
    "load-b": ((5, 6), (6, 5), (1, 5), (2, 6), (3, 4), (4, 1)),
}
BORN = ((5, 1, 2), (6, 2, 3), (1, 5, 3), (2, 3, 6))
"""The replica sets for every second topic that is created during the run."""


@dataclass(frozen=True)
class Moved:
    """One finished run.

    began_ns, ended_ns: CLOCK_MONOTONIC. partitions: how many partitions the plan moves. wrong: a text for
    each partition that is not as planned afterwards.
    """

    name: str
    began_ns: int
    ended_ns: int
    partitions: int
    wrong: tuple[str, ...]


@dataclass
class ClusterDemo(ABC):
    """A demo in a lab that is up.

    directory: receives the results. limit_s: the longest allowed pause between acknowledgements, in seconds.
    """

    playbook: ClassVar[str]
    load: ClassVar[Mapping[str, Any]] = LOAD
    late: ClassVar[Collection[int]] = ()

    lab: Lab
    directory: Path
    progress: Progress
    limit_s: float = 15.0
    runs: list[Moved] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.site = ClusterSite(self.lab, self.directory, self.progress, self.load, self.late)

    def play(self) -> dict[str, Any]:
        """Start the load, run the playbook and judge the run. Return the content of ``result.json``."""
        load = self.site.load
        try:
            self.begin()
            load.start(("samples",))
            self.progress("load: 40 s at 3 MB/s, then 1 MB/s")
            self.site.wait_for_step(1, FLOWING_S)
            self.site.wait_for_records(LOADED_WITH, FLOWING_S)
            self.act()
            self.progress("load: stopping, draining the consumer to the high watermarks")
            for problem in load.finish():
                self.progress(f"load: {problem}")
        finally:
            load.kill()
        history = load_history(self.site.history)
        samples = load_recording(self.site.history, "samples")
        seen = kafka_version(broker_logs(self.lab, self.lab.names(Role.BROKER)))
        claims = (
            *kafka_claims(history, self.limit_s),
            *moving_claims(samples, self.site.sources, IN_FLIGHT, self.late_births(history)),
            *self.claims(samples),
            p99_claim(history.recording("producer"), self.runs),
            version_claim(seen, self.lab.cluster().version),
        )
        facts = {"playbook": self.playbook, "runs": [asdict(run) for run in self.runs]}
        return {**Verdict(claims).result(), **facts}

    @abstractmethod
    def begin(self) -> None:
        """Create the load's topics, and start producer and consumer."""

    @abstractmethod
    def act(self) -> None:
        """Run the playbook."""

    @abstractmethod
    def claims(self, samples: Recording, /) -> Iterator[Claim]:
        """Yield the claims that only this demo makes."""

    def late_births(self, _history: RunHistory) -> Collection[str]:
        """Return the names of the partitions that were created while brokers stopped."""
        return ()

    def start_clients(self) -> None:
        """Start producer and consumer, and wait until they work."""
        self.progress("load: producer and consumer start")
        self.site.load.start(("producer", "consumer"))
        self.site.load.wait_flowing(("producer", "consumer"), FLOWING_S)

    def start_births(self) -> None:
        """Start the process that creates a topic every second, and wait until it works."""
        self.progress("load: from here on a topic is created every second")
        self.site.load.start(("metadata",))
        self.site.load.wait_flowing(("metadata",), FLOWING_S)

    def ran(self, operator: Operator) -> tuple[int, int]:
        """Run the playbook as an operator does. Return its begin and end in ns of CLOCK_MONOTONIC."""
        began_ns = time.monotonic_ns()
        operator.through("run", "run", "--playbook", self.playbook, limit_s=RUN_S, progress=self.progress)
        return began_ns, time.monotonic_ns()

    def done(self, run: Moved) -> None:
        """Add a finished run to ``runs``, and report the run as progress."""
        self.runs.append(run)
        took_s = (run.ended_ns - run.began_ns) / 1e9
        wrong = f"{len(run.wrong)} not as planned"
        self.progress(f"{run.name}: {run.partitions} partitions in {took_s:.0f} s, {wrong}")


class ReassignDemo(ClusterDemo):
    playbook = REASSIGN
    late = (6,)

    def begin(self) -> None:
        self.progress("broker 6 stops until the cluster is to grow")
        self.site.stop_broker(6)
        self.site.create_topics()
        self.site.set_topic(*FOREIGN)
        self.start_clients()
        self.progress("broker 6 starts")
        self.site.start_broker(6)

    def act(self) -> None:
        for name, words in PLANS.items():
            planned = self.site.placement(name, *words)
            if not self.runs:  # broker 6 counts as new while it has no partitions
                self.start_births()
            operator = self.site.moves(name, throttle_bytes_s=THROTTLE, in_flight=IN_FLIGHT)
            began_ns, ended_ns = self.ran(operator)
            wrong = not_as(self.site.partitions(), planned)
            self.done(Moved(name, began_ns, ended_ns, len(planned), tuple(wrong)))

    def claims(self, _samples: Recording) -> Iterator[Claim]:
        yield planned_claim(self.runs, tuple(PLANS))


class RemoveDemo(ClusterDemo):
    playbook = REMOVE
    load: ClassVar[Mapping[str, Any]] = {**LOAD, "metadata_sets": BORN}

    left: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    late_born: tuple[str, ...] = ()
    running: tuple[int, ...] = ()
    stops: Mapping[str, Any]

    def begin(self) -> None:
        self.site.create_topics(REMOVE_SETS)
        self.site.set_topic(*FOREIGN)
        self.start_clients()
        self.start_births()

    def act(self) -> None:
        section: dict[str, Any] = {
            "brokers": [*REMOVED],
            "throttle_bytes_s": THROTTLE,
            "in_flight": IN_FLIGHT,
        }
        if POLICY in self.lab.spec.broker_options:
            section |= {"exclusion": "policy", "policy_file": POLICY_FILE}
        holding = [n for n, p in self.site.partitions().items() if set(p.replicas) & set(REMOVED)]
        operator = self.site.operator("remove", {"removal": section})
        began_ns, ended_ns = self.ran(operator)
        self.stops = next(s for s in step_spans(operator.journal) if s["name"] == "stopped.stop")
        self.progress("load: no more topics are created")
        self.site.load.stop(("metadata",))
        now = self.site.partitions()
        self.named = tuple(n for n, p in now.items() if set(p.replicas) & set(REMOVED))
        self.running = tuple(id for id in REMOVED if self.site.runs(id))
        self.left = tuple(directories_left(self.lab, REMOVED))
        short = not_as(now, {name: one.replicas for name, one in now.items()})
        self.done(Moved("remove", began_ns, ended_ns, len(holding), tuple(short)))

    def late_births(self, history: RunHistory) -> Collection[str]:
        self.late_born = tuple(born_within(history.recording("metadata"), self.stops))
        return self.late_born

    def claims(self, samples: Recording) -> Iterator[Claim]:
        yield planned_claim(self.runs, ("remove",))
        yield late_claim(samples, self.site.sources, self.late_born)
        yield empty_claim(samples, self.site.sources, REMOVED)
        left = [one for one in self.left if one.rpartition(": ")[2] not in self.late_born]
        yield gone_claim(self.running, self.named, left)


DEMOS: Mapping[str, type[ClusterDemo]] = {REASSIGN: ReassignDemo, REMOVE: RemoveDemo}


def born_within(metadata: Recording, span: Mapping[str, Any]) -> Iterator[str]:
    """Yield the partitions of topics whose creation was requested during a step. span: the step's times."""
    for made in metadata.of("op"):
        asked_ns = made.get("started_mono_ns", 0)
        if made["op"] == "create_topic" and span["start_mono_ns"] <= asked_ns <= span["end_mono_ns"]:
            yield f"{made['topic']}-0"


def gone_claim(running: Collection[int], named: Collection[str], left: Collection[str]) -> Claim:
    """Return the claim ``removed_brokers_gone`` about the brokers that a run removed.

    The claim holds if the brokers are stopped, no partition has a replica on them, and their disks have no
    partition directories. running: ids of removed brokers that run. named: partitions with a replica on one
    of them. left: partition directories on their disks, except those of topics created while the brokers
    stopped.
    """
    odd = [f"broker {id} runs" for id in running]
    odd += [f"{name} has a replica on a removed broker" for name in named]
    odd += [f"a directory is left on {name}" for name in left]
    needed = "the removed brokers are stopped, hold no replicas and have empty disks"
    held = truth(not odd, [])
    return Claim("removed_brokers_gone", not odd, held, needed, "brokers, disks", "; ".join(odd[:5]))


def version_claim(seen: str, wanted: str) -> Claim:
    """Return the claim ``kafka_version``: the version that every broker logged at its last start."""
    return Claim("kafka_version", seen, truth(seen == wanted, []), wanted, "the brokers' logs")


def planned_claim(runs: Iterable[Moved], wanted: tuple[str, ...]) -> Claim:
    """Return the claim ``sets_as_planned``: each run moved its partitions to the planned replicas, in sync.

    The claim's value is the number of partitions that each run moved. wanted: the names of the runs.
    """
    done = {run.name: run for run in runs}
    wrong = [f"{run.name}: {odd}" for run in done.values() for odd in run.wrong]
    wrong += [f"{name}: the run is missing" for name in wanted if name not in done]
    wrong += [f"{name}: nothing was planned" for name, run in done.items() if not run.partitions]
    value = {name: run.partitions for name, run in done.items()}
    needed = "every partition has its planned replicas, in order and in sync"
    return Claim("sets_as_planned", value, truth(not wrong, []), needed, "the brokers", "; ".join(wrong[:5]))


def p99_claim(producer: Recording, runs: Iterable[Moved]) -> Claim:
    """Return the claim ``produce_p99_ms``: the p99 of produce latency in each run, and outside all runs.

    The value is a figure without a limit.
    """
    acks = producer.of("ack")
    spans = {run.name: (run.began_ns, run.ended_ns) for run in runs}

    def inside(at_ns: int, span: tuple[int, int]) -> bool:
        return span[0] <= at_ns <= span[1]

    value = {
        name: p99_ms(ack for ack in acks if inside(ack["sent_mono_ns"], span)) for name, span in spans.items()
    }
    alone = [ack for ack in acks if not any(inside(ack["sent_mono_ns"], span) for span in spans.values())]
    value["outside"] = p99_ms(alone)
    held = truth(all(figure is not None for figure in value.values()), [producer.problem])
    return Claim("produce_p99_ms", value, held, "a figure", "producer.jsonl", producer.problem)
