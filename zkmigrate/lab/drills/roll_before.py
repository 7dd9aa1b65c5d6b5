"""Cases before the roll: what the preflight must refuse, the way back from install, join and rehearsal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from zkmigrate.lab import fault
from zkmigrate.lab.drills.roll_site import (
    FRESH,
    JOINED,
    REHEARSED,
    RollSite,
    comes,
    ended,
    must,
    named,
    waves,
)
from zkmigrate.lab.operator import Typing
from zkmigrate.lab.spec import ELECTION_PORT, Role
from zkmigrate.lab.wait import wait_until

PREFLIGHT, TURNED_BACK = 3, 7
CHANGES = ("Fence", "Cut", "Seal", "Go")
_DATA = "/var/lib/zookeeper"
_FOREIGN = (
    f"install -d -o zookeeper -g zookeeper {_DATA}/version-2 && cd {_DATA}/version-2 && "
    "echo 9 >currentEpoch && echo 9 >acceptedEpoch && chown zookeeper:zookeeper *Epoch"
)
_DEAD = f"INPUT -p tcp --dport {ELECTION_PORT} --syn -j REJECT --reject-with tcp-reset"


@contextmanager
def done_on(site: RollSite, host: str, script: str, undo: str) -> Iterator[None]:
    """A script run on a host, and its inverse afterwards."""
    site.lab.exec(host, ["sh", "-c", script])
    try:
        yield
    finally:
        site.lab.exec(host, ["sh", "-c", undo])


def refused(site: RollSite, code: int, id: str, target: str) -> str:
    """A run that the preflight stops; nothing on any host, or in source, was begun."""
    findings = site.ends(code, "run", "--until", "join")
    return named(findings, id, target)


def foreign_data(site: RollSite) -> str:
    """Dest host 2 holds the epochs of another ensemble."""
    with done_on(site, "dest2", _FOREIGN, f"rm -r {_DATA}/version-2"):
        return refused(site, PREFLIGHT, "dest.empty", "dest2")


def election_port_dead(site: RollSite) -> str:
    """A server of source serves and follows, but its election port takes no connection."""
    with done_on(site, "source2", f"iptables -I {_DEAD}", f"iptables -D {_DEAD}"):
        return refused(site, PREFLIGHT, "source.ports", "source2")


def foreign_myid(site: RollSite) -> str:
    """A myid file of source's first server lies on a dest host."""
    with done_on(site, "dest1", f"echo 1 >{_DATA}/myid", f"rm {_DATA}/myid"):
        return refused(site, PREFLIGHT, "dest.myid", "dest1")


def same_myid(site: RollSite) -> str:
    """The inventory gives a dest host the myid of a source host."""
    with site.edited("myid: 11", "myid: 1"), site.tool("run", "--until", "join") as typing:
        ended(typing, 2, "run")
        said = " ".join(e["message"] for e in typing.of("RunEnded"))
    must("myid" in said, f"the refusal does not name myid: {said}")
    return said.replace("\n", " ")[-160:]


def chroot_typo(site: RollSite) -> str:
    """The chroot of the inventory has two letters swapped: nothing may be made there."""
    with site.edited("chroot: /kafka", "chroot: /kakfa"):
        outcome = refused(site, PREFLIGHT, "kafka.config", "broker1")
    with site.lab.zookeeper() as client:
        must(client.exists("/kakfa") is None, "/kakfa has been made")
    return outcome


def back_from_install(site: RollSite) -> str:
    site.ends(0, "run", "--until", "install")
    site.place = JOINED
    site.at(FRESH)
    return "every file as found"


def back_from_half_join(site: RollSite) -> str:
    """kill -9 before the second dest host is started: one observes, one has files, one has none."""
    site.ends(-signal.SIGKILL, "run", "--until", "join", kill=("SetService", "dest2", 0))
    site.place = JOINED
    site.at(FRESH)
    return "every file as found"


def back_from_join(site: RollSite) -> str:
    site.at(JOINED)
    site.at(FRESH)
    return "every file as found"


def leader_killed_in_join(site: RollSite) -> str:
    """Source's leader dies as the second dest host joins, and comes back when a new one leads."""
    with site.tool("run", "--until", "join") as typing:
        comes(typing, "the second dest host is joined", lambda: len(waves(typing, "join")) > 1)
        outcome = leader_killed(site)
        code = typing.end(600)
        troubles = typing.troubles()
    if code:
        outcome += f"; stopped with {code}: {troubles[:200]}; resumed"
        site.ends(0, "resume", "--until", "join")
    site.place = JOINED
    return outcome


def leader_killed(site: RollSite) -> str:
    """Kill source's leader, wait for the next, start the old one again, wait until source is whole."""
    leader = site.source_leader()
    fault.kill(site.lab, leader)

    def missing() -> str | None:
        modes = site.modes(Role.SOURCE)
        return None if "leader" in modes.values() else str(modes)

    wait_until("another leader of source", missing, 60)
    fault.start(site.lab, leader)
    site.source_again()
    return f"{leader} killed, {site.source_leader()} leads"


def back_in_rehearsal(site: RollSite, kind: str) -> str:
    """kill -9 in the rehearsal before the second host's change of this kind, and back to before it."""
    site.ends(-signal.SIGKILL, "run", "--until", "rehearse", kill=(kind, "dest2", 1))
    site.place = REHEARSED
    site.at(JOINED)
    return "dest observes; brokers and source as found"


def leader_killed_in_rehearsal(site: RollSite) -> str:
    """Source's leader dies while dest is cut off in the rehearsal."""
    with site.tool("run", "--until", "rehearse") as typing:
        comes(typing, "dest is cut", lambda: _ended(typing, "drain"))
        outcome = leader_killed(site)
        code = typing.end(600)
        troubles = typing.troubles()
    must(code in (0, TURNED_BACK), f"ended with {code}: {troubles}")
    if code:
        outcome += f"; turned back: {troubles[:160]}; rehearsed again"
        site.ends(0, "run", "--until", "rehearse")
    site.place = REHEARSED
    return outcome


def _ended(typing: Typing, step: str) -> bool:
    return any(e["step"] == step for e in typing.of("StepEnded"))


def killed_in_rehearsal(site: RollSite) -> str:
    """kill -9 between the second and the third SEAL of a rehearsal, then all the way back."""
    site.ends(-signal.SIGKILL, "run", "--until", "rehearse", kill=("Seal", "dest3", 2))
    site.place = REHEARSED
    site.at(FRESH)
    return "every file as found"
