"""Who says go: a person at a terminal, or ``--yes``.

The same questions come up either way; ``--yes`` answers go to all of them, and where the rules say Ask it
answers what they say for nobody. In a terminal, silence until a second before the deadline means the same.
Nothing here prints: a Console does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from zkmigrate.engine import brief
from zkmigrate.engine.ports import Answer, Fallback, Word
from zkmigrate.model.finding import Finding, Held, Severity
from zkmigrate.model.playbook import Stage
from zkmigrate.model.step import AnyStep, Hazard

_WORDS: dict[str, Word] = {
    "g": "go", "go": "go", "y": "go", "yes": "go", "s": "stop", "stop": "stop", "b": "back", "back": "back"
}  # fmt: skip


class Console(Protocol):
    """A line-wise dialogue with the operator."""

    def show(self, lines: Sequence[str]) -> None: ...

    def ask(self, question: str) -> str | None:
        """The line typed; None at the end of input."""
        ...

    def poll(self, seconds: float) -> str | None:
        """A line if one comes within ``seconds``, else an empty one; None at the end of input."""
        ...

    def forget(self) -> None:
        """Drop what was typed so far: it answered nothing that could be read yet."""
        ...


class Terminal:
    """A person answers.

    told: findings as lines for the screen. remarks: what is known beforehand about a stage, as lines.
    """

    def __init__(
        self,
        console: Console,
        user: str,
        now: Callable[[], float],
        told: Callable[[Sequence[Finding]], Sequence[str]],
        remarks: Callable[[Stage], Sequence[str]] = lambda _stage: (),
    ) -> None:
        self._console = console
        self._user = user
        self._now = now
        self._told = told
        self._remarks = remarks
        self._consented = ""
        self._hold = _Hold(console)

    def step(self, stage: Stage, step: AnyStep, findings: tuple[Finding, ...]) -> Answer:
        """Show the step's brief and the findings so far; ask go, stop or roll back.

        The one step that a consent was just given for is not asked about again, unless something was found
        since then that does not hold.
        """
        doubts = [f for f in findings if f.held is not Held.YES and f.severity is not Severity.INFO]
        if self._consented == stage.id and len(_changing(stage)) == 1 and not doubts:
            return Answer("go")
        lines = ["", f"{stage.id}.{step.id}: {step.title} ({step.hazard.value})"]
        lines += [f"  {line}" for line in brief.of(step).lines()]
        if findings:
            lines += ["  Found so far:", *(f"    {line}" for line in self._told(findings))]
        self._console.show(lines)
        return self._ask(f"{stage.id}.{step.id}")

    def consent(self, stage: Stage) -> tuple[Answer, str]:
        """The stage's own question, with what is known about it."""
        lines = ["", f"{stage.id}: {stage.title}"]
        if stage.window:
            lines.append(f"  Phases: {', '.join(step.id for step in stage.steps)}; no question between them")
            waves = [step for step in stage.steps if step.hazard is Hazard.WINDOW][:1]
            lines += [f"  Clients may notice: {brief.of(step).clients_may_notice}" for step in waves]
        else:
            for step in _changing(stage):
                lines += [f"  {line}" for line in brief.of(step).lines()]
        lines += [*(f"  {line}" for line in self._remarks(stage)), f"  {stage.consent}"]
        self._console.show(lines)
        self._consented = stage.id
        return self._ask(stage.id), self._user

    def decide(self, phase: str, finding: Finding, unanswered: Fallback, left_s: float | None) -> Fallback:
        """Go or back, before the time runs out."""
        self._console.forget()
        self._console.show(
            [
                f"after {phase or 'the start'}: {finding.id} {finding.target}:",
                f"  {finding.seen or finding.claim}",
                f"  go (g) or back (b)? no answer in time means {unanswered}",
            ]
        )
        end = self._now() + (30.0 if left_s is None else max(0.0, left_s - 1.0))
        while (left := end - self._now()) > 0:
            line = self._console.poll(min(left, 0.5))
            if line is None:
                break
            word = _WORDS.get(line.strip().lower())
            if word == "go" or word == "back":
                return word
        return unanswered

    def hold(self, where: str, unanswered: Fallback | None, _left_s: float | None) -> Answer | None:
        """Polled while holding: go, stop or back; None while nothing was typed."""
        return self._hold.answer(where, unanswered)

    def _ask(self, where: str) -> Answer:
        self._console.forget()
        while True:
            line = self._console.ask(f"{where}: go (g), stop (s), back [TO] (b)? ")
            if line is None:
                return Answer("stop")
            if (answer := _answer(line)) is not None:
                return answer
            self._console.show(
                [
                    f"  not understood: {line.strip()!r}. g goes on; s stops here, resumable;",
                    "  b walks this stage back; b TO walks back to the start of TO, a stage or stage.step",
                ]
            )


class Unattended:
    """``--yes``: the same path without prompts. A hold listens to standard input, where it is not empty."""

    def __init__(self, console: Console) -> None:
        self._hold = _Hold(console)

    def step(self, _stage: Stage, _step: AnyStep, _findings: tuple[Finding, ...]) -> Answer:
        return Answer("go")

    def consent(self, _stage: Stage) -> tuple[Answer, str]:
        return Answer("go"), "--yes"

    def decide(self, _phase: str, _finding: Finding, unanswered: Fallback, _left_s: float | None) -> Fallback:
        return unanswered

    def hold(self, where: str, unanswered: Fallback | None, _left_s: float | None) -> Answer | None:
        return self._hold.answer(where, unanswered)


def _changing(stage: Stage) -> list[AnyStep]:
    return [step for step in stage.steps if step.hazard is not Hazard.READ_ONLY]


class _Hold:
    """Listens while the walk holds; what was typed before it held counts for nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._where = ""

    def answer(self, where: str, unanswered: Fallback | None) -> Answer | None:
        """The answer in a polled line; the end of input counts as nobody's answer, where there is one."""
        if where != self._where:
            self._where = where
            self._console.forget()
        line = self._console.poll(0.0)
        if line is None:
            return None if unanswered is None else Answer(unanswered)
        return _answer(line)


def _answer(line: str) -> Answer | None:
    """``go``, ``stop``, ``back`` or ``back TO``; None for anything else."""
    words = line.split()
    word = _WORDS.get(words[0].lower()) if words else None
    if word is None or len(words) > (2 if word == "back" else 1):
        return None
    return Answer(word, words[1] if len(words) > 1 else "")
