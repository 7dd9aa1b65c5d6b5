"""The runbook as one Markdown page: briefs of the steps, commands per host, expected output, way back.

Fenced blocks carry ``host=``, ``step=`` and ``way=`` for scripts and for the page's own function ``step``.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files

from zkmigrate.clean import inline
from zkmigrate.errors import UsageError
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.byhand.commands import Position, as_applied, zkm
from zkmigrate.runbook.byhand.sheet import Sheet
from zkmigrate.runbook.engine.plan import NOTHING, Plan, PlannedStage, PlannedStep
from zkmigrate.runbook.model import by_hand
from zkmigrate.runbook.model.by_hand import STOPPED, WALK_BACK, Block, ByHand, Manual
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Context, Hazard, Records, Way
from zkmigrate.runbook.model.window import WindowSteps

LOCK_TTL_MS = 30_000
_LOCK = (
    "`N` is higher than every number that the hosts have seen. It shuts out earlier holders, also a tool",
    "that still runs. The second box takes the lock from any holder: only if that one is certainly gone.",
)
_PROGRAM = "zkm-host"
_FUNCTIONS = (files(__package__) / "hand.sh").read_text()
"""The shell functions of every page."""


@dataclass(frozen=True)
class Runbook:
    """The content of the page.

    last: ``stage.step`` → the target that goes last, where known. name: the page's file name, which its own
    functions read. done: what the tool has done in this run and not undone, by ``stage.step`` and host.
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
        """The first stage that needs the witnesses' lock; None without witnesses."""
        locked = (stage for stage in self.playbook.stages if stage.locked)
        return next(locked, None) if self.witnesses else None

    @property
    def witnesses(self) -> tuple[str, ...]:
        """The hosts that keep the lock."""
        return self.playbook.witnesses(self.inventory)


def page(book: Runbook) -> str:
    """The whole page."""
    lines = [*_head(book), *_where_are_we(book), *_overview(book), *_prepare(book)]
    for planned, stage in book.stages:
        if stage is book.first_locked:
            lines += _take_lock(book)
        lines += _stage(book, planned, stage)
    lines += _release_lock(book)
    return "\n".join(lines) + "\n"


def _paragraphs(*texts: str) -> Iterator[str]:
    """The lines of each text, and an empty line after it."""
    for text in texts:
        yield from text.strip("\n").split("\n")
        yield ""


def _head(book: Runbook) -> Iterator[str]:
    yield from _paragraphs(f"# Runbook by hand: {book.playbook.title}")
    yield f"Inventory `{book.inventory.name}`, run `{book.run}`. Plan digest `{book.digest}`:"
    yield "the commands are those of `zkmigrate plan` at the moment of the export. Export again when hosts or"
    yield "inventory have changed."
    for remark in book.plan.window:
        yield ""
        yield f"**{inline(remark.strip())}.** Nothing below is for this host."
    if unknown := book.plan.unknown:
        yield ""
        yield "**THIS PAGE IS INCOMPLETE.** When it was exported, this was not known:"
        yield from (f"- {where}: {inline(why)}" for where, why in unknown.items())
    yield ""
    yield from _paragraphs("## Read this first", book.manual.first)


def _back_chain(book: Runbook, stage: PlannedStage, last: str) -> str:
    """The way back from a step: the ``back`` commands from it to the first step."""
    upto = stage.steps[: [s.id for s in stage.steps].index(last) + 1]
    # A step that is unknown now gets its way back once it is known.
    undone = [
        s for s in reversed(upto) if s.unknown or _undo_of(book, stage, s, dict.fromkeys(s.targets, ()))
    ]
    return " && ".join(f"back {stage.id}.{step.id}" for step in undone)


def _undo_of(
    book: Runbook, stage: PlannedStage, step: PlannedStep, done: Mapping[str, tuple[Applied, ...]]
) -> dict[str, Changes]:
    """The changes that undo a step, from its forecast; empty without one. done: what to undo, per host."""
    if step.facts is None:
        return {}
    found = next(s for s in book.playbook.stages if s.id == stage.id)
    real = next(s for s in found.steps if s.id == step.id)
    context = Context(book.run, book.inventory, 0, stage.rehearsal, book.records, way=Way.BACK)
    back = {host: real.undo(context, step.facts, host, changes) for host, changes in done.items()}
    return {host: changes for host, changes in back.items() if changes}


def _where_are_we(book: Runbook) -> Iterator[str]:
    """The meaning of each phase in the real window, for an operator who takes over."""
    for planned, stage in book.stages:
        steps = _window(planned, stage)
        if steps is None or stage.rehearsal or steps.opens not in (s.id for s in stage.steps):
            continue
        yield from _paragraphs(
            "## Where are we? (when another operator has begun)",
            "Paste the three boxes of *Prepare*, then type `stand`. The most advanced host counts.",
        )
        back = {name: f"`{_back_chain(book, planned, step)}`" for name, step in book.manual.turns.items()}
        yield from _paragraphs(book.manual.phases.format(stage=stage.id, **back))


def _window(planned: PlannedStage, stage: Stage) -> WindowSteps | None:
    """The steps of a window, if the playbook describes it."""
    return stage.window.steps if planned.window and stage.window is not None else None


def _overview(book: Runbook) -> Iterator[str]:
    yield from _paragraphs("## The whole way in short")
    yield "| type | what | hazard | [ ] |"
    yield "|---|---|---|---|"
    for planned, stage in book.stages:
        if stage is book.first_locked:
            yield f"| `step hold.lock` | Take the {book.playbook.many_witnesses} | reversible | [ ] |"
        for step in planned.steps:
            hazard = "**no way back**" if step.hazard is Hazard.FINAL else step.hazard.value
            yield f"| `step {planned.id}.{step.id}` | {step.title} | {hazard} | [ ] |"
        if planned.rehearsal:
            back = _back_chain(book, planned, planned.steps[-1].id)
            yield f"| `{back}` | all the way back | window | [ ] |"
    yield ""


def _prepare(book: Runbook) -> Iterator[str]:
    yield from _paragraphs("## Prepare")
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
    yield from _paragraphs("The functions only look; each has its meaning behind its name.")
    functions = f"{_FUNCTIONS}{book.manual.functions}".splitlines()
    yield from _fenced(
        Block(("operator",), (*functions, '. ./kept && echo "OK functions"'), "`OK functions`"),
        "prepare.functions",
    )
    yield from _fenced(Block(("operator",), tuple(_variables(book)), "`OK site`"), "prepare.site")
    if book.manual.prepare:
        yield from _paragraphs(book.manual.prepare)


def _digest() -> str:
    return hashlib.sha256(zkm_host.program()).hexdigest()


def _variables(book: Runbook) -> Iterator[str]:
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
    if ssh.config:  # the first value found counts, as for the tool
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


def _take_lock(book: Runbook) -> Iterator[str]:
    yield from _paragraphs(f"## hold: take the {book.playbook.many_witnesses}")
    yield from _LOCK
    yield ""
    take = _lock(book, "take", "hand-$(id -un)", str(LOCK_TTL_MS))
    refused = (
        "`exit=9`: another operator holds them. Stop and talk; if they are certainly gone: `step hold.steal`"
    )
    yield from _fenced(Block(book.witnesses, take, _NUMBER, refused), "hold.lock")
    steal = _lock(book, "steal", "hand-$(id -un)")
    yield from _fenced(Block(book.witnesses, steal, _NUMBER, "a host does not answer"), "hold.steal")
    yield from _paragraphs("- [ ] N: ______  taken at ______ by ______")


_NUMBER = "`fencing …` from each, then `OK N is …`"


def _lock(book: Runbook, *words: str) -> tuple[str, ...]:
    dest, position = book.witnesses, Position(book.run, "hold.lock", Way.FORWARD)
    lines = (zkm(position, host, "lock", f"lock.hand-{words[0]}.$LEG", *words) for host in dest)
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
    yield from _paragraphs(f"## {stage.id}: {stage.title}{marks}")
    if stage.consent:
        yield from _paragraphs(f"- [ ] **{stage.consent}** yes, said by ______ at ______")
    window, ids = _window(stage, real), {s.id for s in stage.steps}
    if window is not None and ids.issuperset(window.shut):
        last = window.shut[-1] if stage.rehearsal else window.opens
        line = " && ".join(f"step {stage.id}.{step}" for step in window.shut)
        yield from _paragraphs(book.manual.window.format(line=line, stage=stage.id, last=last))
    for step, own in zip(stage.steps, real.steps, strict=True):
        yield from _step(book, stage, step, own)
    if stage.rehearsal:
        back = _back_chain(book, stage, stage.steps[-1].id)
        yield from _paragraphs(
            f"### {stage.id}: all the way back",
            "The rehearsal ends here. Note the seconds: they are what the night will take.",
            f"    {back}",
            "- [ ] all are `idle` in `stand` and observe. FENCE to CHECK ______ s, back ______ s",
        )


def _step(book: Runbook, stage: PlannedStage, step: PlannedStep, real: AnyStep) -> Iterator[str]:
    name = f"{stage.id}.{step.id}"
    yield from _paragraphs(f"### {name}: {step.title}")
    if not stage.rehearsal:
        yield from _brief(step)
    else:
        yield from _paragraphs(f"What, why and proof: as in `{_real_name(book, step.id)}`, below.")
    if step.unknown:
        why = inline(step.unknown)
        yield from _paragraphs(
            f"**Not known when this page was exported:** {why}. Do not go on by hand from here."
        )
        return
    if step.note == NOTHING:
        yield from _paragraphs(f"Nothing to do: {NOTHING.partition(': ')[2]} when this page was exported.")
        yield from _undo(_sheet(book, stage, step, real), by_hand.of(real), f"back {name}")
        return
    sheet, own = _sheet(book, stage, step, real), by_hand.of(real)
    if own.needs:
        yield from _paragraphs(f"**Before:** {own.needs}")
    if step.hazard is Hazard.FINAL:
        yield from _paragraphs("**POINT OF NO RETURN.** There is no way back after this.")
    chain = _back_chain(book, stage, step.id) if stage.window else f"back {name}"
    for block in own.forward(sheet):
        text = f"{block.otherwise}: `{chain}`" if stage.window and chain else block.otherwise
        yield from _fenced(replace(block, otherwise=text if WALK_BACK in text else block.otherwise), name)
    if own.weaker:
        yield from _paragraphs(f"**Weaker by hand:** {own.weaker}")
    yield from _undo(sheet, own, chain)
    yield from _paragraphs("- [ ] done at ______ by ______   seen: ______")


def _undo(sheet: Sheet, own: ByHand, chain: str) -> Iterator[str]:
    if sheet.back:
        yield from _paragraphs(f"**Way back from here:** `{chain}`")
        for block in own.back(sheet):
            yield from _fenced(block, sheet.id)


def _real_name(book: Runbook, step: str) -> str:
    """The name of the same step in the real window."""
    stages = [s for s in book.plan.stages if s.window and not s.rehearsal]
    return next((f"{s.id}.{step}" for s in stages for x in s.steps if x.id == step), step)


def _brief(step: PlannedStep) -> Iterator[str]:
    for text in step.brief.lines():
        heading, _, rest = text.partition(": ")
        yield from _paragraphs(f"**{heading}:** {rest}")


def _sheet(book: Runbook, stage: PlannedStage, step: PlannedStep, real: AnyStep) -> Sheet:
    targets = dict(step.targets)
    if (last := book.last.get(f"{stage.id}.{step.id}")) in targets:
        targets[last] = targets.pop(last)
    sheet = Sheet(book.inventory, book.run, stage.id, stage.rehearsal, replace(step, targets=targets))
    # By hand a window is walked from its start; outside it, what is done stays done.
    done = dict(book.done.get(sheet.id, {})) if not stage.window else {}
    for host, changes in sheet.changes.items():
        position = sheet.position(Way.BACK, host if by_hand.of(real).alone else "")
        done[host] = as_applied(position, host, changes)
    return replace(sheet, back=_undo_of(book, stage, step, done))


def _fenced(block: Block, step: str) -> Iterator[str]:
    for text in block.text:
        if inline(text) != text or text.startswith("```"):
            raise UsageError(
                f"{step} on {', '.join(block.hosts)}: a command holds {inline(text)}. Needed: one line that "
                "no terminal obeys and that does not end its box; no page was made. Next: fix its "
                "source"
            )
    yield f"```sh host={','.join(block.hosts)} step={step} way={block.way.value}"
    yield from block.text
    yield "```"
    if block.expect:
        yield f"Expect: {block.expect}."
        if block.otherwise != STOPPED:  # else the rule at the top of the page says it all
            yield ""
            yield f"If not: {block.otherwise}."
    yield ""


def _release_lock(book: Runbook) -> Iterator[str]:
    if book.first_locked is None:
        return
    dest = book.witnesses
    position = Position(book.run, "hold.release", Way.FORWARD)
    release = ("lock", "lock.hand.$LEG", "release")
    heading = f"## hold: give the {book.playbook.many_witnesses} back"
    yield from _paragraphs(heading, book.manual.release.format(run=book.run))
    text = (
        "next",
        *(f"{zkm(position, host, *release)} &" for host in dest),
        f"say '^fencing' {' '.join(dest)}",
    )
    yield from _fenced(Block(dest, text, "`fencing …` from each"), "hold.release")
    if end := book.manual.end(book.inventory):
        yield end
