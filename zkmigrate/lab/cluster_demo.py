"""The demo of playbooks that move partitions: six brokers in three racks under load, judged by its records.

``kafka_reassign``: broker 6 comes late. Three plans of ``zkmigrate placement`` follow one another: scale by
that broker, rebalance, and one replica more for a topic.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from zkmigrate.lab.cluster_site import FOREIGN, ClusterSite, not_as
from zkmigrate.lab.judge.claims import Claim, Verdict, truth
from zkmigrate.lab.judge.history import load_history
from zkmigrate.lab.judge.kafka import kafka_claims
from zkmigrate.lab.judge.latency import p99_ms
from zkmigrate.lab.judge.moving import moving_claims
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.json_lines import Recording, load_recording
from zkmigrate.lab.service import log_command
from zkmigrate.lab.spec import Role
from zkmigrate.lab.versions import kafka_version
from zkmigrate.lab.wait import Progress

REASSIGN = "kafka_reassign"
PLAYBOOKS = (REASSIGN,)
IN_FLIGHT = 4
"""The cap of moves at once."""
THROTTLE = 4_000_000
LOAD: Mapping[str, Any] = {
    "record_bytes": 10_000,
    "produce_plan": ((20.0, 600.0), (3600.0, 100.0)),
    "metadata_create_every": 1,
}
"""120 MB first, so that there is something to move; then 1 MB/s. A topic is created every second."""
RUN_S, FLOWING_S = 1500.0, 240.0
ALL = ("--topics", "load-.*", "--partition-size-threshold", "0", "--brokers", "-2")
PLANS: Mapping[str, tuple[str, ...]] = {
    "scale": ("scale", *ALL),
    "rebalance": ("rebalance", *ALL, "--any-broker"),
    "replication": ("rebuild", "--topics", "load-b", "--brokers", "-2", "--replication", "3"),
}
"""What is planned, run after run: words of ``zkmigrate placement``."""


@dataclass(frozen=True)
class Moved:
    """One run. began_ns, ended_ns: CLOCK_MONOTONIC. partitions: how many the plan moves. wrong: what is not
    as planned after it, in words."""

    name: str
    began_ns: int
    ended_ns: int
    partitions: int
    wrong: tuple[str, ...]


@dataclass
class ReassignDemo:
    """The demo in a lab that is up. limit_s: the longest pause allowed between acknowledgements, seconds."""

    lab: Lab
    directory: Path
    progress: Progress
    limit_s: float = 15.0
    runs: list[Moved] = field(default_factory=list)

    def play(self) -> dict[str, Any]:
        """Load, move, judge; what ``result.json`` holds."""
        site = self.site = ClusterSite(self.lab, self.directory, self.progress, LOAD, late=(6,))
        self.progress("broker 6 stops until the cluster is to grow")
        site.stop_broker(6)
        site.create_topics()
        site.set_topic(*FOREIGN)
        self.progress("load: producer, consumer and samples start")
        site.load.start(("producer", "consumer"))
        site.load.wait_flowing(("producer", "consumer"), FLOWING_S)
        self.progress("broker 6 starts")
        site.start_broker(6)
        site.load.start(("samples",))
        try:
            self.progress("load: 20 s at 6 MB/s, then 1 MB/s")
            site.wait_for_step(1, FLOWING_S)
            for name, words in PLANS.items():
                self._run(name, words)
        finally:
            self.progress("load: stopping, draining the consumer to the high watermarks")
            for problem in site.load.finish():
                self.progress(f"load: {problem}")
        return self.result()

    def _run(self, name: str, words: tuple[str, ...]) -> None:
        """Plan, run the playbook, and compare every planned set with what brokers tell."""
        planned = self.site.placement(name, *words)
        if not self.runs:  # broker 6 counts as new as long as it holds nothing
            self.progress("load: from here on a topic is created every second")
            self.site.load.start(("metadata",))
        began_ns = time.monotonic_ns()
        operator = self.site.moves(name, throttle_bytes_s=THROTTLE, in_flight=IN_FLIGHT)
        operator.through("run", "run", "--playbook", REASSIGN, limit_s=RUN_S, progress=self.progress)
        ended_ns = time.monotonic_ns()
        wrong = not_as(self.site.partitions(), planned)
        self.runs.append(Moved(name, began_ns, ended_ns, len(planned), tuple(wrong)))
        took_s = (ended_ns - began_ns) / 1e9
        self.progress(f"{name}: {len(planned)} partitions in {took_s:.0f} s, {len(wrong)} not as planned")

    def result(self) -> dict[str, Any]:
        """What the records say."""
        history = load_history(self.site.history)
        samples = load_recording(self.site.history, "samples")
        claims = (
            *kafka_claims(history, self.limit_s),
            *moving_claims(samples, self.site.sources, IN_FLIGHT),
            planned_claim(self.runs, tuple(PLANS)),
            p99_claim(history.recording("producer"), self.runs),
        )
        logs = {host: self._log(host) for host in self.lab.names(Role.BROKER)}
        facts = {
            "playbook": REASSIGN,
            "versions": {"kafka": kafka_version(logs)},
            "runs": [asdict(run) for run in self.runs],
        }
        return {**Verdict(claims).result(), **facts}

    def _log(self, host: str) -> str:
        return self.lab.exec(host, log_command(self.lab.spec, Role.BROKER), check=False).stdout


def planned_claim(runs: Iterable[Moved], wanted: tuple[str, ...]) -> Claim:
    """sets_as_planned: by run, how many partitions moved, each with its planned set, in order and in sync."""
    done = {run.name: run for run in runs}
    wrong = [f"{run.name}: {odd}" for run in done.values() for odd in run.wrong]
    wrong += [f"{name}: not run" for name in wanted if name not in done]
    wrong += [f"{name}: nothing was planned" for name, run in done.items() if not run.partitions]
    value = {name: run.partitions for name, run in done.items()}
    needed = "each planned set, in order and in sync"
    return Claim("sets_as_planned", value, truth(not wrong, []), needed, "the brokers", "; ".join(wrong[:5]))


def p99_claim(producer: Recording, runs: Iterable[Moved]) -> Claim:
    """produce_p99_ms: of all records that were sent during a run, and of those outside all runs. A figure."""
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
