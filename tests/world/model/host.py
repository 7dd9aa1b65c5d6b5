"""A model host: files, one unit, and zkm-host's own record. What each verb does is in
``tests/world/model/program.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.world.model.disk import Disk
from zkmigrate.runbook.model.change import SetService
from zkmigrate.runbook.model.look import DirEntry

JVM_START_S = 1.0
PID = 100
"""Of the one service of a host."""


@dataclass
class File:
    """A file: content, mode as octal text, ``user:group``.

    changed: when it was last put or put back, seconds since the epoch.
    """

    content: bytes
    mode: str
    owner: str
    changed: float = 0.0


@dataclass
class KernelSet:
    """An ipset whose entries end by themselves: ``until`` seconds of world time, None = permanent."""

    filled: bool = False
    until: float | None = None

    def entries(self, now: float, count: int) -> int:
        return count if self.holds(now) else 0

    def holds(self, now: float) -> bool:
        return self.filled and (self.until is None or now < self.until)

    def fill(self, until: float | None) -> None:
        self.filled, self.until = True, until

    def empty(self) -> None:
        self.filled, self.until = False, None


@dataclass
class Host:
    """One host. before: before-images by operation id. ops: intent, exit code and output by operation id.

    aside: operation id → path moved.
    skew_s: how far its wall clock is ahead of the operator's; it dates files, phases and answers.
    written: path, time of change and the world's time of the file that was put or put back last.
    starts: how many processes there have been: two of them may start in the same moment of the world.
    reloads: how often one of them was told to read its file again.
    undying_sockets: client sockets that no kill ends, as on a kernel without ``ss -K``.
    beside: the dest host on whose machine this broker is: they have their files and zkm-host in common.
    user: the number of the user as which its service runs.
    systemd: without it the service answers only to commands that a call or the spec brings along.
    """

    name: str
    address: str
    files: dict[str, File] = field(default_factory=dict)
    running: bool = False
    started: float = 0.0
    starts: int = 0
    reloads: int = 0
    aside: dict[str, str] = field(default_factory=dict)
    program: bytes = b""
    fencing: int = 0
    ops: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    before: dict[str, tuple[str, File | Disk | dict[str, File] | None]] = field(default_factory=dict)
    boot: str = ""
    skew_s: float = 0.0
    systemd: bool = True
    undying_sockets: int = 0
    phase: str = "idle"
    phase_since: float = 0.0
    lapsed: bool = False
    armed: bool = False
    rules_on_top: bool = True
    spec: dict[str, str] = field(default_factory=dict)
    fence: KernelSet = field(default_factory=KernelSet)
    cut: KernelSet = field(default_factory=KernelSet)
    cut_since: float = 0.0
    disk: Disk | None = None
    image: Disk | None = None
    image_state: str = "none"
    go: tuple[str, tuple[str, ...], int, float] | None = None
    served_since: float | None = None
    finisher: str = "none"
    lock: tuple[str, str, int] | None = None
    written: tuple[str, float, float] | None = None
    beside: Host | None = None
    user: int = 999

    @property
    def installed(self) -> bytes:
        """The zkm-host on its machine."""
        return (self.beside or self).program

    @installed.setter
    def installed(self, program: bytes) -> None:
        (self.beside or self).program = program

    def set_phase(self, phase: str, now: float) -> None:
        self.phase, self.phase_since = phase, now

    def start(self, now: float) -> None:
        self.running, self.started = True, now
        self.starts += 1

    def serve(self, change: SetService, now: float) -> None:
        """What systemd does, or the service's own commands."""
        if change.action in ("start", "restart"):
            if change.action == "restart" or not self.running:
                self.start(now)
                if self.disk is None and change.unit.startswith("zookeeper"):
                    self.disk = Disk()
        elif change.action == "reload":
            if self.running:
                self.reloads += 1
            else:
                self.start(now)
        elif change.action in ("stop", "kill"):
            self.stop()

    def stop(self) -> None:
        self.running = False
        self.served_since = None

    def ready(self, now: float) -> bool:
        """Whether the process has had time to come up."""
        return self.running and now >= self.started + JVM_START_S


def entries(files: Mapping[str, File], path: str) -> dict[str, DirEntry]:
    """What lies in a directory, by name. A directory is as old as the newest file below it."""
    found: dict[str, DirEntry] = {}
    for name, file in files.items():
        if not name.startswith(f"{path}/"):
            continue
        head, slash, _ = name[len(path) + 1 :].partition("/")
        changed = round(file.changed * 1e9)
        if slash:
            newest = max(changed, (found[head].changed_ns or 0) if head in found else 0)
            found[head] = DirEntry(head, "d", 4096, newest)
        else:
            found[head] = DirEntry(head, "f", len(file.content), changed, file.mode, *file.owner.split(":"))
    return found
