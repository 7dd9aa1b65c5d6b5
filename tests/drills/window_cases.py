"""The cases of ``test_window_faults``: a cut-over each, with one fault at one phase.

docs/reference/window.md says what must happen. A case is a value; to add one, add a line below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tests.drills.window_harm import (
    NO_HARM,
    BrokerDead,
    FirstRule,
    Harm,
    HostDead,
    HostLate,
    HostReboots,
    LinkCut,
    NoRules,
    Silence,
    Silent,
    SourceLeaderDead,
)
from zkmigrate.move.rules.window_rules import STEPS
from zkmigrate.runbook.model.window import Trouble

Direction: TypeAlias = Literal["back", "forward", "either"]
Answer: TypeAlias = Literal["back", "go", "kill", ""]

KILLED = -9
TURNED, OPERATOR_NEEDED, LEASE_ENDED = 7, 8, 9
DEST = ("dest1", "dest2", "dest3")
UNREACHED = f"{Trouble.HOST_UNREACHABLE}|{Trouble.BROKER_LOST}"
"""The alarms when the operator reaches neither hosts nor brokers.

The alarm names whichever the tool looks at first.
"""
BEFORE_OPEN = tuple(STEPS.phases)[:-1]


@dataclass(frozen=True)
class Case:
    """One cut-over with one fault.

    hold: the phase at which the tool is held while the fault happens. kill: KIND, HOST and OTHERS as
    ``zkmigrate.lab.killing`` takes them; the tool is killed there on its way forward or, with ``answer``
    back, on its way back. moment: a moment of the hosts (``WindowSite.moment``) at which the tool is killed.
    harm: what happens at the hold, and is undone when the tool has ended. answer: what is typed then; "kill"
    is a kill -9, "" means that the tool must notice by itself. alone: a moment that the hosts must reach by
    themselves before anything is undone. code, resumed: the correct exit codes of the first process and of
    ``resume``; no ``resumed`` if none is needed. A resumed run that goes forward is held at CHECK and typed
    back. alarm: findings, separated by bars, of which the tool must report one. lab: a key of :data:`LABS`.
    last: the case goes past OPEN, so no other case can follow.
    """

    name: str
    what: str
    direction: Direction
    code: tuple[int, ...]
    hold: str = ""
    kill: tuple[str, str, int] | None = None
    moment: str = ""
    harm: Harm = NO_HARM
    answer: Answer = ""
    alone: str = ""
    resumed: tuple[int, ...] = ()
    alarm: str = ""
    lab: str = "ask"
    last: bool = False

    @property
    def expected(self) -> str:
        """The expected outcome, in words."""
        codes = [" or ".join(map(str, self.code)), " or ".join(map(str, self.resumed))]
        then = f", resume {codes[1]}" if self.resumed else ""
        return f"{self.direction}: {codes[0]}{then}" + (f", alarm {self.alarm}" if self.alarm else "")


LABS = {
    "ask": "ask", "back": "back", "forward": "forward", "apart": "ask",
    **{
        f"silent-{kind}{hold}": "ask"
        for kind in ("frozen", "ssh", "dropped") for hold in ("", "-go", "-serve", "-check")
    },
}  # fmt: skip
"""The labs by name, each with its policy.broker_lost_in_window.

A lab's load creates a topic every five seconds, and its brokers become slower with each. So each kind of
silence has its own lab.
"""

_ROLLED_BACK = [
    Case(f"back-from-{phase}", f"typed back at {phase}", "back", (0,), hold=phase, answer="back")
    for phase in BEFORE_OPEN
]


def _killed(name: str, what: str, resumed: int, **fields: Any) -> Case:
    """Return a case in which the tool is killed.

    resumed: exit code of ``resume``; unless it is 0 the hosts go back by themselves.
    """
    direction: Direction = "back" if resumed else "forward"
    alone = "unsealed open" if resumed else ""
    return Case(name, what, direction, (KILLED,), alone=alone, resumed=(resumed,), **fields)


_KILLED = [
    *(
        _killed(
            f"killed-{kind.lower()}-{others}",
            f"kill -9 before {DEST[others]} is sent its {kind}, {others} of the others having theirs",
            resumed, kill=(kind, DEST[others], others),
        )
        for others in (1, 2)
        # SEAL cannot be completed on hosts that went back by themselves.
        for kind, resumed in (("Fence", LEASE_ENDED), ("Cut", LEASE_ENDED), ("Seal", TURNED), ("Go", 0))
    ),
    *(
        _killed(
            f"killed-as-host-{moment}", f"kill -9 when the first host is at {moment}", resumed, moment=moment
        )
        for moment, resumed in (("stop", LEASE_ENDED), ("config", 0), ("start", 0), ("serving", 0))
    ),
    *(
        _killed(
            f"killed-held-{phase}", f"kill -9 while held after {phase}",
            LEASE_ENDED if phase in ("fence", "drain", "cut", "stop", "prove") else 0,
            hold=phase, answer="kill",
        )
        for phase in ("arm", "fence", "drain", "cut", "stop", "prove", "seal", "go", "check")
    ),
    Case(
        "killed-fence-at-once", "kill -9 while held after fence, resume without waiting", "either",
        (KILLED,), hold="fence", answer="kill", resumed=(0, LEASE_ENDED),
    ),
    _killed("killed-before-arm", "kill -9 before the first host is armed", 0, kill=("Arm", "any", 0)),
    _killed("killed-before-go", "kill -9 before the first GO", 0, kill=("Go", "any", 0)),
    *(
        Case(
            f"killed-back-{hold}-{kind}",
            f"typed back at {hold}; kill -9 on the way back, before dest2's {kind}, {others} others done",
            "back", (KILLED,), hold=hold, answer="back",
            kill=(kind, "dest2" if others else "any", others), resumed=(0,),
        )
        for hold, kind, others in (
            ("cut", "uncut", 1), ("fence", "reopen", 1), ("fence", "disarm", 1),
            ("stop", "started-observer", 1), ("seal", "unseal", 1), ("check", "halt", 1),
            ("check", "image", 0), ("serve", "disarm", 0),
        )
    ),
]  # fmt: skip

_LINK_CUT = [
    Case(
        f"link-cut-{phase}", f"the operator's link is cut while held after {phase}; hosts go back alone",
        "back", (OPERATOR_NEEDED,), hold=phase, harm=LinkCut(), alone="unsealed open",
        resumed=(TURNED, LEASE_ENDED), alarm=UNREACHED,
    )
    for phase in ("fence", "cut", "stop")
]  # fmt: skip


def _host_dead(number: int, phase: str) -> Case:
    """Return a case in which a dest host loses power.

    It comes back after the tool has stopped waiting for it.
    """
    host = DEST[number % 3]
    what = f"{host} loses power while held after {phase}"
    if phase in ("go", "serve", "check"):
        # While a host that has its GO does not answer, no host is restored: so it is on again first.
        return Case(
            f"dead-{phase}", f"{what} and is on again, then typed back", "back", (0,), hold=phase,
            harm=HostReboots(host), answer="back",
        )  # fmt: skip
    watched = phase not in ("arm", "survey", "seal")
    return Case(
        f"dead-{phase}", what, "back", (OPERATOR_NEEDED,), hold=phase, harm=HostDead(host),
        answer="" if watched else "go", resumed=(TURNED, LEASE_ENDED),
    )  # fmt: skip


def _leaks() -> Iterator[Case]:
    """Yield the cases in which the rules of one host are damaged while it is held after CUT."""
    rules = [("IN", n) for n in range(1, 7)] + [("OUT", n) for n in range(1, 4)]
    faults: list[tuple[str, str, NoRules | FirstRule]] = [
        (
            f"rule-{chain.lower()}-{rule}", f"rule {rule} of our {chain} chain is gone",
            NoRules(DEST[number % 3], f"iptables -D ZKM-$tag-{chain} {rule}"),
        )
        for number, (chain, rule) in enumerate(rules)
    ]  # fmt: skip
    for chain, short in (("INPUT", "in"), ("OUTPUT", "out")):
        jump = f"-D {chain} -j ZKM-$tag-{short.upper()}"
        accept = f"{chain} 1 -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
        faults += [
            (f"jump-{short}", f"the jump from {chain} is gone", NoRules("dest2", f"iptables {jump}")),
            (f"jump6-{short}", f"the IPv6 jump from {chain} is gone", NoRules("dest3", f"ip6tables {jump}")),
            (f"established-{short}", f"ESTABLISHED accepted above {chain}", FirstRule("dest1", accept)),
        ]
    faults += [
        ("flush", "iptables -F", NoRules("dest1", "iptables -F")),
        ("flush6", "ip6tables -F", NoRules("dest2", "ip6tables -F")),
        ("cut-set", "the set of source's addresses is empty", NoRules("dest3", "ipset flush ZKM-$tag-cut4")),
    ]
    for name, what, harm in faults:
        # An empty set looks like an ended lease: the renewal may report it before the probe does.
        like_lease = name == "cut-set"
        yield Case(
            f"leak-{name}", f"{what}, on {harm.host}, while cut", "back",
            (TURNED, LEASE_ENDED) if like_lease else (TURNED,), hold="cut", harm=harm,
            alarm="" if like_lease else Trouble.BLOCK_LEAKS,
        )  # fmt: skip


_SOURCE_LEADER = [
    Case(
        f"source-leader-{phase}", f"source's leader is killed while held after {phase}, then go", "back",
        (TURNED,), hold=phase, harm=SourceLeaderDead(), answer="go",
    )
    for phase in ("fence", "cut", "stop")
]  # fmt: skip


_KINDS: dict[Silent, str] = {
    "frozen": "dest2 is frozen", "ssh": "dest2's sshd stands still",
    "dropped": "packets between the operator and dest2 are dropped",
}  # fmt: skip


def _silent(hold: str, kind: Silent) -> Case:
    """Return a case in which a dest host answers no request for as long as the tool runs.

    Before FENCE no host is fenced. Before GO the other hosts are released at once; after it they go on.
    """
    forward = hold in ("go", "serve", "check")
    before_fence = hold in ("arm", "survey")
    return Case(
        f"silent-{kind}-{hold}", f"{_KINDS[kind]} while held after {hold}, then go",
        "forward" if forward else "back", (0, 6, 8) if forward else (OPERATOR_NEEDED,),
        hold=hold, harm=Silence("dest2", kind), answer="go",
        resumed=(0,) if forward else (TURNED,) if before_fence else (TURNED, LEASE_ENDED),
        lab=f"silent-{kind}-{hold}" if forward else f"silent-{kind}", last=forward,
    )  # fmt: skip


_SILENT_AT = ("seal", "prove", "stop", "cut", "drain", "fence", "survey", "arm", "go", "serve", "check")
_LOST = "a broker is killed while held after cut, policy"
_BROKER_LOST = [
    *(
        Case(
            f"broker-{policy}", f"{_LOST} {policy}", "back", (TURNED,), hold="cut", harm=BrokerDead(),
            alarm=Trouble.BROKER_LOST, lab=policy,
        )
        for policy in ("ask", "back")
    ),
    Case(
        "broker-forward", f"{_LOST} forward, then go", "forward", (0,), hold="cut",
        harm=BrokerDead(wait_for_alarm=True), alarm=Trouble.BROKER_LOST, answer="go", lab="forward",
        last=True,
    ),
]  # fmt: skip

_PAST_OPEN = [
    _killed("killed-open", "kill -9 between the OPEN of two hosts", 0, kill=("open", "dest2", 1), last=True),
    Case(
        "link-cut-go", "the operator's link is cut while held after GO; hosts finish alone", "forward",
        (KILLED,), hold="go", harm=LinkCut(), answer="kill", alone="all open", resumed=(0,),
        lab="back", last=True,
    ),
    Case(
        "dead-after-go", "dest3 loses power after CHECK, then go: the others open, a hand lets it join",
        "forward", (0,), hold="check", harm=HostLate("dest3"), answer="go", lab="apart", last=True,
    ),
]  # fmt: skip

CASES: tuple[Case, ...] = (
    *_ROLLED_BACK,
    *_KILLED,
    *_leaks(),
    *_LINK_CUT,
    *(_host_dead(number, phase) for number, phase in enumerate(BEFORE_OPEN)),
    *_SOURCE_LEADER,
    *(_silent(hold, kind) for hold in _SILENT_AT for kind in _KINDS),
    *_BROKER_LOST,
    *_PAST_OPEN,
)
"""The cases, in the order in which those of one lab run."""
