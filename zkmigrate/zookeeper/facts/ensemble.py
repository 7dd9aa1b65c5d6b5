"""An ensemble as its servers answer ``srvr`` and ``mntr``: who leads, what each has applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import Look
from zkmigrate.zookeeper.data.four_letter_words import Mntr, Srvr, parse_mntr, parse_srvr
from zkmigrate.zookeeper.facts.four_letter_answers import answer


@dataclass(frozen=True)
class EnsembleView:
    """``srvr`` of each host, asked at once; Absent where a server is up but does not serve.

    leader: the one host that says leader or standalone; None when none does or several do.
    """

    servers: Mapping[str, Reading[Srvr]]
    leader: str | None

    def modes(self) -> dict[str, str]:
        """Host → mode, ``not serving``, or why it is unknown."""
        return {host: _mode(reading) for host, reading in self.servers.items()}

    def has_quorum(self) -> bool | None:
        """Whether a majority serves under one leader; None when those that were not heard decide it.

        A host that refuses the connection was heard: nothing serves there. Followers serve only under a
        leader, so a majority of them is enough while their leader is not heard.
        """
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
        """Host → zxid, of the hosts that serve."""
        return {host: int(r.value.zxid) for host, r in self.servers.items() if isinstance(r, Seen)}


def _mode(reading: Reading[Srvr]) -> str:
    if isinstance(reading, Seen):
        return reading.value.mode
    return "not serving" if isinstance(reading, Absent) else str(reading)


def view(look: Look, hosts: Iterable[str]) -> EnsembleView:
    """Ask these hosts who they are."""
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
    """``mntr`` of a server, here asked of a leader for its learners."""
    return answer(look, host, "mntr", parse_mntr)
