"""The sampler: asks a playbook's questions now and then while a run goes on, for its report and the screen.

It decides nothing and stops nothing. Each question has a thread of its own, so that one silent system does
not keep the others from being asked; the connections are not those of the steps or the watch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from contextlib import suppress
from functools import partial
from typing import Protocol

from zkmigrate.engine.samples import Samples
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.look import KafkaView
from zkmigrate.model.sampling import Body, Question

PRODUCED_S = 1.0
_UNCHANGED_S = 5.0


class Sampler:
    """Asks its questions from ``begin`` until ``close``, and notes the answers."""

    def __init__(self, questions: tuple[Question, ...], samples: Samples) -> None:
        self._questions = questions
        self._samples = samples
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Start asking."""
        for question in self._questions:
            work = partial(self._repeat, question)
            thread = threading.Thread(target=work, name=f"sample-{question.kind}", daemon=True)
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
                ask(question, self._samples)
            if self._over.wait(question.every_s):
                return


def ask(question: Question, samples: Samples) -> None:
    """Ask once, and note the answer with the moment at which it was asked for."""
    asked = samples.now()
    if (body := question.ask()) is not None:
        samples.note_at(asked, question.kind, body)


class Canary(Protocol):
    """What writes into a system, so that its clients' view is known. sampled: what came of it since the last
    call, as of ``now``; None for nothing."""

    def begin(self) -> None: ...
    def rest(self) -> None: ...
    def close(self) -> None: ...
    def sampled(self, now: float) -> Body | None: ...


class Produced:
    """Lets a canary send while one of ``stages`` is walked, and notes what came of it.

    kind: of its samples.
    """

    def __init__(self, kind: str, canary: Canary, stages: Container[str], samples: Samples) -> None:
        self._canary = canary
        self._stages = stages
        self._samples = samples
        self.question = Question(kind, PRODUCED_S, self._ask)

    def close(self) -> None:
        """Stop sending, and note the last of it; once nobody asks any more."""
        self._canary.close()
        if (body := self._canary.sampled(self._samples.now())) is not None:
            self._samples.note(self.question.kind, body)

    def _ask(self) -> Body | None:
        if self._samples.stage in self._stages:
            self._canary.begin()
        else:
            self._canary.rest()
        return self._canary.sampled(self._samples.now())


class Heard:
    """Notes the cluster as the steps see it: when something about it has changed, and now and then. kind: of
    the samples."""

    def __init__(self, kind: str, tell: Callable[[KafkaView], Body], samples: Samples) -> None:
        self._kind = kind
        self._tell = tell
        self._samples = samples
        self._last: tuple[float, Body] | None = None

    def __call__(self, reading: Reading[KafkaView]) -> None:
        if not isinstance(reading, Seen):
            return
        body, now = self._tell(reading.value), self._samples.now()
        if self._last is None or self._last[1] != body or now - self._last[0] >= _UNCHANGED_S:
            self._last = (now, body)
            self._samples.note(self._kind, body)
