"""The sampler: looks at brokers and ensembles now and then while a run goes on, for the report alone.

It decides nothing and stops nothing. Each question has a thread of its own, so that a silent ZooKeeper host
does not keep the brokers from being asked; the connections are not those of the steps or the watch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from zkmigrate.engine.samples import Samples
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.kafka.clients.produce import Ack, Late
from zkmigrate.model.fact import Absent, Reading, Seen
from zkmigrate.model.look import KafkaView, Look
from zkmigrate.zookeeper.data.words import Srvr
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.facts.ensemble import view

ENSEMBLES_S = 1.0
BROKERS_S = 0.5
PRODUCED_S = 1.0
_MORE_PER_BROKER_S = 0.01
_UNCHANGED_S = 5.0
_WHY = 200


@dataclass(frozen=True)
class Question:
    """``ask`` looks and notes what it saw, every so many seconds."""

    name: str
    every_s: float
    ask: Callable[[], None]


class Sampler:
    """Asks its questions from ``begin`` until ``close``."""

    def __init__(self, questions: tuple[Question, ...]) -> None:
        self._questions = questions
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Start asking."""
        for question in self._questions:
            work = partial(self._repeat, question)
            thread = threading.Thread(target=work, name=f"sample-{question.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stop, and wait for what is being asked; not for a host that keeps silent."""
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=5.0)

    def _repeat(self, question: Question) -> None:
        while True:
            with suppress(Exception):  # what fails in an unforeseen way is a sample less, never a run's end
                question.ask()
            if self._over.wait(question.every_s):
                return


def ensembles(hosts: Collection[str], look: Look, samples: Samples) -> Question:
    """Mode and zxid of these ZooKeeper hosts."""

    def ask() -> None:
        asked = samples.now()
        servers = {host: _server(reading) for host, reading in view(look, hosts).servers.items()}
        samples.note_at(asked, "ensembles", {"servers": servers})

    return Question("ensembles", ENSEMBLES_S, ask)


def _server(reading: Reading[Srvr]) -> list[str]:
    if isinstance(reading, Seen):
        return [reading.value.mode, format_zxid(reading.value.zxid)]
    return ["not serving" if isinstance(reading, Absent) else reading.cause]


def brokers(count: int, ask_all: Callable[[], Mapping[str, float | str]], samples: Samples) -> Question:
    """A round trip to every broker. ask_all: broker → seconds it took, or why there was no answer."""

    def ask() -> None:
        asked = samples.now()
        answers = ask_all()
        ms = {name: round(a * 1000, 2) for name, a in answers.items() if isinstance(a, float)}
        silent = {name: a[:_WHY] for name, a in answers.items() if isinstance(a, str)}
        samples.note_at(asked, "brokers", {"ms": ms, "silent": silent})

    return Question("brokers", BROKERS_S + _MORE_PER_BROKER_S * count, ask)


class Canary(Protocol):
    """What sends records: ``clients.produce.ProduceCanary``."""

    topic: str

    def begin(self) -> None: ...
    def rest(self) -> None: ...
    def close(self) -> None: ...
    def taken(self) -> tuple[Sequence[Ack], Sequence[Late]]: ...


class Produced:
    """Lets the produce canary send while one of ``stages`` is walked, and notes what came of it."""

    def __init__(self, canary: Canary, stages: Container[str], samples: Samples) -> None:
        self._canary = canary
        self._stages = stages
        self._samples = samples

    def question(self) -> Question:
        """For the sampler."""
        return Question("produce", PRODUCED_S, self._ask)

    def close(self) -> None:
        """Stop sending, and note the last of it; once nobody asks any more."""
        self._canary.close()
        self._note()

    def _ask(self) -> None:
        if self._samples.stage in self._stages:
            self._canary.begin()
        else:
            self._canary.rest()
        self._note()

    def _note(self) -> None:
        acks, late = self._canary.taken()
        if not acks and not late:
            return
        now = self._samples.now()
        took: dict[str, list[list[object]]] = {}
        for ack in acks:
            entry = [ack.broker, round((now - ack.at) * 1000, 1), round(ack.took_s * 1000, 2)]
            took.setdefault(str(ack.partition), []).append(entry)
        waits = [[d.home, d.partition, round(now - d.since, 2), d.why[:_WHY]] for d in late]
        self._samples.note_at(now, "produce", {"topic": self._canary.topic, "acks": took, "late": waits})


class KafkaNotes:
    """Notes the cluster as the steps see it: when something about it has changed, and now and then."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._last: tuple[float, dict[str, object]] | None = None

    def __call__(self, reading: Reading[KafkaView]) -> None:
        if not isinstance(reading, Seen):
            return
        partitions = reading.value.partitions
        body: dict[str, object] = {
            "controller": reading.value.controller,
            "brokers": sorted(reading.value.brokers),
            "partitions": len(partitions),
            "under": sum(len(p.isr) < len(p.replicas) for p in partitions),
            "offline": sum(p.leader < 0 for p in partitions),
        }
        now = self._samples.now()
        if self._last is None or self._last[1] != body or now - self._last[0] >= _UNCHANGED_S:
            self._last = (now, body)
            self._samples.note("kafka", body)


def note_phases(samples: Samples, statuses: Mapping[str, Reading[HostStatus]]) -> None:
    """The phases of the hosts in the window, as the watch sees them."""
    hosts = {h: [r.value.phase, r.value.served_s] for h, r in statuses.items() if isinstance(r, Seen)}
    samples.note("phases", {"hosts": hosts})
