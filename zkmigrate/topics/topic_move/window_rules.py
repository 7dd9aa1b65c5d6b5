"""Decide how a switch reacts to trouble between its hold and its opening, for each phase.

docs/reference/topic-move.md shows these decisions as a table. A test compares the table with :func:`decide`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from zkmigrate.inventory.inventory import Inventory, Policy
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Finding, Held, claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.sampling import Note
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.window import (
    Decision,
    Loss,
    Phase,
    Probe,
    Stand,
    Trouble,
    Unattended,
    WindowSpec,
    WindowSteps,
    Word,
)
from zkmigrate.topics.topic_move.facts import AppSeen, parse_statuses, statuses
from zkmigrate.topics.topic_move.section import gateway_hosts, move_of

STEPS = WindowSteps(
    phases={
        "look": Phase.ARMED,
        "arm": Phase.ARMED,
        "settle": Phase.ARMED,
        "hold": Phase.FENCED,
        "drain": Phase.STOPPED,
        "prove": Phase.STOPPED,
        "seal": Phase.SEALED,
        "grant": Phase.SEALED,
        "go": Phase.GO,
        "check": Phase.CHECKED,
        "open": Phase.OPEN,
    },
    begins="hold",
    cuts="hold",
    seals="seal",
    serves="check",
    opens="open",
)
"""The steps of the window, which is the time in which the applications' requests wait."""

NONE_SEALED = Phase.ARMED.until(Phase.SEALED)
"""The phases before the first order ``seal``, in which every gateway opens on source by itself."""

# Between SEAL and OPEN no request is answered on either side, so both ways are free. To turn back does not
# help if a gateway cannot be reached, because it would stay sealed. Only a leak or a blocked step turns back.
_SEALED: dict[Trouble, Decision] = {
    Trouble.LEASE_LAPSED: Decision.GO,
    Trouble.HOST_UNREACHABLE: Decision.GO,
    Trouble.BLOCK_LEAKS: Decision.BACK,
    Trouble.DEADLINE: Decision.GO,
    Trouble.BROKER_LOST: Decision.GO,
    Trouble.SOURCE_SICK: Decision.GO,
    Trouble.STEP_BLOCKED: Decision.BACK,
    Trouble.LOOK_UNKNOWN: Decision.GO,
}


def decide(phase: Phase, trouble: Trouble) -> Decision:
    """Return the decision for one kind of trouble in one phase.

    Before the step seal the run turns back at any trouble, because this only makes clients wait. After the
    step open the decision is always ``GO``, because clients write on target.
    """
    if phase is Phase.OPEN:
        return Decision.GO
    return Decision.BACK if phase in NONE_SEALED else _SEALED[trouble]


def decide_finding(phase: str, finding: Finding, _policy: Policy) -> Decision:
    """Return the decision for a finding of the watch or of a step.

    phase: the id of the last step with an effect, or an empty text before the first such step. A finding with
    the result unknown means that a query had no answer.
    """
    if finding.id in {t.value for t in Trouble}:
        trouble = Trouble(finding.id)
    elif finding.held is Held.UNKNOWN:
        trouble = Trouble.LOOK_UNKNOWN
    else:
        trouble = Trouble.STEP_BLOCKED
    return decide(STEPS.reached(phase), trouble)


def without_operator(all_sealed: bool) -> Word:
    """Return the answer that counts if no operator answers the run's question.

    all_sealed: whether the step seal is done.
    """
    return "go" if all_sealed else "back"


BACK_S = 1.0
"""The seconds that the way back needs before the hold ends by itself."""
MESSAGE_S, SERVICE_S, LEAST_S = 3.0, 30.0, 0.5
"""Time limits in seconds: for one query or order, for the start or stop of a copier, and the least limit."""


def deadline_s(c: Context) -> float:
    """Return the number of seconds after the first hold by which the way back must have started."""
    hold_s = move_of(c.inventory).topic_move.hold_ms / 1000
    return max(hold_s - BACK_S, hold_s / 2)


def limits(phase: str, verb: str, back: bool, left_s: float | None) -> tuple[float, float]:
    """Return two time limits in seconds: for one message of a query or change, and for all its messages.

    The arguments are those of ``WindowSpec.limits``. Before the hold there is no limit, because no client
    waits.
    """
    if STEPS.reached(phase) is Phase.ARMED:
        return math.inf, math.inf
    most = SERVICE_S if verb == "service" else MESSAGE_S
    whole = most if verb else math.inf
    if not back and left_s is not None:
        whole = min(whole, max(left_s, LEAST_S))
    return min(most, whole), whole


_EVERY_S, _IN_A_ROW = 0.5, 2


def probes(inventory: Inventory, look: Look, note: Note) -> tuple[Probe, ...]:
    """Return the probe that checks whether every gateway answers.

    The probe notes the statuses of the gateways for the report.
    """
    missed: Counter[str] = Counter()

    def findings() -> Iterator[Finding]:
        answers = statuses(inventory, look)
        note("gateways", parse_statuses(inventory, answers).sample)
        for host, told in answers.items():
            missed[host] = 0 if isinstance(told, Seen) else missed[host] + 1
            if missed[host] in (0, _IN_A_ROW):
                held = True if missed[host] == 0 else None
                seen = "the gateway responds" if held else str(told)
                yield claim(Trouble.HOST_UNREACHABLE, "the gateway responds", held, seen=seen, target=host)

    return (Probe("gateways", _EVERY_S, findings, leased=True, within_s=MESSAGE_S),)


_WORST = (Stand.UNHEARD, Stand.SEALED, Stand.LEASED, Stand.FINISHING, Stand.AFTER, Stand.BEFORE)


def state_of(app: AppSeen, source: str) -> Stand:
    """Return the state of an application at a gateway.

    source: the name of the cluster that the application is to leave.
    """
    if app.gate in ("open", "settling"):
        return Stand.BEFORE if app.route == source else Stand.AFTER
    return {"held": Stand.LEASED, "sealed": Stand.SEALED, "gone": Stand.FINISHING}[app.gate]


def _states(inventory: Inventory, look: Look) -> dict[str, Stand]:
    """Return for each gateway's host the worst state of an application there, in the order of ``_WORST``."""
    found = parse_statuses(inventory, statuses(inventory, look))
    source = move_of(inventory).topic_move.source
    of_host: dict[str, list[Stand]] = {host: [] for host in gateway_hosts(inventory)}
    for (host, _), app in found.at.items():
        of_host[host].append(state_of(app, source))
    for finding in found.unknown:
        of_host[finding.target].append(Stand.UNHEARD)
    return {host: min(stands, key=_WORST.index) for host, stands in of_host.items()}


def _loss(c: Context) -> Loss:
    limit_s = move_of(c.inventory).topic_move.client_timeout_ms / 1000
    return Loss(f"requests (a client gives up after {limit_s:g} s)", limit_s)


UNATTENDED = Unattended(
    one="gateway",
    many="gateways",
    shut="the applications' requests wait at the gateways",
    still="requests still wait at",
    opened="the applications' requests are released",
    stands=_states,
    alone_s=lambda c: move_of(c.inventory).topic_move.hold_ms / 1000,
    loss=_loss,
)

WINDOW = WindowSpec(
    STEPS,
    decide_finding,
    deadline_s,
    without_operator,
    limits,
    probes=probes,
    renews=False,
    unattended=UNATTENDED,
)
"""The rules of the window, as the rehearsal and the switch use them."""
