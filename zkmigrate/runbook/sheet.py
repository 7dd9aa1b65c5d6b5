"""What the page of one step is made from, and the blocks that its changes become.

A block is what is pasted at once: the n-th change of every host together, or one change of one host.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from zkmigrate.engine.plan import PlannedStep, without_secrets
from zkmigrate.inventory import Inventory
from zkmigrate.model.change import Arm, Change, Changes, PutFile
from zkmigrate.model.step import Way
from zkmigrate.runbook.commands import Place, in_words, line, said
from zkmigrate.ui.clean import clean

STOPPED = "read what the host said; mend it and run the step again, or walk back"
HIDDEN = "(hidden)"
_END = "END-OF-FILE"


@dataclass(frozen=True)
class Block:
    """One fenced block: what is pasted at once.

    hosts: whom it is about. expect: what it must say, in words. otherwise: what to do if it says something
    else.
    """

    hosts: tuple[str, ...]
    text: tuple[str, ...]
    expect: str = ""
    otherwise: str = STOPPED
    way: Way = Way.FORWARD


@dataclass(frozen=True)
class Sheet:
    """What the page of one step is made from. back: the changes that undo it, per host."""

    inventory: Inventory
    run: str
    stage: str
    rehearsal: bool
    step: PlannedStep
    back: Mapping[str, Changes] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.stage}.{self.step.id}"

    @property
    def dest(self) -> tuple[str, ...]:
        return self.inventory.dest_names

    @property
    def changes(self) -> dict[str, Changes]:
        """The changes going forward, per host."""
        return {host: tuple(c.change for c in planned) for host, planned in self.step.targets.items()}

    def place(self, way: Way, alone: str = "") -> Place:
        return Place(self.run, self.id, way, alone)


def waves(s: Sheet, changes: Mapping[str, Changes], way: Way) -> tuple[Block, ...]:
    """The n-th change of every host at once, one block each."""
    blocks = []
    for number in range(max((len(each) for each in changes.values()), default=0)):
        wave = {host: each[number] for host, each in changes.items() if number < len(each)}
        blocks.append(_wave(s, wave, number, way))
    return tuple(blocks)


def _wave(s: Sheet, wave: Mapping[str, Change], number: int, way: Way) -> Block:
    place = s.place(way)
    text: list[str] = (
        [f'next; keep "{place.leg}=$LEG"' if way is Way.FORWARD else "next"] if number == 0 else []
    )
    hosts, made = tuple(wave), dict[tuple[str, ...], str]()
    for host, change in wave.items():
        files, file, digest = local_file(change, s.id if not made else f"{s.id}.{host}")
        if (same := made.setdefault(tuple(files[1:]), file)) != file:
            files, file, digest = [], same, digest.replace(file, same)
        text += files
        text.append(f"{line(place, change, place.operation(host, number + 1), file, digest)} &")
    patterns: dict[str, list[str]] = {}
    for host, change in wave.items():
        patterns.setdefault(said(change, way), []).append(host)
    text += _joined([f"{waits(p)} {shlex.quote(p)} {' '.join(each)}" for p, each in patterns.items()])
    expect = ", ".join(f"{in_words(p)} from {', '.join(each)}" for p, each in patterns.items())
    return Block(hosts, tuple(text), f"{expect}; then `OK` with their names", way=way)


def _joined(gates: list[str]) -> list[str]:
    """Gates one after the other, none of them skipped."""
    return [*(f"{gate} &&" for gate in gates[:-1]), gates[-1]]


def waits(pattern: str) -> str:
    return "went" if "refused" in pattern else "say"


def local_file(change: Change, name: str) -> tuple[list[str], str, str]:
    """The lines that make the local file a change takes its content from, its name, and words for its digest
    where the page does not hold every value."""
    if isinstance(change, Arm):
        return heredoc(f"{name}.spec", change.spec), f"{name}.spec", ""
    if not isinstance(change, PutFile):
        return [], "", ""
    file = f"{name}.{change.path.rpartition('/')[2]}"
    shown = without_secrets(change.content)
    if shown.encode() == change.content:
        return heredoc(file, shown), file, ""
    keys = [text.partition("=")[0] for text in shown.splitlines() if text.endswith(f"={HIDDEN}")]
    return [*heredoc(file, shown), *(f"fill {file} {key}" for key in keys)], file, f'"$(digest {file})"'


def heredoc(file: str, content: str) -> list[str]:
    """Lines that make a file of exactly this content. It stands there as text, or in base64 where a terminal
    would obey it, or where a line of it would end the file or the box and be typed as a command."""
    lines = content.split("\n")
    ends = any(text == _END or text.startswith("```") for text in lines)
    if not ends and lines[-1] == "" and clean(content) == content:
        return [f"cat >{file} <<'{_END}'", *lines[:-1], _END]
    return [
        f"# {file} stands here in base64, for as text it is not fit for a page. Escaped it reads:",
        *(f"#   {clean(text)}" for text in lines),
        f"base64 -d >{file} <<'{_END}'",
        *base64.encodebytes(content.encode()).decode().splitlines(),
        _END,
    ]


def one_by_one(s: Sheet, host: str, changes: Changes, way: Way) -> tuple[Block, ...]:
    """Every change of one host in one block each."""
    place, blocks = s.place(way, host), []
    for number, change in enumerate(changes, 1):
        text = []
        if number == 1:
            text.append(f'next; keep "{place.leg}=$LEG"' if way is Way.FORWARD else "next")
        files, file, digest = local_file(change, f"{s.id}.{host}")
        text += [*files, line(place, change, place.operation(host, number), file, digest)]
        text.append(f"{waits(said(change, way))} {shlex.quote(said(change, way))} {host}")
        blocks.append(
            Block((host,), tuple(text), f"{in_words(said(change, way))}, then `OK {host}`", way=way)
        )
    return tuple(blocks)
