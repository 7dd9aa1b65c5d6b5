"""The runbook as one Markdown page: words of the steps, commands per host, expected output, way back.

Fenced blocks carry ``host=``, ``step=`` and ``way=``, so that a script (and the page's own function ``step``)
can follow them.
"""

from __future__ import annotations

import hashlib
import math
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files

from zkmigrate import hostside
from zkmigrate.engine.plan import NOTHING, Plan, PlannedStage, PlannedStep
from zkmigrate.errors import UsageError
from zkmigrate.facts.clients import addresses
from zkmigrate.inventory import Inventory
from zkmigrate.model.change import Applied, Changes
from zkmigrate.model.playbook import Playbook
from zkmigrate.model.step import Context, Hazard, Records, Way
from zkmigrate.rules.window import FIND_DOOR_S, STEPS, expected_way_back_s
from zkmigrate.runbook import hand
from zkmigrate.runbook.commands import Place, applied, zkm
from zkmigrate.runbook.sheet import STOPPED, Block, Sheet
from zkmigrate.ui.clean import inline

LEAST_HAND_S = 10
"""So many seconds from FENCE to SEAL a hand needs at the least (docs/adr/0014-one-lease-for-a-hand.md)."""
LOCK_TTL_MS = 30_000
_PROGRAM = "zkm-host"
_WORDS = tomllib.loads((files(__package__) / "words.toml").read_text())


@dataclass(frozen=True)
class Runbook:
    """Everything that the page is made from. controller: broker that is the controller now, "" if unknown.

    name: file name of the page, which its own functions read. done: what the tool has done in this run and
    not undone, by ``stage.step`` and host.
    """

    playbook: Playbook
    plan: Plan
    digest: str
    inventory: Inventory
    run: str
    records: Records
    controller: str
    name: str
    done: Mapping[str, Mapping[str, tuple[Applied, ...]]] = field(default_factory=dict)


def page(book: Runbook) -> str:
    """The whole page."""
    lines = [*_head(book), *_where(book), *_order(book), *_prepare(book)]
    for stage in book.plan.stages:
        lines += _stage(book, stage)
        if stage.id == "install":
            lines += _hold(book)
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
    yield from _WORDS["first"].strip().splitlines()
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
    """The way back of a step from its forecast. done: what is undone, per host."""
    found = next(s for s in book.playbook.stages if s.id == stage.id)
    real = next(s for s in found.steps if s.id == step.id)
    context = Context(book.run, book.inventory, 0, stage.rehearsal, book.records, way=Way.BACK)
    back = {host: real.undo(context, step.facts, host, applied) for host, applied in done.items()}
    return {host: changes for host, changes in back.items() if changes}


def _where(book: Runbook) -> Iterator[str]:
    """What each phase means, for whoever comes in the middle; of the stage that opens the door."""
    for stage in book.plan.stages:
        if not stage.window or stage.rehearsal or STEPS.opens not in (s.id for s in stage.steps):
            continue
        yield "## Where are we? (when somebody else has begun)"
        yield ""
        yield "Paste the three boxes of *Prepare*, then type `stand`. The host that is furthest counts."
        yield ""
        back = {name: f"`{_chain(book, stage, step)}`" for name, step in _TURNS.items()}
        yield from _WORDS["phases"].strip().format(stage=stage.id, **back).splitlines()
        yield ""
        yield from _WORDS["strangers"].strip().format(stage=stage.id).splitlines()
        yield ""


def _order(book: Runbook) -> Iterator[str]:
    """Every step as one would type it, in order, with what it costs to be wrong."""
    yield "## The whole way in short"
    yield ""
    yield "| type | what | hazard | [ ] |"
    yield "|---|---|---|---|"
    for stage in book.plan.stages:
        for step in stage.steps:
            hazard = "**no way back**" if step.hazard is Hazard.FINAL else step.hazard.value
            yield f"| `step {stage.id}.{step.id}` | {step.title} | {hazard} | [ ] |"
        if stage.rehearsal:
            yield f"| `{_chain(book, stage, stage.steps[-1].id)}` | all the way back | window | [ ] |"
        if stage.id == "install":
            yield "| `step hold.lock` | Take the dest hosts | reversible | [ ] |"
    yield ""


_TURNS = {"arm": "arm", "before": "stop", "sealed": "seal", "gone": "go"}


def _prepare(book: Runbook) -> Iterator[str]:
    yield "## Prepare"
    yield ""
    yield f"Copy this page (as `{book.name}`) and the program `{_PROGRAM}` that was exported with it into one"
    yield "directory, and go there."
    yield ""
    way = Way.FORWARD
    yield from _fenced(
        Block(
            ("operator",),
            (
                f"RUNBOOK=$PWD/{book.name}",
                f'HAND=${{HAND:-$HOME/hand-{book.run}}} && mkdir -p "$HAND" && chmod 700 "$HAND"',
                f'cp {_PROGRAM} "$HAND/" && cd "$HAND" && touch kept && set +m && umask 077',
                f"echo '{_digest()}  {_PROGRAM}' | sha256sum -c && echo \"OK in $PWD\"",
            ),
            "`OK in …`",
            "the program is not the one of this page: fetch the right one",
            way,
        ),
        "prepare.directory",
    )
    yield "The functions only look; each has its meaning behind its name."
    yield ""
    text = (files(__package__) / "hand.sh").read_text().splitlines()
    yield from _fenced(Block(("operator",), (*text, ". ./kept")), "prepare.functions")
    yield from _fenced(Block(("operator",), tuple(_site(book)), "`OK site`"), "prepare.site")
    yield from _WORDS["isr"].strip().splitlines()
    yield ""


def _digest() -> str:
    return hashlib.sha256(hostside.program()).hexdigest()


def _site(book: Runbook) -> Iterator[str]:
    """The variables and the ssh configuration that the functions use."""
    inventory, ssh = book.inventory, book.inventory.ssh
    hosts = (*inventory.source_names, *inventory.dest_names, *inventory.broker_names)
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
    source = " ".join(f"{h.name}={h.address}" for h in inventory.source.hosts)
    policy = inventory.policy
    values: dict[str, object] = {
        "RUN": book.run,
        "ZKM": hostside.INSTALLED_PATH,
        "SOURCE": source,
        "SOURCE_PORT": inventory.source.ports.client,
        "SOURCE_LOGS": inventory.source.txn_dir,
        "DEST": " ".join(inventory.dest_names),
        "DEST_COUNT": len(inventory.dest.hosts),
        "DEST_PORT": inventory.dest.ports.client,
        "CHROOT": inventory.kafka.chroot,
        "WAY_BACK_S": math.ceil(expected_way_back_s(Context(book.run, inventory, records=book.records))),
        "FIND_DOOR_S": math.ceil(FIND_DOOR_S),
        "LEAST_HAND_S": LEAST_HAND_S,
    }
    yield from (f"{name}={shlex.quote(str(value))}" for name, value in values.items())
    # For whoever goes on with what another one began; `survey` sets them anew.
    yield f"FENCE_MS=${{FENCE_MS:-{policy.lease.fence_ttl_ms}}} CUT_MS=${{CUT_MS:-{policy.lease.cut_ttl_ms}}}"
    yield f"OPEN_MS=${{OPEN_MS:-{round(policy.open_limit_s * 1000)}}} LEG=${{LEG:-0}}"
    yield 'ALL=$DEST; [ -z "${WITHOUT:-}" ] || without ""; echo "OK site"'


def _hold(book: Runbook) -> Iterator[str]:
    """The lock of the dest hosts, and with it the fencing number."""
    yield "## hold: take the dest hosts"
    yield ""
    yield from _WORDS["hold"].strip().splitlines()
    yield ""
    take = _lock(book, "take", "hand-$(id -un)", str(LOCK_TTL_MS))
    refused = "`exit=9`: somebody else holds them. Stop and talk to them; gone for sure: the next box"
    yield from _fenced(Block(book.inventory.dest_names, take, _NUMBER, refused), "hold.lock")
    steal = _lock(book, "steal", "hand-$(id -un)")
    yield from _fenced(
        Block(book.inventory.dest_names, steal, _NUMBER, "a host does not answer"), "hold.steal"
    )
    yield "- [ ] N: ______  taken at ______ by ______"
    yield ""


_NUMBER = "`fencing …` from each, then `OK N is …`"


def _lock(book: Runbook, *words: str) -> tuple[str, ...]:
    dest, place = book.inventory.dest_names, Place(book.run, "hold.lock", Way.FORWARD)
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


def _stage(book: Runbook, stage: PlannedStage) -> Iterator[str]:
    marks = " (rehearsal, then all the way back)" if stage.rehearsal else ""
    yield f"## {stage.id}: {stage.title}{marks}"
    yield ""
    if stage.consent:
        yield f"- [ ] **{stage.consent}** yes, said by ______ at ______"
        yield ""
    window = [s.id for s in stage.steps if s.id in STEPS.shut]
    if stage.window and len(window) == len(STEPS.shut):
        last = STEPS.shut[-1] if stage.rehearsal else STEPS.opens
        line = " && ".join(f"step {stage.id}.{step}" for step in STEPS.shut)
        said = _WORDS["lease"].strip()
        said = said.format(find=FIND_DOOR_S, line=line, stage=stage.id, last=last)
        yield from said.splitlines()
        yield ""
    for step in stage.steps:
        yield from _step(book, stage, step)
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


def _step(book: Runbook, stage: PlannedStage, step: PlannedStep) -> Iterator[str]:
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
        yield from _undo(_sheet(book, stage, step), f"back {name}")
        return
    sheet = _sheet(book, stage, step)
    if needs := _WORDS["needs"].get(step.id):
        yield f"**Before:** {needs}"
        yield ""
    if step.hazard is Hazard.FINAL:
        yield "**POINT OF NO RETURN.** There is no way back after this."
        yield ""
    chain = _chain(book, stage, step.id) if stage.window else f"back {name}"
    for block in hand.forward(sheet):
        text = f"{block.otherwise}: `{chain}`" if stage.window and chain else block.otherwise
        yield from _fenced(replace(block, otherwise=text if "walk back" in text else block.otherwise), name)
    if weaker := _WORDS["weaker"].get(step.id):
        yield f"**Weaker by hand:** {weaker}"
        yield ""
    yield from _undo(sheet, chain)
    yield "- [ ] done at ______ by ______   seen: ______"
    yield ""


def _undo(sheet: Sheet, chain: str) -> Iterator[str]:
    if sheet.back:
        yield f"**Way back from here:** `{chain}`"
        yield ""
        for block in hand.back(sheet):
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


def _sheet(book: Runbook, stage: PlannedStage, step: PlannedStep) -> Sheet:
    targets = dict(step.targets)
    if step.id == "roll" and book.controller in targets:  # the controller last: it moves only once
        targets[book.controller] = targets.pop(book.controller)
    sheet = Sheet(book.inventory, book.run, stage.id, stage.rehearsal, replace(step, targets=targets))
    # A window is walked from its start by whoever follows the page; outside it what is done stays done.
    done = dict(book.done.get(sheet.id, {})) if not stage.window else {}
    for host, changes in sheet.changes.items():
        place = sheet.place(Way.BACK, host if step.id in hand.ALONE else "")
        done[host] = applied(place, host, changes)
    return replace(sheet, back=_undone(book, stage, step, done))


def _fenced(block: Block, step: str) -> Iterator[str]:
    for text in block.text:
        if inline(text) != text or text.startswith("```"):
            raise UsageError(
                f"{step} on {', '.join(block.hosts)}: a command holds {inline(text)}. Needed: one line that "
                "no terminal obeys and that does not end its box; no page was made. Possible now: mend what "
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
    dest = book.inventory.dest_names
    place = Place(book.run, "hold.release", Way.FORWARD)
    release = ("lock", "lock.hand.$LEG", "release")
    yield "## hold: give the dest hosts back"
    yield ""
    yield from _WORDS["release"].strip().format(run=book.run).splitlines()
    yield ""
    text = ("next", *(f"{zkm(place, host, *release)} &" for host in dest), f"say '^fencing' {' '.join(dest)}")
    yield from _fenced(Block(dest, text, "`fencing …` from each"), "hold.release")
    brokers = ", ".join(f"{b.name} ({', '.join(sorted(addresses(b)))})" for b in book.inventory.kafka.brokers)
    yield f"Brokers: {brokers}."
