"""Look: the only way in which a step, fact or check sees the world.

Its methods ask hosts, and ``ask`` sends the requests that other rooms define. ``runbook/site/observe.py`` is
the real one. ``tests/world/model/look.py`` answers with the same wire text, so that every parser runs in
both. Hosts are named as in the inventory. All looks are read-only and have a deadline of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from zkmigrate.runbook.model.fact import Reading

T = TypeVar("T")


class Request(Generic[T]):
    """A question that a look answers with a ``T``. Its room defines it and answers it.

    Each subclass is a frozen dataclass. answered_by: ``module:Class.method``. The class is made once for each
    look, with the inventory and that look, and is closed with it. The method takes the request. costs: what
    the question asks of how many servers, if it is repeated beside a long stage.
    """

    answered_by: ClassVar[str]
    costs: ClassVar[str] = ""


@dataclass(frozen=True)
class DirEntry:
    """One entry of a directory. kind: ``f`` file, ``d`` directory, ``o`` other. size: bytes. changed_ns:
    ctime on the host's clock, nanoseconds since the epoch. Unlike mtime it changes when a file is put back.
    None over SFTP, which does not tell it."""

    name: str
    kind: str
    size: int
    changed_ns: int | None
    mode: str = ""
    owner: str = ""
    group: str = ""


@dataclass(frozen=True)
class Pulse:
    """One server's answer. age_s: seconds since its last answer, 0 for now, None for never. why: what went
    wrong this time, else empty. took_s: how long this answer took, with a new connection if needed. apis: API
    key → smallest and largest version that the broker offered this time."""

    age_s: float | None
    why: str = ""
    took_s: float = 0.0
    apis: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def wrong(self) -> str:
        """What went wrong and since when, for a finding; empty when nothing did."""
        if not self.why:
            return ""
        since = "it has not answered yet" if self.age_s is None else f"last answer {self.age_s:.1f} s ago"
        return f"{self.why}; {since}"


@dataclass(frozen=True, slots=True)
class Volume:
    """mount: its mount point. total, free: bytes; free is what an ordinary account may fill."""

    mount: str
    total: int
    free: int


class RandomReader(Protocol):
    """Random access to one remote file; reads are short at its end only."""

    def size(self) -> int: ...
    def read(self, offset: int, length: int) -> bytes: ...


class Look(Protocol):
    """Every method is one question to one host or cluster."""

    def now(self) -> float:
        """Seconds on the operator's monotonic clock; comparable within one process only."""

    def wall(self) -> float:
        """Seconds since the epoch, for messages and the journal."""

    def ask(self, request: Request[T]) -> T:
        """Answer a question of any room."""

    def zkm(self, host: str, *words: str) -> Reading[str]:
        """Output of a reading verb of zkm-host on a dest or broker host (streamed where not installed)."""

    def program(self, channel: str, host: str, *words: str) -> Reading[str]:
        """Output of a reading verb of the program that takes the changes of a host with this ``channel``."""

    def file(self, host: str, path: str) -> Reading[bytes]:
        """A whole small file (≤ 1 MiB) of any host."""

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        """A directory of any host."""

    def reader(self, host: str, path: str) -> RandomReader:
        """Random access to a file of any host; reads raise ``HostError`` when the host fails them."""

    def sockets(self, host: str) -> Reading[str]:
        """``ss -Htn state established`` of any host, as text."""

    def processes(self, host: str) -> Reading[str]:
        """``ps -e -ww -o args=`` of any host, as the ssh account sees it: one command a line."""

    def date(self, host: str) -> Reading[str]:
        """``date +%s.%N`` of any host, by the ssh account's login shell."""

    def load_counters(self, host: str) -> Reading[str]:
        """Counters of a host's disks and interfaces, as text for :func:`zkmigrate.hosts.facts.load.parse`.
        One command reads six files of /proc."""

    def metrics(self, url: str) -> Reading[str]:
        """Fetch the Prometheus text at a URL from the operator's machine, for
        :func:`zkmigrate.hosts.facts.load.parse_metrics`."""

    def addresses(self, host: str, name: str) -> Reading[tuple[str, ...]]:
        """The addresses of a name on a host, or for host ``""`` on the operator's machine; Absent: it has
        none."""

    def here(self) -> Reading[tuple[str, ...]]:
        """The operator's machine: the inventory's ``operator`` addresses that it has, then those it sends
        from towards the hosts."""

    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
        """The volume of each of these directories of a host, by ``df``."""

    def produced(self) -> Mapping[str, Sequence[Pulse]]:
        """The produce canary's records since the last call, by the broker that led them; nothing where no
        canary sends."""

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        """Ask several hosts at once through a bounded pool; the result keeps their order."""
