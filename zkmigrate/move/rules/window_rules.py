"""The decision about trouble inside the window, as one total function, and the window's deadlines.

The watch reports trouble; :func:`decide` returns whether the run continues, goes back or waits for the
operator's answer. docs/reference/window.md shows the decisions as a table, and tests cover the whole table.
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
"""The steps of the move's window, with the phase that each step reaches."""

TO_SEAL = (*STEPS.between(STEPS.begins, STEPS.seals), STEPS.seals)
BEFORE_SEAL = TO_SEAL[:-1]

NONE_SEALED = Phase.ARMED.until(Phase.SEALED)
"""The phases before the first SEAL is sent: every host goes back by itself when its lease ends.

They are not the same as "before all hosts are sealed", which :func:`without_operator` needs.
"""

# Between SEAL and OPEN no lease ends. A host that cannot be reached stays closed or finishes alone, and
# turning back while it may be starting would make two ensembles. Only what the operator still sees from all
# hosts (a failed check, a leak) is worth a question or a turn.
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
    """Return the decision for one kind of trouble in one phase.

    broker_lost: ``policy.broker_lost_in_window``, which decides about a lost broker. Before SEAL all other
    trouble makes the run go back. After OPEN the decision is always ``GO``, because going back then has a
    cost.
    """
    if phase is Phase.OPEN:
        return Decision.GO
    if trouble is Trouble.BROKER_LOST:
        wanted = {"back": Decision.BACK, "forward": Decision.GO, "ask": Decision.ASK}[broker_lost]
        # Once GO is sent, the quickest help for a lost broker is dest's own quorum.
        return wanted if phase in NONE_SEALED else Decision.GO
    return Decision.BACK if phase in NONE_SEALED else _SEALED[trouble]


def without_operator(all_sealed: bool) -> Word:
    """Return the answer to ``ASK`` that is used if the operator gives none.

    The operator gives no answer with ``--yes``, by typing nothing, or at the end of input.

    all_sealed: whether the SEAL step is done. Before that the answer is ``back``, because GO is not yet
    possible: unsealed hosts go back by themselves when their lease ends, and sealed hosts would stay closed.
    Afterwards the answer is ``go``, because every host then needs only GO, or finishes by itself.
    """
    return "go" if all_sealed else "back"


FIND_DOOR_S = 3.0
"""The seconds that brokers need to reconnect once their client port is open again: 0.3-2.9 s were measured.
"""


@dataclass(frozen=True)
class Deadlines:
    """The window's deadlines.

    start_back: when the way back must start at the latest so that no session is lost. clients_back: when
    clients must be connected again. Both are seconds after the first FENCE. forward: how many seconds after
    dest has a leader its clients must be let in.
    """

    start_back: float
    clients_back: float
    forward: float


def deadlines(smallest_timeout_s: float, way_back_s: float) -> Deadlines:
    """Compute the deadlines from T, the smallest timeout of the sessions that must survive.

    An idle client's last ping may be T/3 old at FENCE, so source may expire its session T - T/3 later.
    way_back_s: seconds from the start of the way back until dest observes source again and lets clients in.
    """
    clients_back = smallest_timeout_s - smallest_timeout_s / 3
    return Deadlines(clients_back - way_back_s - FIND_DOOR_S, clients_back, smallest_timeout_s)


def rehearsed_s(c: Context, *steps: str) -> float | None:
    """Return the seconds that these steps took together in the rehearsal.

    Returns None if the time of one of them is not known.
    """
    took = seconds(c, "rehearse")
    return sum(took[step] for step in steps) if took.keys() >= set(steps) else None


MESSAGES_TO_SEAL = 3 * len(TO_SEAL)
"""The number of messages from FENCE to SEAL. Each of these steps looks, changes and looks again."""


def to_seal_s(c: Context, trip_s: float = 0.0) -> float:
    """Return the seconds that FENCE to SEAL may take: the rehearsed time, times ``policy.window_margin``.

    Without a rehearsal it is ``policy.way_back_s`` times the margin, or the time for the messages if that is
    longer. trip_s: the longest round trip to a host, in seconds.
    """
    policy, took = c.inventory.policy, rehearsed_s(c, *TO_SEAL)
    if took is not None:
        return took * policy.window_margin
    return max(policy.way_back_s * policy.window_margin, MESSAGES_TO_SEAL * trip_s)


HOLD_S = 2.0
"""The fewest seconds that a hold before SEAL leaves for an answer."""


def hold_s(c: Context) -> float:
    """Return the seconds to reserve for a hold that is requested before SEAL; 0 if none is requested."""
    return HOLD_S if c.hold_at in BEFORE_SEAL else 0.0


def deadline_s(c: Context) -> float:
    """Return the seconds after the first FENCE by which the way back must start.

    The result is infinite if no client can lose a session.
    """
    terms = known(TimeoutAndLease, c)
    if c.rehearsal or terms is None or terms.smallest_timeout_ms is None:
        return math.inf
    return deadlines(terms.smallest_timeout_ms / 1000, expected_way_back_s(c)).start_back


def expected_way_back_s(c: Context) -> float:
    """Return the seconds that a way back is expected to take while no host is sealed.

    A way back ends when dest observes source again and lets clients in. The result is the rehearsed time, but
    at least ``policy.way_back_s``.
    """
    took = seconds(c, "rehearse", Way.BACK)
    return max(c.inventory.policy.way_back_s, sum(took.get(step, 0.0) for step in BEFORE_SEAL))


def keeps_s(c: Context, step: str) -> float:
    """Return how many seconds after the first FENCE a way back after ``step`` must start to lose no session.

    The result is infinite if no client can lose a session. The way back is assumed to take as long as in the
    rehearsal, but at least the policy's time.
    """
    terms = known(TimeoutAndLease, c)
    if c.rehearsal or terms is None or terms.smallest_timeout_ms is None:
        return math.inf
    return deadlines(terms.smallest_timeout_ms / 1000, way_back_from_s(c, step)).start_back


def way_back_from_s(c: Context, step: str) -> float:
    """Return the seconds that a way back after ``step`` is expected to take.

    A way back ends when dest observes source again and lets clients in.
    """
    took = seconds(c, "rehearse", Way.BACK)
    undone = (*STEPS.between(STEPS.begins, step), step)
    return max(c.inventory.policy.way_back_s, sum(took.get(one, 0.0) for one in undone))


MESSAGE_S = 3.0
"""The time limit in seconds for one request to a host, or for a change that sets an entry or writes a line.

Such a request or change takes milliseconds; a renewal on a machine at a load of 30 took 1.5 s.
"""

SLOW_S: dict[str, float] = {
    "service": 30.0,
    "started-observer": 30.0,
    "halt": 30.0,
    "image": 120.0,
    "arm": 300.0,
    "disarm": 120.0,
}
"""The time limit in seconds for the verbs that stop or start ZooKeeper, or copy or remove its data.

Once more than half of the hosts have answered, the rest get less time
(:class:`zkmigrate.hosts.parallel.GiveUp`).
"""

LEAST_S = 0.5
"""The shortest time limit in seconds for a look or a change, even if the deadline is nearer."""


def limits(phase: str, verb: str, back: bool, left_s: float | None) -> tuple[float, float]:
    """Return the time limits, in seconds, of one message of a look or change, and of all its messages.

    phase: id of the last step with an effect, "" before the first such step. verb: the verb of the change, ""
    for a look. back: whether the run goes back. left_s: seconds until the way back must start, None without
    such a deadline.

    Before the first FENCE there is no limit, because no client is refused. From then on a host that does not
    answer counts as silent after :data:`MESSAGE_S`. Until SEAL is done no limit ends after the latest time to
    start the way back. When the run goes back, and once all hosts are sealed, only the single message has a
    limit.
    """
    if STEPS.reached(phase) is Phase.ARMED:
        return math.inf, math.inf
    most = SLOW_S.get(verb, MESSAGE_S)
    whole = most if verb else math.inf
    if not back and left_s is not None:
        whole = min(whole, max(left_s, LEAST_S))
    return min(most, whole), whole


def decide_finding(phase: str, finding: Finding, policy: Policy) -> Decision:
    """Return the decision of :func:`decide` for a finding of the watch or of a step.

    phase: id of the last step with an effect, "" before the first such step. A finding of a step means that
    the step cannot continue. Once GO is sent, an unknown finding only means that a look got no answer. Hosts
    that finish alone must not be made to go back for that reason.
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
"""The window rules of the move's stages that have a window."""
