"""An ensemble by its servers' answers to ``srvr`` and ``mntr``: who leads, what each has applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
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
    """The parsed answer. Absent: the server is up but does not serve. Unknown: ``denied`` for a word that is
    not in ``4lw.commands.whitelist``, ``garbled`` for an answer that does not parse."""
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
    """``srvr`` of each host; Absent: the server is up but does not serve. leader: the one host in mode leader
    or standalone; None: none or several."""

    servers: Mapping[str, Reading[Srvr]]
    leader: str | None

    def modes(self) -> dict[str, str]:
        """Host → mode, ``not serving``, or why that is unknown."""
        return {host: _mode(reading) for host, reading in self.servers.items()}

    def has_quorum(self) -> bool | None:
        """Whether a majority serves under one leader; None: hosts that did not answer decide it.

        A refused connection is an answer: nothing serves there. Followers serve only under a leader, so a
        majority of them is enough if their leader does not answer."""
        modes = self.modes().values()
        leading = sum(mode in ("leader", "standalone") for mode in modes)
        serving = leading + sum(mode == "follower" for mode in modes)
        unheard = sum(isinstance(r, Unknown) and r.cause != "refused" for r in self.servers.values())
        majority = len(self.servers) // 2 + 1
        if leading > 1 or serving + unheard < majority:
            return False
        if serving < majority:
            return None
        return leading == 1 or unheard > 0

    @property
    def leading(self) -> Srvr | None:
        """The leader's own answer."""
        reading = self.servers[self.leader] if self.leader is not None else None
        return reading.value if isinstance(reading, Seen) else None

    def zxids(self) -> dict[str, int]:
        """Zxids of the hosts that serve."""
        return {host: int(r.value.zxid) for host, r in self.servers.items() if isinstance(r, Seen)}


def _mode(reading: Reading[Srvr]) -> str:
    if isinstance(reading, Seen):
        return reading.value.mode
    return "not serving" if isinstance(reading, Absent) else str(reading)


def view(look: Look, hosts: Iterable[str]) -> EnsembleView:
    """Ask these hosts at once."""
    servers = look.each(hosts, lambda host: answer(look, host, "srvr", parse_srvr))
    leading = [
        host
        for host, reading in servers.items()
        if isinstance(reading, Seen) and reading.value.mode in ("leader", "standalone")
    ]
    return EnsembleView(servers, leading[0] if len(leading) == 1 else None)


def source_view(inventory: Inventory, look: Look) -> EnsembleView:
    """Every source host."""
    return view(look, inventory.source_names)


def dest_view(inventory: Inventory, look: Look) -> EnsembleView:
    """Every dest host: observers while joined, participants once reformed."""
    return view(look, inventory.dest_names)


def learners(look: Look, view: EnsembleView) -> int | None:
    """How many learners the leader counts; None where there is no leader, or it does not tell."""
    mntr = leader_mntr(look, view.leader) if view.leader is not None else None
    return mntr.value.learners if isinstance(mntr, Seen) else None


def leader_mntr(look: Look, host: str) -> Reading[Mntr]:
    """``mntr`` of a leader, which has its learners."""
    return answer(look, host, "mntr", parse_mntr)
