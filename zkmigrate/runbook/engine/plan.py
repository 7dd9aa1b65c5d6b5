"""Make a plan: list the changes that a playbook would make, by stage, step and target.

Each step gives its forecast. Its ``check`` and ``plan`` are called with the forecast, as the engine does.
Files and commands that follow from the inventory and the present world are listed with their diffs; a step
whose changes depend on later facts says so. ``runbook/engine/planfile.py`` calculates a plan's digest, and
writes and reads plans as files.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zkmigrate.errors import HostError, UsageError
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.zkm_host import kernel
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.inventory.inventory import digest as inventory_digest
from zkmigrate.keyed_digest import SECRET_NAME
from zkmigrate.runbook.engine.codec import encode_change
from zkmigrate.runbook.engine.lock import UNWITNESSED
from zkmigrate.runbook.model.change import (
    Arm,
    Change,
    ClusterChange,
    Cut,
    EditLine,
    Fence,
    Go,
    InstallProgram,
    PutFile,
    Seal,
    SetService,
)
from zkmigrate.runbook.model.fact import Absent, Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import (
    AnyStep,
    Blocked,
    Brief,
    Context,
    Forecast,
    Hazard,
    Ready,
    Retired,
    Waiting,
    brief_of,
)

LATER = "decided from facts when the step is reached"
READS = "only reads"
MISSED = "only reads, except for changes of an earlier step that a host missed"
_NOTES = {Hazard.READ_ONLY: READS, Hazard.LATE: MISSED}
NOTHING = "nothing, because everything is already as this step needs it"
RUN = "RUN"
"""Placeholder for the run's id, which is unknown before the run begins."""

_NAMED = rf"(?:{SECRET_NAME}|jaas|keytab)"
_SECRET = re.compile(rf"(?im)^([ \t]*[^\s#!=:]*{_NAMED}[^\s=:]*[ \t]*[=: ])(?:.*\\\r?\n)*.*$")
"""Matches a setting with a secret-looking name, with the lines that continue its value."""

_PART = r"""[^\s"'=;,]{0,80}"""
_QUOTED = r"""\\?"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s;,]+"""
_WITHIN = re.compile(rf"(?i)({_PART}{_NAMED}{_PART}[ \t]*=[ \t]*)(?:{_QUOTED})")
"""Matches ``password="…"`` inside another line, as in JAAS options and JVM flags."""


@dataclass(frozen=True)
class PlannedChange:
    """One planned change.

    - text: its description. command: the command that does it by hand on the host.
    - diff: the diff of the file without secret-looking values, else empty.
    - detail: what the command creates on the host, or what is decided later.
    - unread: why the diff is unknown, else empty.
    - seen: digest of the file that would be replaced, ``absent`` or ``unknown``; empty for other changes.
    """

    change: Change
    text: str
    command: str
    diff: str
    detail: tuple[str, ...]
    unread: str = ""
    seen: str = ""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the change with all of its content."""
        return sha256_of(encode_change(self.change))


@dataclass(frozen=True)
class PlannedStep:
    """One step with its changes per target.

    - note: why no changes are listed, else empty.
    - unknown: why the changes could not be looked up, else empty.
    - facts: its forecast, if any.
    - basis: the values on which a saved plan of this step depends (``Step.basis``).
    """

    id: str
    title: str
    hazard: Hazard
    brief: Brief
    targets: Mapping[str, tuple[PlannedChange, ...]]
    note: str
    unknown: str = ""
    facts: Any = None
    basis: Mapping[str, str] | None = None


@dataclass(frozen=True)
class PlannedStage:
    """One stage with its planned steps."""

    id: str
    title: str
    consent: str
    rehearsal: bool
    window: bool
    steps: tuple[PlannedStep, ...]


@dataclass(frozen=True)
class Plan:
    """The whole plan.

    window: lines about the expected window, its deadlines and what clients may notice.
    """

    playbook: str
    inventory: str
    stages: tuple[PlannedStage, ...]
    window: tuple[str, ...]

    @property
    def unknown(self) -> Mapping[str, str]:
        """The reasons why values could not be looked up, by ``stage.step`` or ``stage.step on TARGET``."""
        steps = {f"{stage.id}.{step.id}": step for stage in self.stages for step in stage.steps}
        diffs = {
            f"{name} on {target}": change.unread
            for name, step in steps.items()
            for target, changes in step.targets.items()
            for change in changes
            if change.unread
        }
        return {**{name: step.unknown for name, step in steps.items() if step.unknown}, **diffs}

    @property
    def seen(self) -> dict[str, str]:
        """The present state of each file that would be replaced, by ``HOST PATH``.

        It is the file's digest, ``absent`` or ``unknown``.
        """
        return {
            f"{change.change.host} {change.change.path}": change.seen
            for stage in self.stages
            for step in stage.steps
            for changes in step.targets.values()
            for change in changes
            if isinstance(change.change, PutFile | EditLine)
        }


def sha256_of(value: object) -> str:
    """Return the SHA-256 of a JSON value, independent of blanks and key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def make(
    playbook: Playbook,
    inventory: Inventory,
    look: Look,
    window: tuple[str, ...],
    retired: Sequence[Retired] = (),
) -> Plan:
    """Plan a whole playbook. Hosts and clusters are only read.

    window: the playbook's own lines about the whole run, such as the length of its window. retired: the hosts
    that the run leaves out.
    """
    whole, specs = inventory_digest(inventory), dict[str, str]()
    inventory = playbook.without(inventory, [r.host for r in retired])
    alone = () if playbook.witnesses(inventory) else (f"  {UNWITNESSED}",)
    stages = tuple(
        PlannedStage(
            stage.id,
            stage.title,
            stage.consent,
            stage.rehearsal,
            stage.window is not None,
            tuple(_step(stage, step, inventory, look, specs) for step in stage.steps),
        )
        for stage in playbook.stages
    )
    return Plan(playbook.id, whole, stages, (*window, *alone, *(f"  {r.words}" for r in retired)))


def _step(
    stage: Stage, step: AnyStep, inventory: Inventory, look: Look, specs: dict[str, str]
) -> PlannedStep:
    planned = PlannedStep(step.id, step.title, step.hazard, brief_of(step), {}, LATER)
    if step.hazard.reads:
        return replace(planned, note=_NOTES[step.hazard])
    context = Context(run=RUN, inventory=inventory, rehearsal=stage.rehearsal)
    try:
        if (foreseen := step.forecast(context, look)) is None:
            return planned
        context = replace(context, records=foreseen.records)
        if (turns := _turns(step, context, foreseen)) is None:
            return replace(planned, facts=foreseen.facts)
        plans = {target: step.plan(context, foreseen.facts, target) for target in turns}
        basis = step.basis(context, foreseen.facts)
        specs |= {c.host: c.spec for changes in plans.values() for c in changes if isinstance(c, Arm)}
        targets = {
            target: tuple(_change(c, inventory, look, specs.get(c.where, "")) for c in changes)
            for target, changes in plans.items()
        }
    except (HostError, UsageError) as error:
        return replace(planned, note=f"not known now: {error}", unknown=str(error))
    note = "" if targets else NOTHING
    return replace(planned, targets=targets, note=note, facts=foreseen.facts, basis=basis)


def _turns(step: AnyStep, context: Context, foreseen: Forecast[Any]) -> tuple[str, ...] | None:
    """Return the targets that the step will change; None if it would first have to wait.

    Raises HostError if the step would be blocked.
    """
    if foreseen.targets is not None:
        return foreseen.targets
    verdict = step.check(context, foreseen.facts)
    if isinstance(verdict, Blocked):
        raise HostError("; ".join(f"{x.target or x.id}: {x.seen}" for x in verdict.findings if x.blocks))
    if isinstance(verdict, Waiting):
        return None
    return verdict.targets if isinstance(verdict, Ready) else ()


def _change(change: Change, inventory: Inventory, look: Look, spec: str) -> PlannedChange:
    diff, unread, seen = _diff(change, look) if isinstance(change, PutFile | EditLine) else ("", "", "")
    detail = _detail(change, inventory, spec)
    return PlannedChange(change, change.describe(), command(change), diff, detail, unread, seen)


def command(change: Change) -> str:
    """Return the command that makes the same change by hand, with OPID and N as placeholders.

    OPID stands for the run's operation id and N for its fencing number. For a change of a cluster it is the
    command of the cluster's own tool. Long content is replaced by the name of the file that would hold it.
    """
    if isinstance(change, InstallProgram):
        install = "sudo install -D -o root -g root -m"
        return f"{install} 0600 POLICY {change.path} && {install} 0755 zkm-host {zkm_host.INSTALLED_PATH}"
    if change.command or isinstance(change, ClusterChange):
        return change.command
    words = [*change.arguments()]
    match change:
        case EditLine():
            line = change.new.decode("utf-8", "replace")
            end = "\\n" if line.endswith("\n") else ""
            words[-1] = f'"$(printf "%s{end}" {shlex.quote(line.rstrip(chr(10)))} | base64 -w0)"'
        case PutFile() if change.content:
            words[-1] = f'"$(base64 -w0 {change.path.rpartition("/")[2]})"'
        case Arm():
            words[-1] = '"$(base64 -w0 SPEC)"'
        case SetService() if change.commands:
            words = [change.unit, change.action, *(own_command(text) for text in change.commands)]
    return " ".join(("sudo zkm-host --run", RUN, "--as N", change.verb, "OPID", *words))


def own_command(text: str) -> str:
    """Return one ``KEY=VALUE`` of a service as a shell word.

    The inventory allows no quote in a command.
    """
    key, _, value = text.partition("=")
    return text if key == "ports" else f"{key}=\"$(printf %s '{value}' | base64 -w0)\""


def _detail(change: Change, inventory: Inventory, spec: str) -> tuple[str, ...]:
    match change:
        case InstallProgram():
            sudoers = zkm_host.sudoers(inventory.ssh.user).strip()
            digest = hashlib.sha256(zkm_host.program()).hexdigest()
            return (
                f"zkm-host comes with this zkmigrate, sha256 {digest}",
                f"{zkm_host.SUDOERS_PATH} (root, mode 0440, checked by visudo first):",
                f"  {sudoers}",
                *(
                    ("  (if ssh.config names another User for the host, that user)",)
                    * bool(inventory.ssh.config)
                ),
                f"POLICY becomes {change.path} (root, mode 0600) and holds all that zkm-host may change:",
                *(f"  {line}" for line in change.policy.splitlines()),
            )
        case Arm():
            return (
                "SPEC holds:",
                *(f"  {line}" for line in change.spec.splitlines()),
                "creates these, without effect while sets are empty (TAG: first 8 digits of RUN's sha256):",
                *(f"  {line}" for line in kernel.lines(change.spec, change.verb)),
                "begins the image of the data, installs the start guard of the unit",
            )
        case Fence() if spec:
            made = kernel.lines(spec, change.verb, change.ttl_ms)
            return ("creates these (OWN: the host's own addresses):", *(f"  {line}" for line in made))
        case Cut() if spec:
            made = kernel.lines(spec, change.verb, change.ttl_ms)
            return (
                "creates these, and a timer on the host that removes them:",
                *(f"  {line}" for line in made),
            )
        case Seal():
            return (
                "BOOT-ID and STAMP are known only at SEAL: STOP reads them and PROVE uses them. The host",
                "refuses if one of them differs, the lease has ended, or the rules are not those of the run",
            )
        case Go():
            return (
                "place and first are known only at GO: they name the hosts with the newest transaction. The",
                "plan assumes that every host holds it, as after DRAIN",
            )
        case _:
            return ()


def _diff(change: PutFile | EditLine, look: Look) -> tuple[str, str, str]:
    """Return the diff from the present file to the planned one, why it is unknown, and the file's state.

    The state is its digest, ``absent`` or ``unknown``.
    """
    seen = look.file(change.host, change.path)
    if isinstance(seen, Seen):
        old, name, word = without_secrets(seen.value), change.path, hashlib.sha256(seen.value).hexdigest()
    elif isinstance(seen, Absent):
        old, name, word = "", "/dev/null", "absent"
    else:
        return f"{change.path}: {seen}\n", f"{change.path}: {seen}", "unknown"
    new = change.content if isinstance(change, PutFile) else change.new
    if isinstance(change, EditLine):
        kept = seen.value.split(b"\n") if isinstance(seen, Seen) else [b""]
        new = b"\n".join((*kept[: change.number - 1], new.rstrip(b"\n"), *kept[change.number :]))
    lines = difflib.unified_diff(
        old.splitlines(), without_secrets(new).splitlines(), name, change.path, lineterm=""
    )
    return "".join(f"{line}\n" for line in lines), "", word


def without_secrets(content: bytes) -> str:
    """Return a text without the values of settings with secret-looking names, so that no diff shows them."""
    hidden = r"\1(hidden)"
    return _WITHIN.sub(hidden, _SECRET.sub(hidden, content.decode("utf-8", "replace")))
