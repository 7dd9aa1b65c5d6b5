"""What: write the assignments that our policy refuses to a file on every broker's host. The policy reads the
file at each creation of a topic.

Why now: no explicit assignment may name an excluded broker, and no topic may be created while a broker stops.

Clients may notice: refused creations, with PolicyViolationException. An explicit assignment that names an
excluded broker is refused all the time, an automatic assignment only while brokers stop.

Way back: each file gets its former content.

Proof: every host has the file with these lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from zkmigrate.cluster.removal.section import policed, removal
from zkmigrate.runbook.model.change import Applied, Changes, PutFile, inverses
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.runbook.model.step_record import Recorded, known

Word: TypeAlias = Literal["refuse", "close", "open"]

CLOSED_S = 300
"""Seconds for which the policy lets nothing be created; then creation opens by itself, even without a run."""


@dataclass(frozen=True)
class Closed(Recorded):
    """The start of the time in which no topic can be created.

    at: when creation was closed, in seconds since the epoch.
    """

    step: ClassVar[str] = "close"

    at: float


@dataclass(frozen=True)
class PolicyFacts:
    """The files from which our policy reads the assignments that it refuses.

    files: the content by host. now: the time at which the files were read, in seconds since the epoch.
    """

    files: Mapping[str, Reading[bytes]]
    now: float


class PolicyStep(Step[PolicyFacts]):
    """A step that writes the assignments that our policy refuses to the file on each host.

    With ``refuse`` the policy refuses explicit assignments to the brokers to be removed. With ``close`` it
    refuses automatic ones as well, for ``CLOSED_S`` seconds. With ``open`` it refuses nothing any more,
    because the brokers are down.
    """

    hazard = Hazard.REVERSIBLE

    def __init__(self, word: Word, title: str) -> None:
        self.id, self.title, self._word = word, title, word

    def observe(self, c: Context, look: Look) -> PolicyFacts:
        path = removal(c.inventory).policy_file or ""
        return PolicyFacts(look.each(policed(c.inventory), lambda host: look.file(host, path)), look.wall())

    def check(self, c: Context, f: PolicyFacts) -> Verdict:
        if c.way is Way.BACK:
            return Ready(touched) if (touched := tuple(h for h in f.files if h in c.unrestored)) else Done()
        if not f.files:
            return Done()
        if silent := [f"{host}: {told}" for host, told in f.files.items() if isinstance(told, Unknown)]:
            limit = c.inventory.policy.step_deadline_s
            return Waiting("the hosts report the policy's file", few(silent), limit, poll_s=1.0)
        wanted = Seen(self._content(c))
        todo = tuple(host for host, told in f.files.items() if told != wanted)
        if todo:
            return Ready(todo, record=self._since(c, f))
        return Done((self._policy_finding(c, len(f.files)), *self._in_time(c, f)))

    def _since(self, c: Context, f: PolicyFacts) -> Mapping[str, Any]:
        """Return the record of when the first file closed creation, because that file's time ends first."""
        if self._word != "close":
            return {}
        before = known(Closed, c) if c.begun else None
        return (before or Closed(f.now)).encode()

    def _content(self, c: Context) -> bytes:
        wanted = removal(c.inventory)
        lines = [f"removal={c.inventory.name}"]
        if self._word != "open":
            lines.append(f"brokers={','.join(map(str, wanted.brokers))}")
        if self._word == "close":
            lines.append(f"closed_s={CLOSED_S}")
        return "".join(f"{line}\n" for line in lines).encode()

    def _policy_finding(self, c: Context, hosts: int) -> Finding:
        path = removal(c.inventory).policy_file
        words = self._content(c).decode().strip().replace("\n", ", ")
        return claim(
            "remove.policy-told",
            "every broker's host has the policy's file with the brokers to refuse",
            True,
            seen=f"{path} on {hosts:,} hosts: {words}",
        )

    def _in_time(self, c: Context, f: PolicyFacts) -> tuple[Finding, ...]:
        """Check that creation stayed closed until the last broker had stopped."""
        closed = known(Closed, c) if self._word == "open" else None
        if closed is None:
            return ()
        took = f.now - closed.at
        return (
            claim(
                "remove.closed",
                "no topic was created while a broker stopped",
                took < CLOSED_S,
                seen=f"creation was closed for {min(took, CLOSED_S):,.0f} s; the stops took {took:,.0f} s",
                needed=f"all brokers stopped within {CLOSED_S} s",
                moves=("nothing: the run moved the topics that were created later",),
                severity=Severity.WARN,
            ),
        )

    def plan(self, c: Context, f: PolicyFacts, target: str) -> Changes:
        path = removal(c.inventory).policy_file
        assert path is not None
        return (PutFile(target, path, self._content(c), "root:root"),)

    def undo(self, c: Context, f: PolicyFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return inverses(applied)


MEANINGS = meanings(
    """
    remove.policy-told: A host's policy file does not have the content that the run wrote. Cause: The step is
    not finished, or somebody changed the file. To do: Wait, or resume.

    remove.closed: Stopping the brokers took longer than the policy prevents the creation of topics. Cause: A
    broker stopped slowly, or the run was interrupted. To do: Nothing. Topics created meanwhile were moved.
    """
)
