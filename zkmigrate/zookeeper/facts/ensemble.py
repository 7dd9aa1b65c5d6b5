"""Facts about an ensemble from ``srvr`` and ``mntr``: its leader, and what each server has applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, get_args

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.model.fact import Absent, NotHeard, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.four_letter_words import (
    Mntr,
    NotServingError,
    NotWhitelistedError,
    Srvr,
    parse_mntr,
    parse_srvr,
)
from zkmigrate.zookeeper.questions import SendWord

T = TypeVar("T")

NOT_SERVING = "the server runs but does not serve: no quorum, or still syncing"


def answer(look: Look, host: str, word: str, parse: Callable[[str], T]) -> Reading[T]:
    """Send a four-letter word to a host and return the parsed answer.

    The result is Absent if the server runs but does not serve, Unknown (denied) if the word is not in
    ``4lw.commands.whitelist``, and Unknown (garbled) if the answer does not parse.
    """
    reading = look.ask(SendWord(host, word))
    if not isinstance(reading, Seen):
        return reading
    try:
        return Seen(parse(reading.value))
    except NotServingError:
        return Absent(NOT_SERVING)
    except NotWhitelistedError as error:
        return Unknown("denied", str(error))
    except ZkDataError as error:
        return Unknown("garbled", str(error))


@dataclass(frozen=True)
class EnsembleView:
    """The answers of an ensemble's servers to ``srvr``.

    servers: the answer of each host; Absent if the server runs but does not serve. leader: the only host in
    mode leader or standalone; None if there is none or several. observers: the hosts that never have a vote.
    """

    servers: Mapping[str, Reading[Srvr]]
    leader: str | None
    observers: frozenset[str] = frozenset()

    def modes(self) -> dict[str, str]:
        """Return the mode of each host, ``not serving``, or the reason why the mode is unknown."""
        return {host: _mode(reading) for host, reading in self.servers.items()}

    @property
    def complete(self) -> bool:
        """Whether one server leads, all others with a vote follow, and those without a vote observe."""
        modes = self.modes()
        voting = sorted(mode for host, mode in modes.items() if host not in self.observers)
        observing = all(modes[host] == "observer" for host in self.observers)
        return observing and voting == sorted(["leader", *["follower"] * self.followers])

    @property
    def followers(self) -> int:
        """The number of servers with a vote that do not lead if the ensemble is complete."""
        return len(self.servers) - len(self.observers) - 1

    @property
    def wanted(self) -> str:
        """The modes of a complete ensemble, as text."""
        observers = f", {len(self.observers)} observers" if self.observers else ""
        return f"1 leader, {self.followers} followers{observers}"

    def has_quorum(self) -> bool | None:
        """Return whether a majority serves under one leader; None if that depends on hosts without an answer.

        Hosts that never have a vote do not count.
        A refused connection is an answer: nothing serves there. Followers serve only under a leader, so a
        majority of them is enough if their leader does not answer.
        """
        voters = {host: reading for host, reading in self.servers.items() if host not in self.observers}
        modes = [_mode(reading) for reading in voters.values()]
        leading = sum(mode in ("leader", "standalone") for mode in modes)
        serving = leading + sum(mode == "follower" for mode in modes)
        unknown = sum(isinstance(r, Unknown) and r.cause != "refused" for r in voters.values())
        majority = len(voters) // 2 + 1
        if leading > 1 or serving + unknown < majority:
            return False
        if serving < majority:
            return None
        return leading == 1 or unknown > 0

    def without(self, host: str) -> EnsembleView:
        """Return the view as it is without this host."""
        return replace(self, servers={h: r for h, r in self.servers.items() if h != host})

    @property
    def leader_first(self) -> tuple[str, ...]:
        """The hosts in the order in which to ask them: the leader, then the others."""
        return tuple(sorted(self.servers, key=lambda host: host != self.leader))

    @property
    def leading(self) -> Srvr | None:
        """The leader's own answer; None without a leader."""
        reading = self.servers[self.leader] if self.leader is not None else None
        return reading.value if isinstance(reading, Seen) else None

    def zxids(self) -> dict[str, int]:
        """Return the zxid of each host that serves."""
        return {host: int(r.value.zxid) for host, r in self.servers.items() if isinstance(r, Seen)}


@dataclass(frozen=True)
class Down:
    """The one server with a vote that does not serve, while all others do.

    why: its mode, or why it does not answer. serving: the number of servers with a vote that serve. spare:
    how many of them the quorum does not need.
    """

    host: str
    why: str
    serving: int
    spare: int


def server_down(view: EnsembleView, leader: Reading[Mntr]) -> Down | str:
    """Return the one server that is certainly down, or why that cannot be said of any server.

    A server that only this machine cannot reach is not down: it may have clients, and the leader counts it as
    a follower in sync. So the leader must count no other follower than those that answer. leader: ``mntr`` of
    the leader. The text is empty if every server answers.
    """
    silent = {host: reading for host, reading in view.servers.items() if not isinstance(reading, Seen)}
    if not silent:
        return ""
    if len(silent) > 1:
        return f"{len(silent)} servers do not serve: {', '.join(silent)}"
    ((host, reading),) = silent.items()
    rest = view.without(host)
    if host in view.observers:
        return "it has no vote, and only a server with a vote can be accepted"
    if not rest.complete:
        return "the other servers are not one leader with followers"
    if isinstance(reading, Unknown) and reading.cause not in get_args(NotHeard):
        return "its answer does not show that it is down"
    serving, majority = rest.followers + 1, (rest.followers + 2) // 2 + 1
    if serving < majority:
        return f"the number of servers that serve is {serving}, and a majority needs {majority}"
    synced = leader.value.synced_followers if isinstance(leader, Seen) else None
    if synced is None:
        return f"{view.leader} does not report its followers in sync"
    if synced != rest.followers:
        return f"{view.leader} counts {synced} followers in sync, and {rest.followers} answer"
    return Down(host, _mode(reading), serving, serving - majority)


def _mode(reading: Reading[Srvr]) -> str:
    if isinstance(reading, Seen):
        return reading.value.mode
    return "not serving" if isinstance(reading, Absent) else str(reading)


def view(look: Look, hosts: Iterable[str], observers: frozenset[str] = frozenset()) -> EnsembleView:
    """Read ``srvr`` from all these hosts in parallel. observers: the hosts that never have a vote."""
    servers = look.each(hosts, lambda host: answer(look, host, "srvr", parse_srvr))
    leading = [
        host
        for host, reading in servers.items()
        if isinstance(reading, Seen) and reading.value.mode in ("leader", "standalone")
    ]
    return EnsembleView(servers, leading[0] if len(leading) == 1 else None, observers)


def source_view(inventory: Inventory, look: Look) -> EnsembleView:
    """Read ``srvr`` from every source host."""
    observers = frozenset(host.name for host in inventory.source.hosts if host.observer)
    return view(look, inventory.source_names, observers)


def dest_view(inventory: Inventory, look: Look) -> EnsembleView:
    """Read ``srvr`` from every dest host.

    Dest hosts are observers while they are joined to source, and participants once they form an ensemble.
    """
    return view(look, inventory.dest_names)


def learners(leader: Reading[Mntr]) -> int | None:
    """Return how many learners the leader reports beside its followers in sync: observers, mostly.

    Followers are left out because one may join or leave at any time. leader: its ``mntr``. Returns None if
    the leader does not report the numbers.
    """
    if not isinstance(leader, Seen):
        return None
    counted, synced = leader.value.learners, leader.value.synced_followers
    return None if counted is None or synced is None else counted - synced


def mntr_of_leader(look: Look, view: EnsembleView) -> Reading[Mntr]:
    """Read ``mntr`` of the leader; Absent if there is no single leader."""
    return Absent("no single leader") if view.leader is None else leader_mntr(look, view.leader)


def leader_mntr(look: Look, host: str) -> Reading[Mntr]:
    """Read ``mntr`` of a leader, which reports its learners."""
    return answer(look, host, "mntr", parse_mntr)
