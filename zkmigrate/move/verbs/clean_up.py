"""The verb clean-up: after a run, list what other tenants of source left on dest, and delete it.

Only subtrees that the operator names are deleted, after they are saved to a file and journaled. A later call
continues an interrupted one.
"""

from __future__ import annotations

import contextlib
import getpass
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zkmigrate.errors import UsageError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.dependent import AnyDependent
from zkmigrate.move.facts.records import Stopped
from zkmigrate.move.facts.tenants import Users, users
from zkmigrate.move.move import dependent_of
from zkmigrate.move.rules import clean_up as rules
from zkmigrate.move.rules.clean_up import Node, Subtree
from zkmigrate.move.verbs.deletion import ChangedError, Dest, dest, read_kept, write_kept
from zkmigrate.runbook.engine import runs
from zkmigrate.runbook.engine.clock import RealClock
from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.lock import LocalLock
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Finding, Held, blocking
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step_record import recorded
from zkmigrate.runbook.runs.verb_context import VerbContext, existing_run_dir, load, open_site, print_json
from zkmigrate.runbook.ui import finding_lines
from zkmigrate.runbook.ui.console import StdConsole
from zkmigrate.zookeeper.clients.ensemble import Pace
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.progress import Interval

REFUSED = 6
STOPPED = 130
_BATCH = 50
_PROGRESS_S = 3.0
_CUT = "cutover.stop"
_KEPT = ("file", "sha256", "znodes", "bytes")
"""The journal's values for the file that keeps a subtree."""


@dataclass(frozen=True)
class Options:
    """The options of one call.

    accept: findings that the operator accepts, as ``ID:TARGET``. rate: znodes per second.
    """

    run_id: str = ""
    subtrees: tuple[str, ...] = ()
    all: bool = False
    yes: bool = False
    reason: str = ""
    accept: tuple[str, ...] = ()
    put_back: bool = False
    rate: float = 0.0

    @property
    def chooses(self) -> bool:
        return self.all or bool(self.subtrees)


@dataclass(frozen=True)
class Subtrees:
    """The subtrees of dest outside every chroot.

    dest_findings: findings for any deletion. verdicts: subtree → its own findings.
    """

    trees: Mapping[str, Subtree]
    dest_findings: tuple[Finding, ...]
    verdicts: Mapping[str, tuple[Finding, ...]]

    def reasons_against(self, path: str) -> tuple[Finding, ...]:
        """Return the findings that forbid a deletion of this subtree."""
        return blocking((*self.dest_findings, *self.verdicts[path]))


@dataclass
class Work:
    """One call of the verb, with all that it has opened. results: by subtree, for ``--json``."""

    setting: VerbContext
    options: Options
    inventory: Inventory
    dependent: AnyDependent
    look: Look
    journal: Journal
    dest: Dest
    run_dir: Path
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def history(self) -> History:
        return self.journal.history

    @property
    def by(self) -> dict[str, str]:
        return {"by": getpass.getuser(), "reason": " ".join(self.options.reason.split())}

    def cut(self) -> int | None:
        """Return the last zxid that dest had from source: the newest on its disks when it was stopped."""
        body = self.history.records().get(_CUT)
        tails = recorded(Stopped, body, self.history.run).tails if body else {}
        return max(tails.values(), default=None)

    def unfinished(self, path: str) -> Mapping[str, Any] | None:
        """Return the journaled begin of an unfinished deletion."""
        begun = self.history.cleaned.get(path)
        return begun if begun is not None and begun["event"] in ("begin", "stopped") else None

    def record(self, path: str, event: str, body: Mapping[str, Any]) -> None:
        self.journal.append("cleaned", {"subtree": path, "event": event, **self.by, **body})
        self.results[path] = {"event": event, **body}

    def known(self, path: str) -> rules.Marks | None:
        """Return the marks of the znodes that an unfinished deletion kept."""
        begun = self.unfinished(path)
        if begun is None:
            return None
        kept = read_kept(self.run_dir / begun["file"], begun["sha256"])
        return {one.node.path: one.node.mark for one in kept}

    def look_around(self) -> Subtrees:
        """Look at dest once, and judge every subtree."""
        self.dest.sync()
        using = users(self.inventory, self.dependent, self.look)
        chroots = {self.dependent.chroot(self.inventory)}
        chroots |= {r.value for r in using.chroots.values() if isinstance(r, Seen)}
        names = {path: self.dest.names(path) for path in rules.ancestors(chroots)}
        trees = {path: self.subtree_of(path, self.walked(path)) for path in rules.outside(names, chroots)}
        return self.judged(using, trees)

    def walked(self, path: str) -> Iterator[Node]:
        """Yield the znodes of a subtree, and print the progress."""
        interval = Interval(_PROGRESS_S)
        for number, node in enumerate(self.dest.walk(path), 1):
            yield node
            if interval.due():
                _say(self, f"{path}: {number} znodes listed")

    def subtree_of(self, path: str, nodes: Iterable[Node]) -> Subtree:
        above = self.dest.node(path.rpartition("/")[0] or "/")
        if above is None:
            raise ChangedError(f"the parent of {path} is not there any more")
        return rules.subtree_of(path, nodes, above, self.cut(), self.known(path))

    def judged(self, using: Users, trees: Mapping[str, Subtree]) -> Subtrees:
        who = ": ".join(text for text in (f"accepted by {self.by['by']}", self.by["reason"]) if text)
        cut = self.cut()

        def with_accepted(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
            return rules.with_accepted(findings, self.options.accept, who)

        return Subtrees(
            trees,
            with_accepted(rules.dest_findings(using.watches, using.clients, using.chroots)),
            {
                path: with_accepted(rules.subtree_findings(tree, cut, using.watches))
                for path, tree in trees.items()
            },
        )


def clean_up(setting: VerbContext, options: Options) -> int:
    """List the subtrees, or delete or put back the named ones, and return the exit code.

    Raises UsageError for a run that has not ended.
    """
    _check(setting, options)
    inventory, playbook = load(setting)
    dependent = dependent_of(playbook)
    run_dir = existing_run_dir(setting, options.run_id, inventory, playbook)
    clock = RealClock(setting.interrupt)
    with contextlib.ExitStack() as stack:
        alone = LocalLock(run_dir, setting.verb)
        stack.callback(alone.close)
        journal = Journal.open(run_dir, clock.wall)
        stack.callback(journal.close)
        runs.check_same(journal.history, playbook.id, inventories.digest(inventory))
        stand = runs.state_of(journal.history, playbook)
        if stand.state != "complete":
            raise UsageError(
                f"run {journal.history.run} has not ended ({stand.where}); needed: finalize is done. "
                "Next: zkmigrate status"
            )
        left = playbook.without(inventory, journal.history.retired)
        site = stack.enter_context(open_site(setting, left, run_dir.name))
        servers = [Server(host.address, inventory.dest.ports.client) for host in inventory.dest.hosts]
        there = stack.enter_context(dest(servers))
        work = Work(setting, options, left, dependent, site.look, journal, there, run_dir)
        return _put_all_back(work) if options.put_back else _delete_all(work)


def _check(setting: VerbContext, options: Options) -> None:
    if options.all and options.subtrees:
        raise UsageError("--all and --subtree exclude each other")
    if options.put_back and not options.chooses:
        raise UsageError("--put-back needs --subtree PATH, or --all")
    wrong = [word for word in options.accept if word.partition(":")[0] not in rules.ACCEPTABLE]
    if wrong:
        possible = ", ".join(f"{id}:TARGET" for id in rules.ACCEPTABLE)
        raise UsageError(f"--accept {wrong[0]} cannot be accepted. Possible: {possible}")
    if options.chooses and not options.reason.strip():
        raise UsageError("--reason is missing; needed: why, for the report")
    if options.chooses and not options.yes and (setting.as_json or not setting.interactive):
        raise UsageError("Cannot prompt. Pass --yes, or run on a terminal without --json.")


def _delete_all(work: Work) -> int:
    listed = work.look_around()
    chosen = _chosen(work, {*listed.trees, *(p for p in work.history.cleaned if work.unfinished(p))})
    wrong = [path for path in chosen if path in listed.trees and listed.reasons_against(path)]
    _show(work, listed)
    code = REFUSED if wrong else 0
    if wrong:
        _say(work, f"nothing was deleted: {', '.join(wrong)} may not go")
    elif chosen and not _agreed(work, "delete", chosen):
        code = STOPPED
    elif chosen:
        code = _each(work, chosen, lambda path: _delete(work, path))
    _close(work, listed, code)
    return code


def _each(work: Work, chosen: Sequence[str], act: Callable[[str], bool]) -> int:
    """Run `act` on one subtree after the other; a refused one does not stop the others.

    act: returns False if the operator asked to stop. Returns the exit code.
    """
    refused = False
    for path in chosen:
        try:
            if not act(path):
                return STOPPED
        except ChangedError as error:
            refused = True
            work.results.setdefault(path, {})["why"] = str(error)
            _say(work, f"{path} was stopped: {error}")
    return REFUSED if refused else 0


def _delete(work: Work, path: str) -> bool:
    """Keep, prove again, journal and delete a subtree.

    Returns False if the operator asked to stop. Raises ChangedError if the proof or a delete is refused.
    """
    work.dest.sync()
    nodes = list(work.walked(path))
    begun = work.unfinished(path)
    if begun is None and not nodes:
        raise ChangedError(f"{path} is not there any more")
    with _dropping_file(work) if begun is None else contextlib.nullcontext():
        begun = {key: begun[key] for key in _KEPT} if begun else _keep(work, nodes)
        if nodes:
            _prove_again(work, path, nodes)
    if nodes:
        work.record(path, "begin", {**begun, "accepted": list(work.options.accept)})
    with work.setting.interrupt.listening():  # from here on Ctrl-C waits for the end of a batch
        done = _delete_nodes(work, path, nodes)
    if done is None:
        return False
    gone = begun["znodes"] - done
    work.record(path, "done", {"znodes": done, "gone": gone})
    _say(work, f"{path} is deleted: {done} znodes now, {gone} were gone; kept in {begun['file']}")
    return True


def _delete_nodes(work: Work, path: str, nodes: Sequence[Node]) -> int | None:
    """Delete these znodes, the last first, and return how many existed.

    Returns None if the operator asked to stop.
    """
    progress = _Progress(work, path, len(nodes), "deleted")
    pace, done, order = Pace(work.options.rate / _BATCH), 0, nodes[::-1]
    try:
        for at in range(0, len(order), _BATCH):
            pace.wait()
            if work.setting.interrupt.wanted:
                work.record(path, "stopped", {"znodes": done, "why": "asked to stop"})
                _say(work, f"{path}: {done} of {len(nodes)} znodes deleted; the same command goes on")
                return None
            done += work.dest.delete(order[at : at + _BATCH])
            progress.at(done)
    except ChangedError as error:
        work.record(path, "stopped", {"znodes": done, "why": str(error)})
        raise
    return done


def _keep(work: Work, nodes: Sequence[Node]) -> dict[str, Any]:
    """Write the file from which the subtree can be put back."""
    name = _new_file(work)
    digest = write_kept(work.run_dir / name, work.dest.read(nodes))
    size = sum(node.size for node in nodes)
    return dict(zip(_KEPT, (name, digest, len(nodes), size), strict=True))


def _new_file(work: Work) -> str:
    """Return a file name that is not in the journal."""
    return f"clean-up-{work.history.entries}.jsonl"


@contextlib.contextmanager
def _dropping_file(work: Work) -> Iterator[None]:
    """Remove the file of a subtree whose deletion is refused before it begins."""
    try:
        yield
    except ChangedError:
        (work.run_dir / _new_file(work)).unlink(missing_ok=True)
        raise


def _prove_again(work: Work, path: str, nodes: Sequence[Node]) -> None:
    """Read all dest servers once more, after the question and the file.

    Raises ChangedError if a user of the subtree has appeared.
    """
    using = users(work.inventory, work.dependent, work.look)
    again = work.judged(using, {path: work.subtree_of(path, nodes)})
    if wrong := again.reasons_against(path):
        raise ChangedError("; ".join(finding_lines.finding(one) for one in wrong))


def _put_all_back(work: Work) -> int:
    chosen = _chosen(work, work.history.cleaned)
    for path in chosen:
        begun = work.history.cleaned[path]
        _say(work, f"{path}: {begun['znodes']} znodes, {begun['bytes']} bytes, from {begun['file']}")
    if not _agreed(work, "put back", chosen):
        return STOPPED
    code = _each(work, chosen, lambda path: _put_back(work, path))
    if work.setting.as_json:
        print_json(work.setting, {"run": work.history.run, "code": code, "put_back": work.results})
    return code


def _put_back(work: Work, path: str) -> bool:
    """Create the missing znodes, parents first; existing ones stay as they are."""
    begun = work.history.cleaned[path]
    kept = list(read_kept(work.run_dir / begun["file"], begun["sha256"]))
    work.record(path, "putting-back", {"znodes": len(kept)})
    progress = _Progress(work, path, len(kept), "put back")
    pace, made = Pace(work.options.rate / _BATCH), 0
    for at in range(0, len(kept), _BATCH):
        pace.wait()
        made += work.dest.create(batch := kept[at : at + _BATCH])
        progress.at(at + len(batch))
    work.record(path, "put-back", {"znodes": made, "there": len(kept) - made})
    _say(work, f"{path} is put back: {made} znodes created, {len(kept) - made} were there")
    return True


def _chosen(work: Work, possible: Any) -> tuple[str, ...]:
    if unknown := sorted(set(work.options.subtrees) - set(possible)):
        listed = ", ".join(sorted(possible)) or "none"
        raise UsageError(f"{unknown[0]} cannot be chosen. Possible: {listed}")
    return tuple(sorted(possible if work.options.all else set(work.options.subtrees)))


def _agreed(work: Work, what: str, chosen: Sequence[str]) -> bool:
    if work.options.yes or not chosen:
        return True
    setting, names = work.setting, " ".join(chosen)
    console = StdConsole(setting.stdin, setting.out)
    console.forget()
    typed = console.ask(f"To {what} these, type their names ({names}): ")
    if typed is not None and typed.split() == list(chosen):
        return True
    _say(work, "not agreed: nothing was changed")
    return False


def _say(work: Work, text: str) -> None:
    out = sys.stderr if work.setting.as_json else work.setting.out
    out.write(f"{text}\n")
    out.flush()


def _show(work: Work, listed: Subtrees) -> None:
    """Print the plan, before the question."""
    cut = work.cut()
    where = "an unknown zxid" if cut is None else format_zxid(cut)
    _say(work, f"subtrees of dest outside every chroot: {len(listed.trees)}; the cut was at {where}")
    for path, tree in listed.trees.items():
        may = "may NOT go" if listed.reasons_against(path) else "may go"
        again = ", its deletion has begun" if work.unfinished(path) else ""
        _say(
            work,
            f"  {path}: {tree.znodes} znodes, {tree.bytes} bytes, last written {_time(tree.changed_ms)} "
            f"(newest zxid {format_zxid(tree.newest)}), {len(tree.owned)} ephemerals: {may}{again}",
        )
    every = (*listed.dest_findings, *(f for of_tree in listed.verdicts.values() for f in of_tree))
    for line in finding_lines.whole([f for f in every if f.held is not Held.YES]):
        _say(work, line)


def _close(work: Work, listed: Subtrees, code: int) -> None:
    if not work.setting.as_json:
        return
    print_json(
        work.setting,
        {
            "run": work.history.run,
            "code": code,
            "subtrees": [_body(work, listed, path) for path in listed.trees],
            "findings": [encode_finding(f) for f in listed.dest_findings],
            "deleted": work.results,
        },
    )


def _body(work: Work, listed: Subtrees, path: str) -> dict[str, Any]:
    tree = listed.trees[path]
    return {
        "path": path,
        "may_go": not listed.reasons_against(path),
        "begun": work.unfinished(path) is not None,
        "znodes": tree.znodes,
        "bytes": tree.bytes,
        "newest": format_zxid(tree.newest),
        "changed": _time(tree.changed_ms),
        "ephemerals": len(tree.owned),
        "written": len(tree.written),
        "findings": [encode_finding(f) for f in listed.verdicts[path]],
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Progress:
    """Prints from time to time how much is done, and how long the rest will take."""

    def __init__(self, work: Work, path: str, total: int, did: str) -> None:
        self._work, self._path, self._total, self._did = work, path, total, did
        self._interval = Interval(_PROGRESS_S)

    def at(self, done: int) -> None:
        if done and self._interval.due():
            left = (self._total - done) * self._interval.elapsed_s / done
            so_far = f"{done} of {self._total} znodes {self._did}"
            _say(self._work, f"{self._path}: {so_far}, about {left:.0f} s left")
