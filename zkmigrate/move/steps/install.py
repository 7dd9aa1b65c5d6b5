"""What: install zkm-host, the one program that acts on a host, on dest hosts and the members' hosts.

Why now: every later change goes through zkm-host, with an operation id, a before-image and a stored outcome.

Clients may notice: nothing.

Way back: remove zkm-host, its sudoers file and the run's state. A run that keeps another run's zkm-host
removes the program only from hosts that did not have it before. If a host holds another run's state, the
program stays for that run.

Proof: the installed file has the digest of the program in this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.facts.runs import own_program, stays_for
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.dependent import AnyDependent, OfDependent, program_hosts
from zkmigrate.move.facts.dest_status import unanswered
from zkmigrate.move.facts.records import Installed
from zkmigrate.runbook.model.change import Applied, Changes, InstallProgram, UninstallProgram
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.model.step_record import known

Programs: TypeAlias = Mapping[str, Reading[bytes]]
"""Host → the installed program; Absent if it is not installed."""


class InstallStep(OfDependent, Step[Programs]):
    """Installs zkm-host, and removes it on the way back.

    keep: whether the way back keeps a zkm-host that was on the host before this run. hosts: the hosts to
    install it on; None means the dest hosts and the members' hosts.
    """

    id = "install"
    title = "Install zkm-host"
    hazard = Hazard.REVERSIBLE

    def __init__(
        self,
        dependent: AnyDependent,
        *,
        keep: bool = False,
        hosts: Callable[[Inventory], tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(dependent)
        self._keep = keep
        self._hosts = hosts or partial(program_hosts, dependent)

    def observe(self, c: Context, look: Look) -> Programs:
        return look.each(self._hosts(c.inventory), lambda host: _read_program(c, look, host))

    def check(self, c: Context, f: Programs) -> Verdict:
        if unread := unanswered("install.answer", f, Unknown):
            return Blocked(unread)
        if c.way is Way.BACK:
            installed = tuple(h for h, r in f.items() if not isinstance(r, Absent))
            if self._keep:
                installed = tuple(h for h in installed if h in _without(c))
            if installed:
                return Ready(installed)
            sentence = "nothing of this run remains on the host"
            stays = ((h, seen) for h, r in f.items() if (seen := stays_for(r)))
            return Done(tuple(claim("install.gone", sentence, True, target=h, seen=s) for h, s in stays))
        wanted = zkm_host.program()
        todo = tuple(h for h, r in f.items() if not (isinstance(r, Seen) and r.value == wanted))
        if todo:
            without = tuple(h for h, r in f.items() if isinstance(r, Absent))
            found = Installed(_without(c) if c.begun else without).encode()
            return Ready(todo, record=found if self._keep else {})
        sentence, digest = (
            "zkm-host on the host is the same as in this package",
            f"sha256 {hashlib.sha256(wanted).hexdigest()[:12]}",
        )
        return Done(tuple(claim("install.same", sentence, True, target=h, seen=digest) for h in f))

    def plan(self, c: Context, f: Programs, target: str) -> Changes:
        return (InstallProgram(target),)

    def undo(self, c: Context, f: Programs, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (UninstallProgram(target),)


def _read_program(c: Context, look: Look, host: str) -> Reading[bytes]:
    """Read the program on the host; on the way back, only if this run has to remove it."""
    if c.way is Way.BACK:
        return own_program(look, host, c.run)
    return look.file(host, zkm_host.INSTALLED_PATH)


def _without(c: Context) -> tuple[str, ...]:
    """Return the hosts that had no zkm-host before this run."""
    installed = known(Installed, c)
    return installed.without if installed is not None else ()


MEANINGS = meanings(
    """
    install.same: zkm-host on the host is not the same as in this package. Cause: The install failed, or
    somebody replaced the file. To do: Resume, which installs zkm-host again. Find out who changes the file.

    install.gone: Files or rules of the run remain on the host. Cause: zkm-host did not remove them. To do:
    Resume, which removes them.

    install.answer: zkm-host on the host cannot be read. Cause: The host does not answer. To do: Find out why
    it does not answer, then resume.
    """
)
