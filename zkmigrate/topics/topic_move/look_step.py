"""What: check gateways, mirror, groups and clients of the set; change nothing.

If a group has not committed all records that it received, the check is repeated for topic_move.settle_ms.

Why now: each later step relies on these checks, and a client that cannot switch must be found before any
client waits.

Clients may notice: nothing, because this step only reads.

Way back: nothing was changed.

Proof: every gateway answers and reaches each broker of both clusters, each application is open on source,
every partition is mirrored, and no group prevents the switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from zkmigrate.runbook.accepted import accepted
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, blocking, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict, Waiting
from zkmigrate.topics.mirror.questions import FindGroupReads, GroupReads, MirrorSurvey, SurveyMirror
from zkmigrate.topics.mirror.rules.direction import Direction
from zkmigrate.topics.topic_move.direction import check_direction, recorded_direction
from zkmigrate.topics.topic_move.facts import (
    Copiers,
    Ends,
    Gateways,
    Looked,
    Part,
    both_ends,
    copiers,
    forward,
    gateways,
)
from zkmigrate.topics.topic_move.rules import (
    cannot_read,
    check_copiers_report,
    check_in_sync,
    check_outcomes,
    check_reach,
    check_restarts,
    check_survey,
    client_findings,
    part_name,
)
from zkmigrate.topics.topic_move.section import move_of, switched
from zkmigrate.topics.topic_move.set_rules import (
    app_topics,
    node_ids,
    other_apps,
    other_groups,
    staged_elsewhere,
    superusers,
    users,
)
from zkmigrate.topics.topic_move.units import UnitTopics, check_units, read_unit_topics

_POLL_S = 0.5


@dataclass(frozen=True)
class Delivered:
    """A measurement of how far groups with members have committed.

    ends: where the logs end. now: the time in seconds, read after ``ends`` and before ``groups``. groups: the
    commits. Records that a group had not committed were delivered at the time ``now`` or later.
    """

    ends: Reading[Ends]
    now: float
    groups: Reading[Mapping[str, GroupReads]]


@dataclass(frozen=True)
class LookFacts:
    """Facts for the step look.

    forward, back: the copiers to target and the copiers to source. at: seconds since the epoch. units: the
    topics of the copiers' units, by host and unit. Only ``delivered`` is measured again when the step waits.
    """

    gateways: Gateways
    survey: Reading[MirrorSurvey]
    forward: Copiers
    back: Copiers
    at: float
    delivered: Delivered
    direction: Reading[Direction]
    units: Mapping[tuple[str, str], UnitTopics] = field(default_factory=dict)


class LookStep(Reads[LookFacts]):
    id = Looked.step
    title = "Check gateways, mirror and clients"

    def observe(self, c: Context, look: Look) -> LookFacts:
        move, topics = move_of(c.inventory).topic_move, switched(c.inventory)
        delivered = Delivered(
            both_ends(c, look),
            look.now(),
            look.ask(FindGroupReads(*forward(c), topics.topics, topics.groups)),
        )
        first: LookFacts | None = c.kept.get("first")
        if first is not None:
            return replace(first, delivered=delivered)
        return LookFacts(
            gateways(c, look),
            look.ask(SurveyMirror(*forward(c), topics.topics, topics.groups)),
            copiers(c, look, move.target),
            copiers(c, look, move.source),
            look.wall(),
            delivered,
            recorded_direction(c, look),
            read_unit_topics(c, look),
        )

    def check(self, c: Context, f: LookFacts) -> Verdict:
        later = tuple(tuple(one) for one in f.survey.value.later) if isinstance(f.survey, Seen) else ()
        found = accepted(c.inventory.accept, tuple(_findings(c, f)), f.at)
        if blocking(found):
            return Blocked(found)
        first: LookFacts = c.kept.get("first", f)
        return _waiting(c, first, f.delivered) or Done(
            (*found, *_check_settled(first.delivered, f.delivered)), Looked(later).encode()
        )


def _findings(c: Context, f: LookFacts) -> Iterator[Finding]:
    move = move_of(c.inventory).topic_move
    yield from f.gateways.unknown
    yield from f.gateways.not_in_state(
        "switch.start", lambda app: app.gate == "open" and app.route == move.source, f"open on {move.source}"
    )
    topics = switched(c.inventory).topics
    yield from staged_elsewhere(f.gateways, move.target)
    yield from client_findings(f.gateways)
    yield from check_outcomes(f.gateways, Severity.WARN)
    yield from check_restarts(f.gateways)
    yield users(f.gateways, move.target)
    yield from app_topics(f.gateways, topics)
    yield from other_apps(f.gateways, topics, move.source)
    if isinstance(f.survey, Seen):
        source_ids, target_ids = f.survey.value.brokers
        yield node_ids(source_ids, target_ids)
        yield check_reach(f.gateways, move.source, source_ids, Severity.WARN)
        yield check_reach(f.gateways, move.target, target_ids)
        yield from check_survey(f.survey.value)
        yield from other_groups(f.survey.value.others)
        yield superusers(f.gateways, f.survey.value.super_users)
    else:
        yield cannot_read("the mirror", f.survey)
    yield from check_direction(c, f.direction)
    if isinstance(f.delivered.ends, Seen):
        yield from check_in_sync(f.delivered.ends.value)
    yield from check_copiers_report(f.forward)
    yield from check_copiers_report(f.back)
    yield from check_units(f.units, topics)
    yield claim(
        "switch.copies",
        f"a copier to {move.target} runs on every mirror host",
        _unless_silent(f.forward, not f.forward.down),
        seen=f"the copier is down on {few(f.forward.down)}" if f.forward.down else f.forward.unit,
        needed=f"{f.forward.unit} active",
    )
    yield claim(
        "switch.copies-back",
        f"no copier to {move.source} runs, or starts at boot",
        _unless_silent(f.back, not f.back.running and not f.back.enabled),
        seen=_describe_back(f.back) or "none",
        needed=f"{f.back.unit} stopped and disabled, because two copiers would copy each other's records",
    )


def _describe_back(back: Copiers) -> str:
    """Describe on which hosts a copier to source runs now or starts at boot."""
    running = [f"a copier runs on {few(back.running)}"] if back.running else []
    return ", ".join(running + ([f"a copier starts at boot on {few(back.enabled)}"] if back.enabled else []))


def _waiting(c: Context, first: LookFacts, now: Delivered) -> Waiting | None:
    """Return a wait while groups may still commit records that they received; None if no wait is needed.

    first: the facts at the start of the step. now: the newest measurement.
    """
    limit_s = move_of(c.inventory).topic_move.settle_ms / 1000
    left_s = limit_s - (now.now - first.delivered.now)
    late = _uncommitted_groups(first.delivered, now)
    if not late or left_s <= 0:
        return None
    what = "groups have committed the records that they received"
    told = f"{limit_s - left_s:.1f} of {limit_s:g} s: {few(late)}"
    return Waiting(what, told, limit_s + 60, poll_s=min(_POLL_S, left_s), keep={"first": first})


def _uncommitted_groups(first: Delivered, now: Delivered) -> list[str]:
    """Return the groups that have not committed all records that source had at the first measurement."""
    if not isinstance(first.ends, Seen) or not isinstance(now.groups, Seen):
        return []
    ends = {part: one.source or 0 for part, one in first.ends.value.items()}
    return [
        name
        for name, group in now.groups.value.items()
        if any((at or 0) < ends.get(part, 0) for part, at in group.parts.items())
    ]


def _check_settled(first: Delivered, now: Delivered) -> Iterator[Finding]:
    """Check whether each group commits soon enough for the switch.

    If not, the finding reports how many records the group would get twice.
    """
    if not isinstance(now.groups, Seen) or not isinstance(first.ends, Seen) or not isinstance(now.ends, Seen):
        unseen = next(one for one in (now.groups, first.ends, now.ends) if not isinstance(one, Seen))
        yield _settled_finding(None, str(unseen))
        return
    late, groups = _uncommitted_groups(first, now), now.groups.value
    for name in late:
        seen = f"records that the group would get twice: {_count_twice(groups[name].parts, now.ends.value)}"
        yield _settled_finding(False, seen, name)
    dark = {name: one.why for name, one in groups.items() if one.why}
    for name, why in dark.items():
        yield _settled_finding(None, why, name)
    if len(late) + len(dark) < len(groups) or not groups:
        yield _settled_finding(
            True, f"groups with members: {len(groups) - len(late) - len(dark):,} of {len(groups):,}"
        )


def _count_twice(parts: Mapping[Part, int | None], ends: Ends) -> str:
    """Return a text with the number of records that a group has not committed and would get twice.

    parts: the group's commits by partition. ends: where the logs end.
    """
    told = {part: (at, ends[part].source if part in ends else None) for part, at in parts.items()}
    records = sum(max(0, end - at) for at, end in told.values() if at is not None and end is not None)
    whole = [part_name(part) for part, (at, end) in told.items() if end is None or (at is None and end)]
    others = f", all of {few(whole)}" if whole else ""
    return f"at most {records:,}{others}, and the records written until the switch"


def _settled_finding(held: bool | None, seen: str, group: str = "") -> Finding:
    return claim(
        "switch.settled",
        "groups commit the records that they received within topic_move.settle_ms",
        held,
        target=group,
        seen=seen,
        needed="commits up to the ends that source's logs had topic_move.settle_ms ago",
        severity=Severity.WARN,
    )


def _unless_silent(found: Copiers, held: bool) -> bool | None:
    """Return ``held``, or None if it is True although a host does not report the state of its copier."""
    return None if held and found.silent else held


MEANINGS = meanings(
    """
    switch.start: An application is not open on source. Cause: Another run holds it, or it has switched
    already. To do: Look at zkmigrate gateway status on that host. If the application has switched already,
    exchange topic_move.source and target.

    switch.copies: No copier to target runs on a mirror host. Cause: Its unit is down. To do: Start the unit,
    and wait until the mirror is equal.

    switch.settled: A group does not commit soon enough, so the switch will deliver some records twice. Cause:
    The group commits rarely, or it lags. To do: Raise topic_move.settle_ms above the group's
    auto.commit.interval.ms, or let the group commit more often. You can also continue: the finding reports
    how many records will be delivered twice at most.

    switch.copies-back: A copier to source runs, or starts at boot. Cause: It remains from an earlier switch,
    or somebody enabled its unit. To do: Stop the unit with systemctl disable --now, or exchange
    topic_move.source and target.
    """
)
