"""The changes of one step, and the boxes that they become on the page.

A box is pasted at once: the n-th change of every host together, or one change of one host.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from zkmigrate.clean import clean
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import BOOTSTRAP
from zkmigrate.runbook.byhand.commands import Position, command_line, readable, reply_pattern
from zkmigrate.runbook.engine.plan import PlannedStep, command, without_secrets
from zkmigrate.runbook.model.by_hand import Block
from zkmigrate.runbook.model.change import (
    Arm,
    Change,
    Changes,
    ClusterChange,
    HostChange,
    InstallProgram,
    PutFile,
)
from zkmigrate.runbook.model.step import Way

HIDDEN = "(hidden)"
_END = "END-OF-FILE"


@dataclass(frozen=True)
class Sheet:
    """Implements :class:`zkmigrate.runbook.model.by_hand.Sheet`. back: the changes that undo the step, per
    target."""

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
    def changes(self) -> dict[str, Changes]:
        """The forward changes, per target."""
        return {host: tuple(c.change for c in planned) for host, planned in self.step.targets.items()}

    def position(self, way: Way, host: str = "") -> Position:
        return Position(self.run, self.id, way, host, self.inventory.programs.get("gateway"))

    def hosts(self, way: Way) -> tuple[str, ...]:
        names = tuple(name for name, changes in self._changes(way).items() if any(map(_on_host, changes)))
        return names if way is Way.FORWARD else names[::-1]

    def waves(self, way: Way) -> tuple[Block, ...]:
        blocks: list[Block] = []
        for number, wave in self._waves(way):
            on_hosts = {target: change for target, change in wave.items() if _on_host(change)}
            if not on_hosts:
                continue
            if all(isinstance(change, InstallProgram) for change in on_hosts.values()):
                blocks += _install(self, tuple(on_hosts))
            else:
                blocks.append(self._wave(on_hosts, number, way, first=not blocks))
        return (*blocks, *self.on_clusters(way))

    def alone(self, host: str, way: Way, made: Mapping[str, str] | None = None) -> tuple[Block, ...]:
        position, blocks = self.position(way, host), []
        for number, change in enumerate(self._changes(way)[host], 1):
            assert _on_host(change)
            text = [_first_line(position)] if number == 1 else []
            files, file, digest = _local_file(change, f"{self.id}.{host}", made or {})
            text += [*files, command_line(position, change, position.operation(host, number), file, digest)]
            text.append(_check(reply_pattern(change, way), host))
            expect = f"{readable(reply_pattern(change, way))}, then `OK {host}`"
            blocks.append(Block((host,), tuple(text), expect, way=way))
        return tuple(blocks)

    def on_clusters(self, way: Way) -> tuple[Block, ...]:
        blocks = []
        for _, wave in self._waves(way):
            kinds: dict[type[ClusterChange], list[ClusterChange]] = {}
            for change in wave.values():
                if isinstance(change, ClusterChange):
                    kinds.setdefault(type(change), []).append(change)
            for kind, changes in kinds.items():
                names = tuple(dict.fromkeys(change.where for change in changes))
                text = _chained([command(c).replace(BOOTSTRAP, self._broker, 1) for c in changes])
                blocks.append(Block(names, tuple(text), kind.expect, way=way))
        return tuple(blocks)

    @property
    def _broker(self) -> str:
        return next((broker.endpoint for broker in self.inventory.brokers), BOOTSTRAP)

    def _changes(self, way: Way) -> Mapping[str, Changes]:
        return self.changes if way is Way.FORWARD else self.back

    def _waves(self, way: Way) -> list[tuple[int, dict[str, Change]]]:
        """(number from 0, the change of that number of each target that has one)."""
        by_target = self._changes(way)
        most = max(map(len, by_target.values()), default=0)
        return [
            (n, {host: each[n] for host, each in by_target.items() if n < len(each)}) for n in range(most)
        ]

    def _wave(self, wave: Mapping[str, HostChange], number: int, way: Way, *, first: bool) -> Block:
        position = self.position(way)
        text: list[str] = [_first_line(position)] if first else []
        hosts, local_files = tuple(wave), dict[tuple[str, ...], str]()
        for host, change in wave.items():
            files, file, digest = _local_file(change, self.id if not local_files else f"{self.id}.{host}", {})
            if (same := local_files.setdefault(tuple(files[1:]), file)) != file:
                files, file, digest = [], same, digest.replace(file, same)
            text += files
            text.append(
                f"{command_line(position, change, position.operation(host, number + 1), file, digest)} &"
            )
        patterns: dict[str, list[str]] = {}
        for host, change in wave.items():
            patterns.setdefault(reply_pattern(change, way), []).append(host)
        text += _chained([_check(pattern, *each) for pattern, each in patterns.items()])
        expect = ", ".join(f"{readable(p)} from {', '.join(each)}" for p, each in patterns.items())
        return Block(hosts, tuple(text), f"{expect}; then `OK` with their names", way=way)


def _on_host(change: Change) -> TypeGuard[HostChange]:
    return not isinstance(change, ClusterChange)


def _first_line(position: Position) -> str:
    return f'next; keep "{position.leg}=$LEG"' if position.way is Way.FORWARD else "next"


def _install(s: Sheet, hosts: tuple[str, ...]) -> tuple[Block, ...]:
    """Boxes that install the program: the hosts have no zkm-host yet that could take it."""
    program, rules = zkm_host.INSTALLED_PATH, zkm_host.SUDOERS_PATH
    names = " ".join(hosts)
    copy = (*(f"give zkm-host {host} 'umask 077; cat >zkm-host.new' &" for host in hosts), f"say '' {names}")
    sudoers = (
        *heredoc("sudoers", zkm_host.sudoers(s.inventory.ssh.user)),
        *(
            f"give sudoers {host} 'umask 077; cat >zkm-sudoers.new && sudo -n visudo -cqf zkm-sudoers.new' &"
            for host in hosts
        ),
        f"say '' {names}",
    )
    place = (
        *(
            f"at {host} 'sudo -n install -o root -g root -m 0755 zkm-host.new {program} && "
            f"sudo -n install -o root -g root -m 0440 zkm-sudoers.new {rules} && "
            f"rm zkm-host.new zkm-sudoers.new && sha256sum {program}' &"
            for host in hosts
        ),
        f'say "^$(digest zkm-host) " {names}',
    )
    return (
        Block(hosts, copy, f"`OK {names}`"),
        Block(hosts, sudoers, f"`OK {names}`; visudo has read the file"),
        Block(hosts, place, f"the digest of the program, then `OK {names}`"),
    )


def _chained(checks: list[str]) -> list[str]:
    """Checks joined by ``&&``, so that none is skipped."""
    return [*(f"{check} &&" for check in checks[:-1]), checks[-1]]


def _check(pattern: str, *hosts: str) -> str:
    return f"{'went' if 'refused' in pattern else 'say'} {shlex.quote(pattern)} {' '.join(hosts)}"


def _local_file(change: Change, name: str, made: Mapping[str, str]) -> tuple[list[str], str, str]:
    """The lines that make the local file with a change's content, the file's name, and shell words for its
    digest where the page hides a value. made: existing local files, by the path they are for."""
    if isinstance(change, Arm):
        return heredoc(f"{name}.spec", change.spec), f"{name}.spec", ""
    if not isinstance(change, PutFile):
        return [], "", ""
    if ready := made.get(change.path):
        return [], ready, f'"$(digest {ready})"'
    file = f"{name}.{change.path.rpartition('/')[2]}"
    shown = without_secrets(change.content)
    if shown.encode() == change.content:
        return heredoc(file, shown), file, ""
    keys = [text.partition("=")[0] for text in shown.splitlines() if text.endswith(f"={HIDDEN}")]
    return [*heredoc(file, shown), *(f"fill {file} {key}" for key in keys)], file, f'"$(digest {file})"'


def heredoc(file: str, content: str) -> list[str]:
    """Lines that make a file of exactly this content: as text; in base64 where a terminal would obey the
    text, or a line of it would end the file or the box."""
    lines = content.split("\n")
    ends = any(text == _END or text.startswith("```") for text in lines)
    if not ends and lines[-1] == "" and clean(content) == content:
        return [f"cat >{file} <<'{_END}'", *lines[:-1], _END]
    return [
        f"# {file} in base64, because as text it is not safe on a page. Escaped it reads:",
        *(f"#   {clean(text)}" for text in lines),
        f"base64 -d >{file} <<'{_END}'",
        *base64.encodebytes(content.encode()).decode().splitlines(),
        _END,
    ]
