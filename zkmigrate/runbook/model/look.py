"""Look: the only interface through which a step, fact or check observes the world.

Its methods query hosts, and ``ask`` sends the requests that other rooms define. ``runbook/site/observe.py``
is the real one. ``tests/world/model/look.py`` answers with the same wire text, so that every parser runs in
both. Hosts are named as in the inventory. All looks are read-only and have a deadline of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from zkmigrate.runbook.model.fact import Reading

T = TypeVar("T")


class Request(Generic[T]):
    """A typed question to a look, with an answer of type ``T``. The package that defines it also answers it.

    Each subclass is a frozen dataclass. answered_by: the method that answers, as
    ``module:Class.method``. Each look creates one instance, with the inventory and the look, and closes that
    instance at its own end. costs: the requests to servers that the question causes if it is repeated beside
    a long stage, in words.
    """

    answered_by: ClassVar[str]
    costs: ClassVar[str] = ""


@dataclass(frozen=True)
class DirEntry:
    """One entry of a directory.

    kind: ``f`` file, ``d`` directory, ``o`` other. size: bytes. changed_ns: ctime on the host's clock,
    nanoseconds since the epoch. Unlike mtime it changes when a file is put back. None over SFTP, which does
    not report it.
    """

    name: str
    kind: str
    size: int
    changed_ns: int | None
    mode: str = ""
    owner: str = ""
    group: str = ""


@dataclass(frozen=True)
class Pulse:
    """The result of asking one server whether it answers.

    - age_s: seconds since its last answer, 0 for now, None for never.
    - why: what went wrong this time, else empty.
    - took_s: seconds until this answer, including a new connection if needed.
    - apis: API key → smallest and largest version that the broker offered this time.
    """

    age_s: float | None
    why: str = ""
    took_s: float = 0.0
    apis: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def wrong(self) -> str:
        """The error and the age of the last answer, as text for a finding; empty without an error."""
        if not self.why:
            return ""
        since = "it has not answered yet" if self.age_s is None else f"last answer {self.age_s:.1f} s ago"
        return f"{self.why}; {since}"


@dataclass(frozen=True, slots=True)
class Volume:
    """The volume of a directory.

    mount: its mount point. total, free: bytes; free is what an ordinary account may fill.
    """

    mount: str
    total: int
    free: int


class RandomReader(Protocol):
    """Random access to one remote file; only reads at its end return fewer bytes than requested."""

    def size(self) -> int: ...
    def read(self, offset: int, length: int) -> bytes: ...


class Look(Protocol):
    """The interface that observes hosts and clusters; each method asks about one of them."""

    def now(self) -> float:
        """Return seconds on the operator's monotonic clock, comparable within one process only."""

    def wall(self) -> float:
        """Return seconds since the epoch, for messages and the journal."""

    def ask(self, request: Request[T]) -> T:
        """Return the answer to a request, whichever package defines it."""

    def zkm(self, host: str, *words: str) -> Reading[str]:
        """Return the output of a zkm-host verb that only reads, on a dest or broker host.

        Where zkm-host is not installed, the program is streamed to the host.
        """

    def program(self, channel: str, host: str, *words: str) -> Reading[str]:
        """Return the output of a verb that only reads, from the program with this ``channel`` on a host."""

    def file(self, host: str, path: str) -> Reading[bytes]:
        """Read a whole small file (≤ 1 MiB) of any host."""

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        """List a directory of any host."""

    def reader(self, host: str, path: str) -> RandomReader:
        """Return random access to a file of any host. Its reads raise ``HostError`` if the host fails."""

    def sockets(self, host: str) -> Reading[str]:
        """Return the output of ``ss -Htn state established`` on any host."""

    def processes(self, host: str) -> Reading[str]:
        """Return the output of ``ps -e -ww -o args=`` on any host, one command a line.

        It contains the processes that the ssh account can see.
        """

    def date(self, host: str) -> Reading[str]:
        """Return the output of ``date +%s.%N`` on any host, run by the ssh account's login shell."""

    def load_counters(self, host: str) -> Reading[str]:
        """Return counters of a host's disks and interfaces, for :func:`zkmigrate.hosts.facts.load.parse`.

        One command reads six files of /proc.
        """

    def metrics(self, url: str) -> Reading[str]:
        """Fetch the Prometheus text at a URL from the operator's machine.

        :func:`zkmigrate.hosts.facts.load.parse_metrics` reads it.
        """

    def addresses(self, host: str, name: str) -> Reading[tuple[str, ...]]:
        """Resolve a name on a host, or for host ``""`` on the operator's machine.

        Absent: the name has no address.
        """

    def here(self) -> Reading[tuple[str, ...]]:
        """Return the addresses of the operator's machine.

        First come the inventory's ``operator`` addresses that the machine has, then the addresses from which
        it sends to the hosts.
        """

    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
        """Return the volume of each of these directories of a host, by ``df``."""

    def produced(self) -> Mapping[str, Sequence[Pulse]]:
        """Return the records that the produce canary sent since the last call, by the broker that led them.

        The result is empty where no canary sends.
        """

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        """Call ``ask`` for several hosts at once, in a bounded pool; the result keeps their order."""
