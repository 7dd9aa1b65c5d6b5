"""The decision about trouble inside the window, as one total function, and the window's deadlines.

The watch reports trouble; :func:`decide` says whether the run goes on, goes back or asks.
docs/reference/window.md prints :func:`table`; tests walk all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from zkmigrate.inventory.inventory import Policy
from zkmigrate.move.facts.records import TimeoutAndLease, seconds
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.step_record import known
from zkmigrate.runbook.model.window import Decision, Phase, Trouble, WindowSpec, WindowSteps, Word

BrokerPolicy: TypeAlias = Literal["back", "forward", "ask"]


STEPS = WindowSteps(
    phases={
        "arm": Phase.ARMED,
        "survey": Phase.ARMED,
        "fence": Phase.FENCED,
        "drain": Phase.FENCED,
        "cut": Phase.CUT,
        "stop": Phase.STOPPED,
        "prove": Phase.STOPPED,
        "seal": Phase.SEALED,
        "go": Phase.GO,
        "serve": Phase.STARTED,
        "check": Phase.CHECKED,
        "open": Phase.OPEN,
    },
    begins="fence",
    cuts="cut",
    seals="seal",
    serves="serve",
    opens="open",
)
"""The window of the ZooKeeper move."""

TO_SEAL = (*STEPS.between(STEPS.begins, STEPS.seals), STEPS.seals)
BEFORE_SEAL = TO_SEAL[:-1]

NONE_SEALED = Phase.ARMED.until(Phase.SEALED)
"""The phases before the first SEAL is sent: every host goes back by itself when its lease ends. Whether all
hosts are sealed is another question: :func:`without_operator`."""

# Between SEAL and OPEN no lease ends. A host that cannot be reached stays shut or finishes alone, and turning
# back while it may be starting would make two ensembles. Only what the operator still sees from all hosts (a
# failed check, a leak) is worth a question or a turn.
_SEALED: dict[Trouble, Decision] = {
    Trouble.LEASE_LAPSED: Decision.GO,
    Trouble.HOST_UNREACHABLE: Decision.GO,
    Trouble.BLOCK_LEAKS: Decision.ASK,
    Trouble.DEADLINE: Decision.GO,
    Trouble.SOURCE_SICK: Decision.GO,
    Trouble.STEP_BLOCKED: Decision.BACK,
    Trouble.LOOK_UNKNOWN: Decision.GO,
}


def decide(phase: Phase, trouble: Trouble, broker_lost: BrokerPolicy = "ask") -> Decision:
    """The decision for one trouble in one phase; ``broker_lost`` is ``policy.broker_lost_in_window``.

    Before SEAL all other trouble turns back. After OPEN the answer is always ``GO``: there is no plain way
    back any more.
    """
    if phase is Phase.OPEN:
        return Decision.GO
    if trouble is Trouble.BROKER_LOST:
        wanted = {"back": Decision.BACK, "forward": Decision.GO, "ask": Decision.ASK}[broker_lost]
        # Once GO is out the quickest help for a lost broker is dest's own quorum.
        return wanted if phase in NONE_SEALED else Decision.GO
    return Decision.BACK if phase in NONE_SEALED else _SEALED[trouble]


def without_operator(all_sealed: bool) -> Word:
    """What ``ASK`` means when nobody answers: with ``--yes``, after silence, at the end of input.

    all_sealed: the SEAL step is done. Until then: back, for GO cannot follow, unsealed hosts go back alone
    when their lease ends, and sealed ones would stay shut. Afterwards: go, for all hosts are one GO from
    finishing, or finish alone.
    """
    return "go" if all_sealed else "back"


FIND_DOOR_S = 3.0
"""Seconds that brokers need to find the door once it is open again: 0.3-2.9 s seen."""


@dataclass(frozen=True)
class Deadlines:
    """The window's deadlines, in seconds after the first FENCE.

    start_back: the way back must start by then to lose no session. clients_back: clients must be connected
    again by then. forward: counts from dest's leader; the door must open within it.
    """

    start_back: float
    clients_back: float
    forward: float


def deadlines(smallest_timeout_s: float, way_back_s: float) -> Deadlines:
    """Deadlines from T, the smallest timeout of the sessions that own ephemerals under the chroot.

    An idle client's last ping may be T/3 old at FENCE, so source may expire it T - T/3 later. way_back_s:
    from the start of the way back to an open, observing dest.
    """
    clients_back = smallest_timeout_s - smallest_timeout_s / 3
    return Deadlines(clients_back - way_back_s - FIND_DOOR_S, clients_back, smallest_timeout_s)


def rehearsed_s(c: Context, *steps: str) -> float | None:
    """Seconds that these steps took together in the rehearsal; None where one is not known."""
    took = seconds(c, "rehearse")
    return sum(took[step] for step in steps) if took.keys() >= set(steps) else None


MESSAGES_TO_SEAL = 3 * len(TO_SEAL)
"""Each of these steps looks, changes and looks again."""


def to_seal_s(c: Context, trip_s: float = 0.0) -> float:
    """Seconds that FENCE to SEAL may take: as rehearsed, times ``policy.window_margin``.

    Without a rehearsal it is ``policy.way_back_s`` times the margin, or the time of the messages if that is
    longer. trip_s: the longest round trip to a host.
    """
    policy, took = c.inventory.policy, rehearsed_s(c, *TO_SEAL)
    if took is not None:
        return took * policy.window_margin
    return max(policy.way_back_s * policy.window_margin, MESSAGES_TO_SEAL * trip_s)


HOLD_S = 2.0
"""The least seconds that a ``--hold-at`` before SEAL leaves for an answer."""


def hold_s(c: Context) -> float:
    """Seconds that ``--hold-at`` takes from the time until the way back must start."""
    return HOLD_S if c.hold_at in BEFORE_SEAL else 0.0


def deadline_s(c: Context) -> float:
    """Seconds after the first FENCE by which the way back must start; infinite while no client is at
    stake."""
    terms = known(TimeoutAndLease, c)
    if c.rehearsal or terms is None or terms.smallest_timeout_ms is None:
        return math.inf
    return deadlines(terms.smallest_timeout_ms / 1000, expected_way_back_s(c)).start_back


def expected_way_back_s(c: Context) -> float:
    """Seconds from the start of the way back to an open, observing dest, while nothing is sealed: as
    rehearsed, but at least the policy's."""
    took = seconds(c, "rehearse", Way.BACK)
    return max(c.inventory.policy.way_back_s, sum(took.get(step, 0.0) for step in BEFORE_SEAL))


def keeps_s(c: Context, step: str) -> float:
    """Seconds after the first FENCE by which a way back from behind ``step`` must start to lose no session:
    as rehearsed, but at least the policy's; infinite while no client is at stake."""
    terms = known(TimeoutAndLease, c)
    if c.rehearsal or terms is None or terms.smallest_timeout_ms is None:
        return math.inf
    return deadlines(terms.smallest_timeout_ms / 1000, way_back_from_s(c, step)).start_back


def way_back_from_s(c: Context, step: str) -> float:
    """Seconds from the start of a way back from behind ``step`` to an open, observing dest."""
    took = seconds(c, "rehearse", Way.BACK)
    undone = (*STEPS.between(STEPS.begins, step), step)
    return max(c.inventory.policy.way_back_s, sum(took.get(one, 0.0) for one in undone))


MESSAGE_S = 3.0
"""Seconds for one question to a host, or a change that sets an entry or writes a line. Both take
milliseconds; a renewal on a machine at a load of 30 took 1.5 s."""

SLOW_S: dict[str, float] = {
    "service": 30.0,
    "started-observer": 30.0,
    "halt": 30.0,
    "image": 120.0,
    "arm": 300.0,
    "disarm": 120.0,
}
"""Seconds for the verbs that stop or start ZooKeeper, or copy or remove its data. Hosts that have answered
wait less for one that has not (``hosts.parallel.Late``)."""

LEAST_S = 0.5
"""The least seconds for a look or a change, also when the deadline is nearer."""


def limits(phase: str, verb: str, back: bool, left_s: float | None) -> tuple[float, float]:
    """Seconds that one message of a look or change may take in the window, and all of its messages together.

    phase: id of the last step with an effect, "" before the first. verb: of the change, "" for a look. back:
    walking back. left_s: seconds until the way back must start, None without such a deadline.

    Before the first FENCE nothing is limited: nobody is kept out. From then on a host that does not answer
    counts as silent after :data:`MESSAGE_S`. Until SEAL is done nothing lasts past the moment at which the
    way back must start. Walking back, and once all hosts are sealed, only the single message is limited.
    """
    if STEPS.reached(phase) is Phase.ARMED:
        return math.inf, math.inf
    most = SLOW_S.get(verb, MESSAGE_S)
    whole = most if verb else math.inf
    if not back and left_s is not None:
        whole = min(whole, max(left_s, LEAST_S))
    return min(most, whole), whole


def decide_finding(phase: str, finding: Finding, policy: Policy) -> Decision:
    """:func:`decide` for a finding of the watch or of a step.

    phase: id of the last step with an effect, "" before the first. A finding of a step means that it cannot
    go on. Once GO is out an unknown one means a look without an answer: hosts that finish alone must not be
    turned back because one of them was not heard.
    """
    reached = STEPS.reached(phase)
    if finding.id in {t.value for t in Trouble}:
        trouble = Trouble(finding.id)
    elif finding.held is Held.UNKNOWN and reached not in Phase.ARMED.until(Phase.GO):
        trouble = Trouble.LOOK_UNKNOWN
    else:
        trouble = Trouble.STEP_BLOCKED
    return decide(reached, trouble, policy.broker_lost_in_window)


WINDOW = WindowSpec(STEPS, decide_finding, deadline_s, without_operator, limits)
"""What the stages of the move that have a window carry."""
