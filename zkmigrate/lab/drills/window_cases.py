"""The cases of the drill ``window_faults``: a cut-over each, with one fault at one phase.

What must happen is in docs/reference/window.md. A case is a value; to add one, add a line below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from zkmigrate.lab.drills.window_harm import (
    NONE,
    BrokerDead,
    FirstRule,
    Harm,
    HostDead,
    HostLate,
    HostReboots,
    LinkCut,
    NoRules,
    Silence,
    SourceLeaderDead,
)
from zkmigrate.model.window import Trouble
from zkmigrate.moves.rules.window_rules import STEPS

Direction: TypeAlias = Literal["back", "forward", "either"]
Answer: TypeAlias = Literal["back", "go", "kill", ""]

KILLED = -9
TURNED, OPERATOR_NEEDED, LEASE_ENDED = 7, 8, 9
DEST = ("dest1", "dest2", "dest3")
UNREACHED = f"{Trouble.HOST_UNREACHABLE}|{Trouble.BROKER_LOST}"
"""Whoever is asked first and does not answer; the operator sees neither hosts nor brokers."""
BEFORE_OPEN = tuple(STEPS.phases)[:-1]


@dataclass(frozen=True)
class Case:
    """One cut-over with one fault.

    hold: the phase at which the tool is held while the fault happens. kill: KIND, HOST and OTHERS as
    ``zkmigrate.lab.killing`` takes them; the tool is killed there, on its way forward or, with ``answer``
    back at the hold, on its way back. moment: a moment of the hosts (``Bench.moment``) at which the tool is
    killed. harm: what happens to the world at the hold, and is mended when the tool has ended. answer: what
    is typed once it has happened; kill is a kill -9, nothing means that the tool has to notice by itself.
    alone: a moment to which the hosts have to come by themselves, before anything is mended. code: exit codes
    of the first process that are right. resumed: the same of ``resume`` after it, none where none is needed;
    where the run goes forward it is held at CHECK and typed back. alarm: findings, with bars between, one of
    which must have been told.
    lab: the lab of :data:`LABS` in which the case runs. last: it goes past OPEN, so nothing comes after it.
    """

    name: str
    what: str
    way: Direction
    code: tuple[int, ...]
    hold: str = ""
    kill: tuple[str, str, int] | None = None
    moment: str = ""
    harm: Harm = NONE
    answer: Answer = ""
    alone: str = ""
    resumed: tuple[int, ...] = ()
    alarm: str = ""
    lab: str = "ask"
    last: bool = False

    @property
    def expected(self) -> str:
        """What has to come of it, in words."""
        codes = [" or ".join(map(str, self.code)), " or ".join(map(str, self.resumed))]
        then = f", resume {codes[1]}" if self.resumed else ""
        return f"{self.way}: {codes[0]}{then}" + (f", {self.alarm} told" if self.alarm else "")


LABS = {
    "ask": "ask", "back": "back", "forward": "forward", "apart": "ask",
    **{
        f"silent-{kind}{hold}": "ask"
        for kind in ("frozen", "ssh", "dropped") for hold in ("", "-go", "-serve", "-check")
    },
}  # fmt: skip
"""The labs by name, each with its policy.broker_lost_in_window. A lab's load makes a topic every five
seconds and its brokers grow slower with each: a kind of silence has a lab of its own.
"""


def _rolled_back() -> tuple[Case, ...]:
    return tuple(
        Case(f"back-from-{phase}", f"typed back at {phase}", "back", (0,), hold=phase, answer="back")
        for phase in BEFORE_OPEN
    )


def _killed_between() -> tuple[Case, ...]:
    """The tool is killed between two hosts' changes of one kind."""
    cases = []
    for number in (1, 2):
        for kind, way, resumed in (
            ("Fence", "back", LEASE_ENDED),
            ("Cut", "back", LEASE_ENDED),
            # SEAL cannot be completed any more on the hosts that went back alone.
            ("Seal", "back", TURNED),
            ("Go", "forward", 0),
        ):
            host = DEST[number]
            what = f"kill -9 before {host} is sent its {kind}, {number} of the others having theirs"
            cases.append(
                Case(
                    f"killed-{kind.lower()}-{number}", what, "back" if way == "back" else "forward",
                    (KILLED,), kill=(kind, host, number), alone="unsealed open" if way == "back" else "",
                    resumed=(resumed,),
                )
            )  # fmt: skip
    return tuple(cases)


def _killed_at() -> tuple[Case, ...]:
    """The tool is killed at moments of the hosts, at holds, and around single changes."""
    cases = [
        Case(
            f"killed-as-host-{moment}", f"kill -9 when the first host is at {moment}",
            "back" if way == "back" else "forward", (KILLED,),
            moment=moment, alone="unsealed open" if way == "back" else "", resumed=(resumed,),
        )
        for moment, way, resumed in (
            ("stop", "back", LEASE_ENDED), ("config", "forward", 0),
            ("start", "forward", 0), ("serving", "forward", 0),
        )
    ]  # fmt: skip
    for phase, way, resumed in (
        ("arm", "forward", 0),
        ("fence", "back", LEASE_ENDED),
        ("drain", "back", LEASE_ENDED),
        ("cut", "back", LEASE_ENDED),
        ("stop", "back", LEASE_ENDED),
        ("prove", "back", LEASE_ENDED),
        ("seal", "forward", 0),
        ("go", "forward", 0),
        ("check", "forward", 0),
    ):
        cases.append(
            Case(
                f"killed-held-{phase}", f"kill -9 while held after {phase}",
                "back" if way == "back" else "forward", (KILLED,), hold=phase, answer="kill",
                alone="unsealed open" if way == "back" else "", resumed=(resumed,),
            )
        )  # fmt: skip
    cases += [
        Case(
            "killed-fence-at-once", "kill -9 while held after fence, resume without waiting", "either",
            (KILLED,), hold="fence", answer="kill", resumed=(0, LEASE_ENDED),
        ),
        Case(
            "killed-before-arm", "kill -9 before the first host is armed", "forward", (KILLED,),
            kill=("Arm", "any", 0), resumed=(0,),
        ),
        Case(
            "killed-before-go", "kill -9 before the first GO", "forward", (KILLED,),
            kill=("Go", "any", 0), resumed=(0,),
        ),
    ]  # fmt: skip
    for hold, kind, others in (
        ("cut", "uncut", 1), ("fence", "reopen", 1), ("fence", "disarm", 1), ("stop", "started-observer", 1),
        ("seal", "unseal", 1), ("check", "halt", 1), ("check", "image", 0), ("serve", "disarm", 0),
    ):  # fmt: skip
        what = f"typed back at {hold}; kill -9 on the way back, before dest2's {kind}, {others} others done"
        cases.append(
            Case(
                f"killed-back-{hold}-{kind}", what, "back", (KILLED,), hold=hold, answer="back",
                kill=(kind, "dest2" if others else "any", others), resumed=(0,),
            )
        )  # fmt: skip
    return tuple(cases)


def _link_cut() -> tuple[Case, ...]:
    return tuple(
        Case(
            f"link-cut-{phase}", f"the operator's link is cut while held after {phase}; hosts go back alone",
            "back", (OPERATOR_NEEDED,), hold=phase, harm=LinkCut(), alone="unsealed open",
            resumed=(TURNED, LEASE_ENDED), alarm=UNREACHED,
        )
        for phase in ("fence", "cut", "stop")
    )  # fmt: skip


def _host_dead() -> tuple[Case, ...]:
    """A dest host loses power at each phase, and comes back after the tool has given up waiting for it."""
    cases = []
    for number, phase in enumerate(BEFORE_OPEN):
        host = DEST[number % 3]
        what = f"{host} loses power while held after {phase}"
        if phase in ("go", "serve", "check"):
            # Nothing is put back anywhere while a host that has its GO is not heard: so it is on again first.
            cases.append(
                Case(
                    f"dead-{phase}", f"{what} and is on again, then typed back", "back", (0,), hold=phase,
                    harm=HostReboots(host), answer="back",
                )
            )  # fmt: skip
            continue
        watched = phase not in ("arm", "survey", "seal")
        cases.append(
            Case(
                f"dead-{phase}", what, "back", (OPERATOR_NEEDED,), hold=phase, harm=HostDead(host),
                answer="" if watched else "go", resumed=(TURNED, LEASE_ENDED),
            )
        )  # fmt: skip
    return tuple(cases)


def _leaks() -> tuple[Case, ...]:
    """Held after CUT, the rules of one host are damaged."""
    faults: list[tuple[str, str, Harm]] = []
    rules = [("IN", n) for n in range(1, 7)] + [("OUT", n) for n in range(1, 4)]
    for number, (chain, rule) in enumerate(rules):
        harm = NoRules(DEST[number % 3], f"iptables -D ZKM-$tag-{chain} {rule}")
        faults.append((f"rule-{chain.lower()}-{rule}", f"rule {rule} of our {chain} chain is gone", harm))
    for chain, short in (("INPUT", "IN"), ("OUTPUT", "OUT")):
        jump = f"-D {chain} -j ZKM-$tag-{short}"
        harm = NoRules("dest2", f"iptables {jump}")
        faults.append((f"jump-{short.lower()}", f"the jump from {chain} is gone", harm))
        harm = NoRules("dest3", f"ip6tables {jump}")
        faults.append((f"jump6-{short.lower()}", f"the IPv6 jump from {chain} is gone", harm))
        words = f"{chain} 1 -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
        faults.append(
            (f"established-{short.lower()}", f"ESTABLISHED accepted above {chain}", FirstRule("dest1", words))
        )
    faults += [
        ("flush", "iptables -F", NoRules("dest1", "iptables -F")),
        ("flush6", "ip6tables -F", NoRules("dest2", "ip6tables -F")),
        ("cut-set", "the set of source's addresses is empty", NoRules("dest3", "ipset flush ZKM-$tag-cut4")),
    ]
    # An empty set is what an ended lease looks like: the renewal that finds it says so first, or the probe.
    codes = {"cut-set": (TURNED, LEASE_ENDED)}
    return tuple(
        Case(
            f"leak-{name}", f"{what}, on {getattr(harm, 'host', '')}, while cut", "back",
            codes.get(name, (TURNED,)), hold="cut", harm=harm,
            alarm="" if name in codes else Trouble.BLOCK_LEAKS,
        )
        for name, what, harm in faults
    )  # fmt: skip


def _source_leader() -> tuple[Case, ...]:
    return tuple(
        Case(
            f"source-leader-{phase}", f"source's leader is killed while held after {phase}, then go", "back",
            (TURNED,), hold=phase, harm=SourceLeaderDead(), answer="go",
        )
        for phase in ("fence", "cut", "stop")
    )  # fmt: skip


def _broker_lost() -> tuple[Case, ...]:
    what = "a broker is killed while held after cut, policy"
    lost = Trouble.BROKER_LOST
    return (
        Case("broker-ask", f"{what} ask", "back", (TURNED,), hold="cut", harm=BrokerDead(), alarm=lost),
        Case(
            "broker-back", f"{what} back", "back", (TURNED,), hold="cut", harm=BrokerDead(), alarm=lost,
            lab="back",
        ),
        Case(
            "broker-forward", f"{what} forward, then go", "forward", (0,), hold="cut",
            harm=BrokerDead(told=True), alarm=lost, answer="go", lab="forward", last=True,
        ),
    )  # fmt: skip


def _silent() -> tuple[Case, ...]:
    """A dest host answers nobody for as long as the tool runs. Before FENCE nobody is fenced; before GO the
    others are let go at once; after it they go on."""
    kinds: dict[Literal["frozen", "ssh", "dropped"], str] = {
        "frozen": "dest2 is frozen", "ssh": "dest2's sshd stands still",
        "dropped": "packets between the operator and dest2 are dropped",
    }  # fmt: skip
    before = tuple(
        Case(
            f"silent-{kind}-{hold}", f"{what} while held after {hold}, then go", "back",
            (OPERATOR_NEEDED,), hold=hold, harm=Silence("dest2", kind), answer="go",
            resumed=(TURNED,) if hold in ("arm", "survey") else (TURNED, LEASE_ENDED),
            lab=f"silent-{kind}",
        )
        for hold in ("seal", "prove", "stop", "cut", "drain", "fence", "survey", "arm")
        for kind, what in kinds.items()
    )  # fmt: skip
    after = tuple(
        Case(
            f"silent-{kind}-{hold}", f"{what} while held after {hold}, then go", "forward",
            (0, 6, 8), hold=hold, harm=Silence("dest2", kind), answer="go", resumed=(0,),
            lab=f"silent-{kind}-{hold}", last=True,
        )
        for hold in ("go", "serve", "check") for kind, what in kinds.items()
    )  # fmt: skip
    return (*before, *after)


def _past_open() -> tuple[Case, ...]:
    return (
        Case(
            "killed-open", "kill -9 between the OPEN of two hosts", "forward", (KILLED,),
            kill=("open", "dest2", 1), resumed=(0,), last=True,
        ),
        Case(
            "link-cut-go", "the operator's link is cut while held after GO; hosts finish alone", "forward",
            (KILLED,), hold="go", harm=LinkCut(), answer="kill", alone="all open", resumed=(0,),
            lab="back", last=True,
        ),
        Case(
            "dead-after-go", "dest3 loses power after CHECK, then go: the others open, a hand lets it join",
            "forward", (0,), hold="check", harm=HostLate("dest3"), answer="go", lab="apart", last=True,
        ),
    )  # fmt: skip


CASES: tuple[Case, ...] = (
    *_rolled_back(),
    *_killed_between(),
    *_killed_at(),
    *_leaks(),
    *_link_cut(),
    *_host_dead(),
    *_source_leader(),
    *_silent(),
    *_broker_lost(),
    *_past_open(),
)
"""In the order in which the cases of one lab run."""
