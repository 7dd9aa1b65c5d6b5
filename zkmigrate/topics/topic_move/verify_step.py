"""What: check the state of clients and copiers after the switch.

Why now: clients that did not switch can be found only once the applications are open.

Clients may notice: nothing, because this step only reads.

Way back: run the same playbook with source and target exchanged.

Proof: every application is open on target, its clients are connected, and the mirror from target to source is
sound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Reads, Verdict
from zkmigrate.topics.mirror.questions import MirrorSurvey, SurveyMirror
from zkmigrate.topics.topic_move.facts import Gateways, backward, gateways
from zkmigrate.topics.topic_move.rules import cannot_read, not_mirrored
from zkmigrate.topics.topic_move.section import move_of, switched


@dataclass(frozen=True)
class VerifyFacts:
    """Facts for the step verify.

    survey: a comparison of topics, groups and ACLs, with target as the source of the mirror.
    """

    gateways: Gateways
    survey: Reading[MirrorSurvey]


class VerifyStep(Reads[VerifyFacts]):
    id = "verify"
    title = "Verify"

    def observe(self, c: Context, look: Look) -> VerifyFacts:
        topics = switched(c.inventory)
        survey = SurveyMirror(*backward(c), topics.topics, topics.groups)
        return VerifyFacts(gateways(c, look), look.ask(survey))

    def check(self, c: Context, f: VerifyFacts) -> Verdict:
        return Done.unless_blocked(tuple(_findings(c, f)))


def _findings(c: Context, f: VerifyFacts) -> Iterator[Finding]:
    target = move_of(c.inventory).topic_move.target
    yield from f.gateways.unknown
    yield from f.gateways.not_in_state(
        "switch.verify-open", lambda app: app.route == target and app.gate == "open", f"open on {target}"
    )
    clients = [f"{host}:{name}: {app.connections}" for (host, name), app in f.gateways.at.items()]
    away = [
        f"{told['missing']:,} of {host}:{name} ({few(told.get('names', ()))})"
        for (host, name), app in f.gateways.at.items()
        if (told := app.table("returned")).get("missing")
    ]
    yield claim(
        "switch.clients",
        "every application has clients, and those from before the switch have connected again",
        not away and all(app.connections for app in f.gateways.at.values()),
        seen=f"connections: {few(clients)}" + (f"; not connected again: {few(away)}" if away else ""),
        needed="at least one connection to each application, and every client connected again",
        severity=Severity.WARN,
    )
    yield left_ports(f.gateways)
    if not isinstance(f.survey, Seen):
        yield cannot_read("the mirror", f.survey)
        return
    wrong = not_mirrored(f.survey.value)
    yield claim(
        "switch.verify-mirror",
        "each partition of source is mirrored from target",
        not wrong,
        seen=few(wrong) or f"{len(f.survey.value.partitions):,} partitions",
        needed="none failed, missing or unknown, because switching back needs this mirror",
    )


def left_ports(found: Gateways) -> Finding:
    """Return the finding about clients that still connect to ports of the cluster that they left."""
    left = {
        f"{host}:{name}": app.on_left_ports for (host, name), app in found.at.items() if app.on_left_ports
    }
    clients = sorted({str(one) for app in found.at.values() for one in app.seen.get("left_clients", ())})
    told = "; ".join(f"{where}: {count}" for where, count in left.items())
    return claim(
        "switch.left-ports",
        "no client connects to a port of the cluster that the topics have left",
        not left,
        seen=f"connections {told}; clients: {few(clients)}" if left else "none",
        needed="none before you remove the gateway's listeners for that cluster",
        severity=Severity.INFO,
    )


MEANINGS = meanings(
    """
    switch.verify-open: An application is not open on target. Cause: An order did not reach its gateway. To
    do: Resume.

    switch.clients: An application has no client, or clients have not connected again since the switch. Cause:
    They do not run, or cannot connect. To do: Check that these clients run, and read their logs.

    switch.left-ports: Clients still connect to ports of the cluster that the topics have left. Cause: They
    know only these ports; the gateway routes them to the new cluster. To do: Give these clients the addresses
    of the new cluster when you restart them. Keep the gateway until none uses the old ports.

    switch.verify-mirror: A partition of source is not mirrored from target. Cause: The finding names the
    reason. To do: Repair the mirror as docs/reference/mirror.md explains, then resume.
    """
)
