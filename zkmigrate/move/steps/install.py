"""What: install zkm-host, the one program that acts on a host, on dest hosts and the members' hosts. A policy
beside it names the paths, services and rules that zkm-host may change for this run.

Why now: every later change goes through zkm-host, with an operation id, a before-image and a stored outcome.

Clients may notice: nothing.

Way back: remove zkm-host, its sudoers file and the run's state. A run that keeps another run's zkm-host
removes the program only from hosts that did not have it before. If a host holds another run's state, the
program stays for that run.

Proof: the installed file has the digest of the program in this package, and the policy is that of the
inventory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.facts.runs import own_program, policies, stays_for
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.dependent import AnyDependent, OfDependent, program_hosts, unit_of
from zkmigrate.move.facts.dest_status import unanswered, unknown
from zkmigrate.move.facts.records import Installed
from zkmigrate.move.rules.server_down import members_to_copy
from zkmigrate.move.steps.arm import arm_spec
from zkmigrate.runbook.model import policy
from zkmigrate.runbook.model.change import Applied, Changes, InstallProgram, UninstallProgram
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.model.step_record import known
from zkmigrate.zookeeper.facts.disk import VERSION_2
from zkmigrate.zookeeper.facts.members import Members

PolicyOf: TypeAlias = Callable[[Inventory, str], tuple[str, ...]]
"""A function that takes an inventory and a host, and returns the lines of that host's policy.

:mod:`zkmigrate.runbook.model.policy` describes the lines.
"""


@dataclass(frozen=True)
class InstallFacts:
    """The installed programs by host; Absent if there is none.

    policies: all policies on each host that has the program of this package. ports: the
    ports in source's configs. Both are read only going forward.
    """

    programs: Mapping[str, Reading[bytes]]
    policies: Mapping[str, Reading[tuple[bytes, ...]]] = field(default_factory=dict)
    ports: Reading[tuple[int, ...]] = field(default_factory=lambda: Seen(()))


class InstallStep(OfDependent, Step[InstallFacts]):
    """Installs zkm-host, and removes it on the way back.

    keep: whether the way back keeps a zkm-host that was on the host before this run. hosts: the hosts to
    install it on; None means the dest hosts and the members' hosts. allows: what zkm-host may change on a
    host; None means what a move changes there.
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
        allows: PolicyOf | None = None,
    ) -> None:
        super().__init__(dependent)
        self._keep = keep
        self._hosts = hosts or partial(program_hosts, dependent)
        self._allows = allows

    def observe(self, c: Context, look: Look) -> InstallFacts:
        programs = look.each(self._hosts(c.inventory), lambda host: _read_program(c, look, host))
        ours = [h for h, r in programs.items() if isinstance(r, Seen) and r.value == zkm_host.program()]
        if c.way is Way.BACK:
            return InstallFacts(programs)
        found = look.each(ours, lambda host: policies(look, host))
        if self._allows is not None:
            return InstallFacts(programs, found)
        members = members_to_copy(c.inventory, look)
        return InstallFacts(
            programs, found, Seen(members.value.ports) if isinstance(members, Seen) else members
        )

    def check(self, c: Context, facts: InstallFacts) -> Verdict:
        f = facts.programs
        unread = unanswered("install.answer", f, Unknown)
        if unread := unread or unanswered("install.answer", facts.policies, Unknown):
            return Blocked(unread)
        if c.way is Way.BACK:
            installed = tuple(h for h, r in f.items() if not isinstance(r, Absent))
            if self._keep:
                installed = tuple(h for h in installed if h in _without(c))
            if installed:
                return Ready(c.inventory.one_a_machine(installed))
            sentence = "nothing of this run remains on the host"
            stays = ((h, seen) for h, r in f.items() if (seen := stays_for(r)))
            return Done(tuple(claim("install.gone", sentence, True, target=h, seen=s) for h, s in stays))
        wanted = zkm_host.program()
        todo = tuple(h for h, r in f.items() if r != Seen(wanted) or not self._is_allowed(c, facts, h))
        if todo and not isinstance(facts.ports, Seen):
            return Blocked((unknown("install.ports", "source", facts.ports),))
        if todo:
            without = tuple(h for h, r in f.items() if isinstance(r, Absent))
            found = Installed(_without(c) if c.begun else without).encode()
            return Ready(c.inventory.one_a_machine(todo), record=found if self._keep else {})
        sentence, digest = (
            "zkm-host on the host is the same as in this package, with the policy of this inventory",
            f"sha256 {hashlib.sha256(wanted).hexdigest()[:12]}",
        )
        return Done(tuple(claim("install.same", sentence, True, target=h, seen=digest) for h in f))

    def plan(self, c: Context, f: InstallFacts, target: str) -> Changes:
        return (InstallProgram(target, zkm_host.policy_path(c.run), self._text(c, f, target)),)

    def _is_allowed(self, c: Context, facts: InstallFacts, host: str) -> bool:
        """Return whether a policy on the host allows what this run may change, and no more."""
        found = facts.policies.get(host)
        if not isinstance(found, Seen):
            return False
        wanted = self._text(c, facts, host)
        return any(policy.covers(one.decode("utf-8", "replace"), wanted) for one in found.value)

    def _text(self, c: Context, f: InstallFacts, host: str) -> str:
        """Return the one policy of a machine, which allows what each of its hosts needs."""
        ports = f.ports.value if isinstance(f.ports, Seen) else ()
        allows = self._allows or partial(move_policy, self.dependent, ports=ports)
        machine = c.inventory.machine(host)
        here = [h for h in self._hosts(c.inventory) if h in machine]
        lines = (line for name in here for line in allows(c.inventory, name))
        return policy.text(tuple(dict.fromkeys(lines)))

    def undo(self, c: Context, f: InstallFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (UninstallProgram(target),)


def move_policy(
    dependent: AnyDependent, inventory: Inventory, host: str, ports: tuple[int, ...] = ()
) -> tuple[str, ...]:
    """Return what zkm-host may change on a host for a move or a return; nothing on any other host.

    ports: those in source's configs, which may be cut.
    """
    lines: list[str] = []
    if host in inventory.dest_names:
        dest = inventory.dest
        owner = f"{dest.user}:{dest.group}"
        written = [f"{directory}/{VERSION_2}" for directory in (dest.data_dir, dest.txn_dir)]
        written += [f"{dest.config}.dynamic*", f"{dest.config}.bak"]
        lines += [
            policy.LOCK,
            policy.WINDOW,
            *(policy.put(path, owner) for path in (f"{dest.data_dir}/myid", dest.config)),
            *map(policy.move_aside, written),
            *policy.service(dest.service.unit, ("start", "stop", "restart", "kill"), dest.commands),
        ]
        with suppress(IndexError):  # ARM blocks a host without a numeric address
            # All ports: a broker beside dest, for which ARM spares some, may be retired later.
            lines += policy.arm(arm_spec(inventory, False, Members((), ports=ports), spare=False))
    for member in dependent.members(inventory):
        if member.name == host:
            unit, commands = unit_of(dependent, inventory, member)
            lines += [policy.LOCK, policy.rewrite(dependent.config(inventory))]
            lines += policy.service(unit, ("start", "stop", "restart", "reload"), commands)
    return tuple(dict.fromkeys(lines))


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
    install.same: zkm-host or its policy on the host is not the one of this package and inventory. Cause: The
    install failed, or somebody replaced a file. To do: Resume, which installs both again. Find out who
    changes the file.

    install.gone: Files or rules of the run remain on the host. Cause: zkm-host did not remove them. To do:
    Resume, which removes them.

    install.ports: The ports in source's configs cannot be read. Cause: No server's config or dynamic file can
    be read, or they have different versions of the member list. zkm-host may later cut these ports only. To
    do: Make the files readable, then resume.

    install.answer: zkm-host on the host cannot be read. Cause: The host does not answer. To do: Find out why
    it does not answer, then resume.
    """
)
