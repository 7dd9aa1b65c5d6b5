"""Ask a playbook's questions at regular intervals during a run, for the report and the screen.

No decision depends on the samples. Each question has its own thread and connections, so that a silent system
delays no other question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from zkmigrate.runbook.engine.samples import Samples
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.look import Request
from zkmigrate.runbook.model.sampling import Body, Question

CANARY_S = 1.0
_REPEAT_S = 5.0


class Sampler:
    """Threads that ask questions from ``begin`` until ``close`` and record the answers."""

    def __init__(self, questions: tuple[Question, ...], samples: Samples) -> None:
        self._questions = questions
        self._samples = samples
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Start asking."""
        for question in self._questions:
            work = partial(self._repeat, question)
            thread = threading.Thread(target=work, name=f"sample-{question.kind}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stop asking. Wait at most 5 s for each question that is still open."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=5.0)

    def _repeat(self, question: Question) -> None:
        while True:
            with suppress(Exception):  # an unforeseen error costs a sample, never the run
                ask(question, self._samples)
            if self._stop.wait(question.every_s):
                return


def ask(question: Question, samples: Samples) -> None:
    """Ask a question once, and record the answer under the time of the question."""
    asked = samples.now()
    if (body := question.ask()) is not None:
        samples.note_at(asked, question.kind, body)


class Canary(Protocol):
    """A client that writes small records into a system, as the system's real clients do.

    sampled: returns the results since the last call, as of ``now``; None for none.
    """

    def begin(self) -> None: ...
    def rest(self) -> None: ...
    def close(self) -> None: ...
    def sampled(self, now: float) -> Body | None: ...


class CanarySampler:
    """A question that lets a canary send during ``stages``. Its results become samples of this ``kind``."""

    def __init__(self, kind: str, canary: Canary, stages: Container[str], samples: Samples) -> None:
        self._canary = canary
        self._stages = stages
        self._samples = samples
        self.question = Question(kind, CANARY_S, self._ask)

    def close(self) -> None:
        """Stop sending and record the last results. Call it after the sampler is closed."""
        self._canary.close()
        if (body := self._canary.sampled(self._samples.now())) is not None:
            self._samples.note(self.question.kind, body)

    def _ask(self) -> Body | None:
        if self._samples.stage in self._stages:
            self._canary.begin()
        else:
            self._canary.rest()
        return self._canary.sampled(self._samples.now())


class ClusterSampler:
    """A recorder of the cluster's state as the steps see it: at each change, and every 5 s without one.

    kind: the kind of the samples. asked: the type of the requests whose answers are recorded.
    """

    def __init__(
        self, kind: str, asked: type[Request[Any]], to_body: Callable[[Any], Body], samples: Samples
    ) -> None:
        self._asked = asked
        self._kind = kind
        self._to_body = to_body
        self._samples = samples
        self._last: tuple[float, Body] | None = None

    def __call__(self, request: object, reading: object) -> None:
        if not isinstance(request, self._asked) or not isinstance(reading, Seen):
            return
        body, now = self._to_body(reading.value), self._samples.now()
        if self._last is None or self._last[1] != body or now - self._last[0] >= _REPEAT_S:
            self._last = (now, body)
            self._samples.note(self._kind, body)
