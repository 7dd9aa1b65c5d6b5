"""The decision about trouble between the hold and the open gate, as one total function.

docs/reference/topic-move.md prints :func:`table`; tests walk all of it.
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
from zkmigrate.topics.topic_move.facts import AppSeen, heard, statuses
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
"""The window of the switch: the application's requests wait."""

NONE_SEALED = Phase.ARMED.until(Phase.SEALED)
"""The phases before the first SEAL is sent: every gateway opens by itself, on source."""

# Between SEAL and OPEN no request is answered on either side, so both ways are free. A gateway that cannot be
# reached is not helped by turning back: it would stay sealed. Only a step that cannot go on turns.
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
    """The decision for one trouble in one phase. Before SEAL all trouble turns back: that costs clients a
    wait. After OPEN the answer is always ``GO``: clients write on target."""
    if phase is Phase.OPEN:
        return Decision.GO
    return Decision.BACK if phase in NONE_SEALED else _SEALED[trouble]


def decide_finding(phase: str, finding: Finding, _policy: Policy) -> Decision:
    """:func:`decide` for a finding of the watch or of a step. phase: id of the last step with an effect, ""
    before the first. An unknown one means a look without an answer."""
    if finding.id in {t.value for t in Trouble}:
        trouble = Trouble(finding.id)
    elif finding.held is Held.UNKNOWN:
        trouble = Trouble.LOOK_UNKNOWN
    else:
        trouble = Trouble.STEP_BLOCKED
    return decide(STEPS.reached(phase), trouble)


def without_operator(all_sealed: bool) -> Word:
    """What a question means when nobody answers. all_sealed: the SEAL step is done."""
    return "go" if all_sealed else "back"


BACK_S = 1.0
"""Seconds that the way back gets before the hold ends by itself."""
MESSAGE_S, SERVICE_S, LEAST_S = 3.0, 30.0, 0.5
"""Seconds for one question or order, for the start or stop of a copier, and the least for either."""


def deadline_s(c: Context) -> float:
    """Seconds after the first HOLD by which the way back must start."""
    hold_s = move_of(c.inventory).topic_move.hold_ms / 1000
    return max(hold_s - BACK_S, hold_s / 2)


def limits(phase: str, verb: str, back: bool, left_s: float | None) -> tuple[float, float]:
    """Seconds that one message of a look or change may take, and all of its messages together; arguments as
    ``WindowSpec.limits``. Before the hold nothing is limited: nobody waits."""
    if STEPS.reached(phase) is Phase.ARMED:
        return math.inf, math.inf
    most = SERVICE_S if verb == "service" else MESSAGE_S
    whole = most if verb else math.inf
    if not back and left_s is not None:
        whole = min(whole, max(left_s, LEAST_S))
    return min(most, whole), whole


_EVERY_S, _IN_A_ROW = 0.5, 2


def probes(inventory: Inventory, look: Look, note: Note) -> tuple[Probe, ...]:
    """Whether every gateway answers. What they tell is noted for the report."""
    missed: Counter[str] = Counter()

    def findings() -> Iterator[Finding]:
        answers = statuses(inventory, look)
        note("gateways", heard(inventory, answers).sample)
        for host, told in answers.items():
            missed[host] = 0 if isinstance(told, Seen) else missed[host] + 1
            if missed[host] in (0, _IN_A_ROW):
                held = True if missed[host] == 0 else None
                seen = "answers" if held else str(told)
                yield claim(Trouble.HOST_UNREACHABLE, "the gateway answers", held, seen=seen, target=host)

    return (Probe("gateways", _EVERY_S, findings, leased=True, within_s=MESSAGE_S),)


_WORST = (Stand.UNHEARD, Stand.SEALED, Stand.LEASED, Stand.FINISHING, Stand.AFTER, Stand.BEFORE)


def stand(app: AppSeen, source: str) -> Stand:
    """Judge where an application stands at a gateway. source: the cluster that it was on."""
    if app.gate in ("open", "settling"):
        return Stand.BEFORE if app.route == source else Stand.AFTER
    return {"held": Stand.LEASED, "sealed": Stand.SEALED, "gone": Stand.FINISHING}[app.gate]


def _stands(inventory: Inventory, look: Look) -> dict[str, Stand]:
    """The worst stand of each gateway's applications."""
    found = heard(inventory, statuses(inventory, look))
    source = move_of(inventory).topic_move.source
    of_host: dict[str, list[Stand]] = {host: [] for host in gateway_hosts(inventory)}
    for (host, _), app in found.at.items():
        of_host[host].append(stand(app, source))
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
    opened="the applications' requests go on",
    stands=_stands,
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
"""What the rehearsal and the switch carry."""
