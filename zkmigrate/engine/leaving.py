"""How a walk ends or turns: the result, and the two exceptions that carry a decision out of a step."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.model.finding import Finding


@dataclass(frozen=True)
class Ended:
    """Why the walk stopped: exit code (docs/reference/exit-codes.md), a sentence, the findings behind it."""

    code: int
    message: str
    findings: tuple[Finding, ...] = ()


class Leave(Exception):
    """Stop walking, with this result."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.message)
        self.ended = ended


class TurnBack(Exception):
    """Walk back to the start of ``to``; ``code`` is the exit code on arrival."""

    def __init__(self, to: str, why: str, code: int, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(why)
        self.to, self.why, self.code, self.findings = to, why, code, findings
