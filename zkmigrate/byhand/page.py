"""The runbook as one Markdown page: words of the steps, commands per host, expected output, way back.

Fenced blocks carry ``host=``, ``step=`` and ``way=``, so that a script (and the page's own function ``step``)
can follow them.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files

from zkmigrate.byhand.commands import Place, applied, zkm
from zkmigrate.byhand.sheet import Sheet
from zkmigrate.clean import inline
from zkmigrate.engine.plan import NOTHING, Plan, PlannedStage, PlannedStep
from zkmigrate.errors import UsageError
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model import by_hand
from zkmigrate.model.by_hand import STOPPED, WALK_BACK, Block, ByHand, Manual
from zkmigrate.model.change import Applied, Changes
from zkmigrate.model.playbook import Playbook, Stage
from zkmigrate.model.step import AnyStep, Context, Hazard, Records, Way
from zkmigrate.model.window import WindowSteps

LOCK_TTL_MS = 30_000
_LOCK = (
    "`N` is higher than any number that the hosts have seen and shuts out whoever came before, also a tool "
    "that still runs",
    "somewhere. The second box takes them whoever holds them: only when that one is gone for sure.",
)
_PROGRAM = "zkm-host"
_FUNCTIONS = (files(__package__) / "hand.sh").read_text()
"""What the page can do with the hosts of any runbook."""


@dataclass(frozen=True)
class Runbook:
    """Everything that the page is made from.

    last: ``stage.step`` → the target that goes last in it, where somebody knows. name: file name of the page,
    which its own functions read. done: what the tool has done in this run and not undone, by ``stage.step``
    and host.
    """

    playbook: Playbook
    plan: Plan
    digest: str
    inventory: Inventory
    run: str
    records: Records
    last: Mapping[str, str]
    name: str
    done: Mapping[str, Mapping[str, tuple[Applied, ...]]] = field(default_factory=dict)

    @property
    def manual(self) -> Manual:
        return self.playbook.manual

    @property
    def stages(self) -> tuple[tuple[PlannedStage, Stage], ...]:
        return tuple(zip(self.plan.stages, self.playbook.stages, strict=True))

    @property
    def first_locked(self) -> Stage | None:
        """Before this one the witnesses are taken; None where there are none."""
        locked = (stage for stage in self.playbook.stages if stage.locked)
        return next(locked, None) if self.witnesses else None

    @property
    def witnesses(self) -> tuple[str, ...]:
        """The hosts that keep the lock."""
        return self.playbook.witnesses(self.inventory)


def page(book: Runbook) -> str:
    """The whole page."""
    lines = [*_head(book), *_where(book), *_order(book), *_prepare(book)]
    for planned, stage in book.stages:
        if stage is book.first_locked:
            lines += _hold(book)
        lines += _stage(book, planned, stage)
    lines += _give_up(book)
    return "\n".join(lines) + "\n"


def _head(book: Runbook) -> Iterator[str]:
    yield f"# Runbook by hand: {book.playbook.title}"
    yield ""
    yield f"Inventory `{book.inventory.name}`, run `{book.run}`. Plan digest `{book.digest}`:"
    yield "the commands are those of `zkmigrate plan` at the moment of the export. Export again when hosts or"
    yield "inventory have changed."
    for remark in book.plan.window:
        yield ""
        yield f"**{inline(remark.strip())}.** Nothing below is for this host."
    if unknown := book.plan.unknown:
        yield ""
        yield "**THIS PAGE IS NOT WHOLE.** When it was exported this was not known:"
        yield from (f"- {where}: {inline(why)}" for where, why in unknown.items())
    yield ""
    yield "## Read this first"
    yield ""
    yield from book.manual.first.strip().splitlines()
    yield ""


def _chain(book: Runbook, stage: PlannedStage, last: str) -> str:
    """The way back from a step: ``back`` of each step that has one, from there to the first."""
    upto = stage.steps[: [s.id for s in stage.steps].index(last) + 1]
    # One that is not known now has its own way back once it is.
    undone = [s for s in reversed(upto) if s.unknown or _undone(book, stage, s, dict.fromkeys(s.targets, ()))]
    return " && ".join(f"back {stage.id}.{step.id}" for step in undone)


def _undone(
    book: Runbook, stage: PlannedStage, step: PlannedStep, done: Mapping[str, tuple[Applied, ...]]
) -> dict[str, Changes]:
    """The way back of a step from its forecast, none without one. done: what is undone, per host."""
    if step.facts is None:
        return {}
    found = next(s for s in book.playbook.stages if s.id == stage.id)
    real = next(s for s in found.steps if s.id == step.id)
    context = Context(book.run, book.inventory, 0, stage.rehearsal, book.records, way=Way.BACK)
    back = {host: real.undo(context, step.facts, host, applied) for host, applied in done.items()}
    return {host: changes for host, changes in back.items() if changes}


def _where(book: Runbook) -> Iterator[str]:
    """What each phase means, for whoever comes in the middle; of the stage that opens the door."""
    for planned, stage in book.stages:
        steps = _window(planned, stage)
        if steps is None or stage.rehearsal or steps.opens not in (s.id for s in stage.steps):
            continue
        yield "## Where are we? (when somebody else has begun)"
        yield ""
        yield "Paste the three boxes of *Prepare*, then type `stand`. The host that is furthest counts."
        yield ""
        back = {name: f"`{_chain(book, planned, step)}`" for name, step in book.manual.turns.items()}
        yield from book.manual.phases.strip().format(stage=stage.id, **back).splitlines()
        yield ""


def _window(planned: PlannedStage, stage: Stage) -> WindowSteps | None:
    """The steps of a window that has words on the page."""
    return stage.window.steps if planned.window and stage.window is not None else None


def _order(book: Runbook) -> Iterator[str]:
    """Every step as one would type it, in order, with what it costs to be wrong."""
    yield "## The whole way in short"
    yield ""
    yield "| type | what | hazard | [ ] |"
    yield "|---|---|---|---|"
    for planned, stage in book.stages:
        if stage is book.first_locked:
            yield f"| `step hold.lock` | Take the {book.playbook.many_witnesses} | reversible | [ ] |"
        for step in planned.steps:
            hazard = "**no way back**" if step.hazard is Hazard.FINAL else step.hazard.value
            yield f"| `step {planned.id}.{step.id}` | {step.title} | {hazard} | [ ] |"
        if planned.rehearsal:
            back = _chain(book, planned, planned.steps[-1].id)
            yield f"| `{back}` | all the way back | window | [ ] |"
    yield ""


def _prepare(book: Runbook) -> Iterator[str]:
    yield "## Prepare"
    yield ""
    copy = cmp = ""
    if book.first_locked is None:
        yield f"Copy this page (as `{book.name}`) into a directory, and go there."
    else:
        both = f"this page (as `{book.name}`) and the program `{_PROGRAM}` that was exported with it"
        yield f"Copy {both} into one"
        yield "directory, and go there."
        copy, cmp = f'cp {_PROGRAM} "$HAND/" && ', f"echo '{_digest()}  {_PROGRAM}' | sha256sum -c && "
    yield ""
    text = (
        f"RUNBOOK=$PWD/{book.name}",
        f'HAND=${{HAND:-$HOME/hand-{book.run}}} && mkdir -p "$HAND" && chmod 700 "$HAND"',
        f'{copy}cd "$HAND" && touch kept && set +m && umask 077',
        f'{cmp}echo "OK in $PWD"',
    )
    wrong = "the program is not the one of this page: fetch the right one" if cmp else STOPPED
    yield from _fenced(Block(("operator",), text, "`OK in …`", wrong), "prepare.directory")
    yield "The functions only look; each has its meaning behind its name."
    yield ""
    functions = f"{_FUNCTIONS}{book.manual.functions}".splitlines()
    yield from _fenced(Block(("operator",), (*functions, ". ./kept")), "prepare.functions")
    yield from _fenced(Block(("operator",), tuple(_site(book)), "`OK site`"), "prepare.site")
    if book.manual.prepare:
        yield from book.manual.prepare.strip().splitlines()
        yield ""


def _digest() -> str:
    return hashlib.sha256(zkm_host.program()).hexdigest()


def _site(book: Runbook) -> Iterator[str]:
    """The variables and the ssh configuration that the functions use."""
    if book.inventory.has("ssh"):
        yield from _ssh(book)
    yield f"RUN={shlex.quote(book.run)}"
    yield f"ZKM={shlex.quote(zkm_host.INSTALLED_PATH)}"
    yield f"DEST={shlex.quote(' '.join(book.witnesses))}"
    yield from book.manual.known(Context(book.run, book.inventory, records=book.records))
    yield 'ALL=$DEST; [ -z "${WITHOUT:-}" ] || without ""; echo "OK site"'


def _ssh(book: Runbook) -> Iterator[str]:
    inventory, ssh = book.inventory, book.inventory.ssh
    hosts = (host for names in book.playbook.hosts(inventory).values() for host in names)
    yield "cat >ssh.conf <<END-OF-FILE"
    if ssh.config:  # the first value that is found counts, as for the tool
        yield f"Include {ssh.config}"
    for host in hosts:
        yield f"Host {host}"
        yield f"  HostName {inventory.address(host)}"
        if ssh.bastion:
            yield f"  ProxyJump {ssh.bastion}"
    yield "Host *"
    yield f"  User {ssh.user}"
    yield f"  Port {ssh.port}"
    yield f"  IdentityFile {ssh.key}"
    yield f"  UserKnownHostsFile {ssh.known_hosts}"
    yield "  IdentitiesOnly yes"
    yield "  StrictHostKeyChecking yes"
    yield "  BatchMode yes"
    yield "  ConnectTimeout 5"
    yield "  ServerAliveInterval 2"
    yield "  ControlMaster auto"
    yield "  ControlPersist 30m"
    yield "  ControlPath $PWD/%n.mux"
    yield "END-OF-FILE"


def _hold(book: Runbook) -> Iterator[str]:
    """The lock of the dest hosts, and with it the fencing number."""
    yield f"## hold: take the {book.playbook.many_witnesses}"
    yield ""
    yield from _LOCK
    yield ""
    take = _lock(book, "take", "hand-$(id -un)", str(LOCK_TTL_MS))
    refused = "`exit=9`: somebody else holds them. Stop and talk to them; gone for sure: the next box"
    yield from _fenced(Block(book.witnesses, take, _NUMBER, refused), "hold.lock")
    steal = _lock(book, "steal", "hand-$(id -un)")
    yield from _fenced(Block(book.witnesses, steal, _NUMBER, "a host does not answer"), "hold.steal")
    yield "- [ ] N: ______  taken at ______ by ______"
    yield ""


_NUMBER = "`fencing …` from each, then `OK N is …`"


def _lock(book: Runbook, *words: str) -> tuple[str, ...]:
    dest, place = book.witnesses, Place(book.run, "hold.lock", Way.FORWARD)
    lines = (zkm(place, host, "lock", f"lock.hand-{words[0]}.$LEG", *words) for host in dest)
    outs = " ".join(f"{host}.out" for host in dest)
    return (
        "next",
        *(f"{line.replace('$N', '0')} &" for line in lines),
        f"say '^fencing [0-9]+$' {' '.join(dest)} &&",
        # Only digits: what one host says here is put into commands for all of them.
        f'keep "N=$(sed -nE "s/^fencing ([0-9]{{1,15}})$/\\1/p" {outs} | sort -n | tail -n 1)" && '
        '[ "$N" ] && echo "OK N is $N"',
    )


def _stage(book: Runbook, stage: PlannedStage, real: Stage) -> Iterator[str]:
    marks = " (rehearsal, then all the way back)" if stage.rehearsal else ""
    yield f"## {stage.id}: {stage.title}{marks}"
    yield ""
    if stage.consent:
        yield f"- [ ] **{stage.consent}** yes, said by ______ at ______"
        yield ""
    window, ids = _window(stage, real), {s.id for s in stage.steps}
    if window is not None and ids.issuperset(window.shut):
        last = window.shut[-1] if stage.rehearsal else window.opens
        line = " && ".join(f"step {stage.id}.{step}" for step in window.shut)
        yield from book.manual.window.strip().format(line=line, stage=stage.id, last=last).splitlines()
        yield ""
    for step, own in zip(stage.steps, real.steps, strict=True):
        yield from _step(book, stage, step, own)
    if stage.rehearsal:
        back = _chain(book, stage, stage.steps[-1].id)
        yield f"### {stage.id}: all the way back"
        yield ""
        yield "The rehearsal ends here. Note the seconds: they are what the night will take."
        yield ""
        yield f"    {back}"
        yield ""
        yield "- [ ] all are `idle` in `stand` and observe. FENCE to CHECK ______ s, back ______ s"
        yield ""


def _step(book: Runbook, stage: PlannedStage, step: PlannedStep, real: AnyStep) -> Iterator[str]:
    name = f"{stage.id}.{step.id}"
    yield f"### {name}: {step.title}"
    yield ""
    if not stage.rehearsal:
        yield from _words(step)
    else:
        yield f"What, why and proof: as in `{_night(book, step.id)}`, below."
        yield ""
    if step.unknown:
        why = inline(step.unknown)
        yield f"**Not known when this page was exported:** {why}. Do not go on by hand from here."
        yield ""
        return
    if step.note == NOTHING:
        yield f"Nothing to do: {NOTHING.partition(': ')[2]} when this page was exported."
        yield ""
        yield from _undo(_sheet(book, stage, step, real), by_hand.of(real), f"back {name}")
        return
    sheet, own = _sheet(book, stage, step, real), by_hand.of(real)
    if own.needs:
        yield f"**Before:** {own.needs}"
        yield ""
    if step.hazard is Hazard.FINAL:
        yield "**POINT OF NO RETURN.** There is no way back after this."
        yield ""
    chain = _chain(book, stage, step.id) if stage.window else f"back {name}"
    for block in own.forward(sheet):
        text = f"{block.otherwise}: `{chain}`" if stage.window and chain else block.otherwise
        yield from _fenced(replace(block, otherwise=text if WALK_BACK in text else block.otherwise), name)
    if own.weaker:
        yield f"**Weaker by hand:** {own.weaker}"
        yield ""
    yield from _undo(sheet, own, chain)
    yield "- [ ] done at ______ by ______   seen: ______"
    yield ""


def _undo(sheet: Sheet, own: ByHand, chain: str) -> Iterator[str]:
    if sheet.back:
        yield f"**Way back from here:** `{chain}`"
        yield ""
        for block in own.back(sheet):
            yield from _fenced(block, sheet.id)


def _night(book: Runbook, step: str) -> str:
    """The same step where it counts."""
    stages = [s for s in book.plan.stages if s.window and not s.rehearsal]
    return next((f"{s.id}.{step}" for s in stages for x in s.steps if x.id == step), step)


def _words(step: PlannedStep) -> Iterator[str]:
    for text in step.brief.lines():
        heading, _, rest = text.partition(": ")
        yield f"**{heading}:** {rest}"
        yield ""


def _sheet(book: Runbook, stage: PlannedStage, step: PlannedStep, real: AnyStep) -> Sheet:
    targets = dict(step.targets)
    if (last := book.last.get(f"{stage.id}.{step.id}")) in targets:
        targets[last] = targets.pop(last)
    sheet = Sheet(book.inventory, book.run, stage.id, stage.rehearsal, replace(step, targets=targets))
    # A window is walked from its start by whoever follows the page; outside it what is done stays done.
    done = dict(book.done.get(sheet.id, {})) if not stage.window else {}
    for host, changes in sheet.changes.items():
        place = sheet.place(Way.BACK, host if by_hand.of(real).alone else "")
        done[host] = applied(place, host, changes)
    return replace(sheet, back=_undone(book, stage, step, done))


def _fenced(block: Block, step: str) -> Iterator[str]:
    for text in block.text:
        if inline(text) != text or text.startswith("```"):
            raise UsageError(
                f"{step} on {', '.join(block.hosts)}: a command holds {inline(text)}. Needed: one line that "
                "no terminal obeys and that does not end its box; no page was made. Next: mend what "
                "it comes from"
            )
    yield f"```sh host={','.join(block.hosts)} step={step} way={block.way.value}"
    yield from block.text
    yield "```"
    if block.expect:
        yield f"Expect: {block.expect}."
        if block.otherwise != STOPPED:  # else what is said of STOP at the top is all there is to say
            yield ""
            yield f"If not: {block.otherwise}."
    yield ""


def _give_up(book: Runbook) -> Iterator[str]:
    if book.first_locked is None:
        return
    dest = book.witnesses
    place = Place(book.run, "hold.release", Way.FORWARD)
    release = ("lock", "lock.hand.$LEG", "release")
    yield f"## hold: give the {book.playbook.many_witnesses} back"
    yield ""
    yield from book.manual.release.strip().format(run=book.run).splitlines()
    yield ""
    text = ("next", *(f"{zkm(place, host, *release)} &" for host in dest), f"say '^fencing' {' '.join(dest)}")
    yield from _fenced(Block(dest, text, "`fencing …` from each"), "hold.release")
    if end := book.manual.end(book.inventory):
        yield end
