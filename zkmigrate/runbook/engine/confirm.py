"""Get the operator's answers, from a person at a terminal or from ``--yes``.

Both get the same questions. ``--yes`` answers go. To a question of the window's rules (``Decision.ASK``) it
gives the answer that the rules assume without an operator. At a terminal the assumed answer also applies if
the operator types nothing until a second before the deadline. A Console prints the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from zkmigrate.runbook.engine.ports import Answer
from zkmigrate.runbook.model.finding import Finding, doubts
from zkmigrate.runbook.model.playbook import Stage
from zkmigrate.runbook.model.sampling import span
from zkmigrate.runbook.model.step import AnyStep, Hazard, brief_of
from zkmigrate.runbook.model.window import Word

_WORDS: dict[str, Word] = {
    "g": "go", "go": "go", "y": "go", "yes": "go", "s": "stop", "stop": "stop", "b": "back", "back": "back",
    "k": "skip", "skip": "skip",
}  # fmt: skip
_FINDINGS = ("f", "findings")
_UNATTENDED = "--yes"
_NOBODY = "nobody: the input ended"
_BACK_KEYS = "  b walks this stage back; b TO walks back to the start of TO, a stage or stage.step;"
WHILE_IT_WAITS = "findings [STEP] (f), stop (s); from another terminal: zkmigrate status, zkmigrate hold"


class Console(Protocol):
    """A line-wise dialogue with the operator."""

    def show(self, lines: Sequence[str]) -> None: ...

    def ask(self, question: str) -> str | None:
        """Return the typed line, or None at the end of input."""

    def poll(self, seconds: float) -> str | None:
        """Return a line typed within ``seconds``, else an empty one; None at the end of input."""

    def forget(self) -> None:
        """Drop what was typed so far, because it answered an earlier question."""


class LookUp(Protocol):
    """The information about the run that a dialogue can show."""

    def remarks(self, stage: Stage) -> Sequence[str]:
        """Return what is known beforehand about a stage, as lines."""

    def cannot_go_back(self, to: str) -> str:
        """Return why the run cannot walk back to the start of ``to``, or an empty string if it can.

        to: empty for the present stage.
        """

    def findings(self, name: str) -> Sequence[str]:
        """Return the findings of a stage or step, or ``all``, in full, as lines.

        Without a name return those of the newest step that has any, in short.
        """

    def in_short(self, found: Sequence[Finding]) -> Sequence[str]:
        """Return findings as short lines for the screen."""

    def whole(self, found: Sequence[Finding]) -> Sequence[str]:
        """Return findings in full, as lines."""

    def asking(self, where: str, keys: str = "", left_s: float | None = None) -> None:
        """Report that a question is open, with the fields of the event ``Asking``."""


class Terminal:
    """The answers of a person at a terminal.

    interrupted: returns whether a Ctrl-C ended a question without an answer.
    """

    def __init__(
        self,
        console: Console,
        user: str,
        now: Callable[[], float],
        look_up: LookUp,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._console, self._look_up, self._user, self._now = console, look_up, user, now
        self._interrupted = interrupted
        self._consented = ""
        self._hold = _Hold(console, look_up, user)

    def step(self, stage: Stage, step: AnyStep, findings: tuple[Finding, ...]) -> Answer:
        """Show the step's brief and the findings so far, and ask for go, stop or back.

        No question is asked before the only changing step of a stage to which the operator has just agreed,
        unless a finding is in doubt.
        """
        if self._consented == stage.id and len(_changing(stage)) == 1 and not doubts(findings):
            return Answer("go")
        lines = ["", f"{stage.id}.{step.id}: {step.title} ({step.hazard.value})"]
        lines += [f"  {line}" for line in brief_of(step).lines()]
        if findings:
            lines += ["  Findings so far:", *(f"    {line}" for line in self._look_up.in_short(findings))]
        self._console.show(lines)
        return self._ask(f"{stage.id}.{step.id}")

    def consent(self, stage: Stage) -> Answer:
        """Ask the stage's own question and show what is known about the stage."""
        lines = ["", f"{stage.id}: {stage.title}"]
        if stage.window:
            lines.append(
                f"  Phases: {', '.join(step.id for step in stage.steps)}; there is no question between phases"
            )
            waves = [step for step in stage.steps if step.hazard is Hazard.WINDOW][:1]
            notice = [stage.unnoticed] if stage.unnoticed else [brief_of(s).clients_may_notice for s in waves]
            lines += [f"  Clients may notice: {text}" for text in notice]
        else:
            for step in _changing(stage):
                lines += [f"  {line}" for line in brief_of(step).lines()]
        lines += [f"  {line}" for line in self._look_up.remarks(stage)]
        lines += [f"  Without this stage: {stage.skip}"] if stage.skip else []
        lines.append(f"  {stage.consent}")
        self._console.show(lines)
        self._consented = stage.id
        return self._ask(stage.id, skip=bool(stage.skip))

    def listen(self) -> bool:
        """Show the findings that the operator asked for. Return whether stop was typed."""
        line = self._console.poll(0.0)
        if line is None or not line.strip():
            return False
        answer, said = _understood(line, self._look_up)
        if answer is not None and answer.word == "stop":
            return True
        self._console.show(said or [f"  possible input while the run waits: {WHILE_IT_WAITS}"])
        return False

    def decide(self, phase: str, finding: Finding, unanswered: Word, left_s: float | None) -> Answer:
        """Ask for go or back, and return the answer. Without one in time, return ``unanswered``.

        phase: the window's phase. left_s: the seconds within which this method must return; None without a
        deadline. Stop is a possible answer only if ``unanswered`` is stop.
        """
        words = ("go", "back", unanswered)
        stop = "stop (s), " if unanswered == "stop" else ""
        keys = f"go (g), {stop}back (b) or findings (f)?"
        limit_s = 30.0 if left_s is None else max(0.0, left_s - 1.0)
        self._look_up.asking(f"{finding.id} {finding.target}".rstrip(), keys, limit_s)
        self._console.forget()
        self._console.show(
            [
                f"after {phase or 'the start'}: {finding.id} {finding.target}:",
                f"  {finding.verdict}",
                *([f"  needed: {finding.needed}"] if finding.needed else []),
                f"  {keys} no answer within {span(limit_s)} means {unanswered}",
            ]
        )
        end = self._now() + limit_s
        while (left := end - self._now()) > 0:
            if unanswered == "stop" and self._interrupted():
                break
            line = self._console.poll(min(left, 0.5))
            if line is None:
                break
            word = _WORDS.get(line.strip().lower())
            if word is not None and word in words:
                return Answer(word, by=self._user)
            if line.strip().lower() in _FINDINGS:
                self._console.show([f"  {text}" for text in self._look_up.whole((finding,))])
        return Answer(unanswered)

    def hold(self, where: str) -> Answer | None:
        """Return the answer typed during a hold (go, stop or back), or None. It is called again and again."""
        return self._hold.answer(where)

    def _ask(self, where: str, *, skip: bool = False) -> Answer:
        self._look_up.asking(where)
        self._console.forget()
        skipping = "skip (k), " if skip else ""
        backing = "" if self._look_up.cannot_go_back("") else "back [TO] (b), "
        while True:
            line = self._console.ask(f"{where}: go (g), stop (s), {backing}{skipping}findings [STEP] (f)? ")
            if line is None:
                return Answer("stop", by=f"{self._user}: Ctrl-C" if self._interrupted() else _NOBODY)
            answer, said = _understood(line, self._look_up)
            if answer is not None and (skip or answer.word != "skip"):
                return replace(answer, by=self._user)
            self._console.show(
                said
                or [
                    f"  not understood: {line.strip()!r}. g goes on; s stops here, and resume continues;",
                    *([_BACK_KEYS] if backing else []),
                    *(["  k skips this stage;"] if skip else []),
                    "  f lists the findings of the newest step; f STEP and f all show findings in full",
                ]
            )


class Unattended:
    """The answers of ``--yes``, without prompts. A hold reads standard input."""

    def __init__(self, console: Console, look_up: LookUp) -> None:
        self._hold = _Hold(console, look_up, _UNATTENDED)

    def step(self, _stage: Stage, _step: AnyStep, _findings: tuple[Finding, ...]) -> Answer:
        return Answer("go", by=_UNATTENDED)

    def consent(self, _stage: Stage) -> Answer:
        return Answer("go", by=_UNATTENDED)

    def listen(self) -> bool:
        return False  # input from a pipe is meant for later holds

    def decide(self, _phase: str, _finding: Finding, unanswered: Word, _left_s: float | None) -> Answer:
        return Answer(unanswered, by=_UNATTENDED)

    def hold(self, where: str) -> Answer | None:
        """Return the answer that was typed during a hold, or None."""
        return self._hold.answer(where)


def _changing(stage: Stage) -> list[AnyStep]:
    return [step for step in stage.steps if not step.hazard.reads]


class _Hold:
    """Reads answers during a hold, and ignores what was typed before it."""

    def __init__(self, console: Console, look_up: LookUp, user: str) -> None:
        self._console, self._look_up, self._user = console, look_up, user
        self._where = ""

    def answer(self, where: str) -> Answer | None:
        """Return the answer in a polled line, or None without one and at the end of input."""
        if where != self._where:
            self._where = where
            self._console.forget()
        line = self._console.poll(0.0)
        if line is None or not line.strip():
            return None
        answer, said = _understood(line, self._look_up)
        if answer is not None and answer.word != "skip":
            return replace(answer, by=self._user)
        keys = "g goes on, s stops here, b [TO] walks back, f [STEP] or f all shows findings"
        self._console.show(said or [f"  not understood: {line.strip()!r}. {keys}"])
        return None


def _understood(line: str, look_up: LookUp) -> tuple[Answer | None, Sequence[str]]:
    """Parse ``go``, ``stop``, ``skip``, ``back`` or ``back TO``, or a request for findings.

    Return the answer and the lines to show. The answer is None for anything but an answer. The lines are the
    requested findings, or the reason why the run cannot go back; invalid input has no lines.
    """
    words = line.split()
    first, rest = (words[0].lower(), words[1:]) if words else ("", [])
    if first in _FINDINGS and len(rest) < 2:
        return None, [f"  {text}" for text in look_up.findings(rest[0] if rest else "")]
    word = _WORDS.get(first)
    if word is None or len(rest) > (word == "back"):
        return None, ()
    to = rest[0] if rest else ""
    if word == "back" and (why := look_up.cannot_go_back(to)):
        return None, [f"  {why}"]
    return Answer(word, to), ()
