"""Make the findings that several steps of a switch share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Held, Severity, claim, few, meanings
from zkmigrate.runbook.model.step import Waiting
from zkmigrate.topics.gateway.rules.outcomes import DELIVERY_S
from zkmigrate.topics.gateway.usage import usage
from zkmigrate.topics.mirror.questions import GroupPair, MirrorSurvey
from zkmigrate.topics.mirror.rules.needed import only_warns
from zkmigrate.topics.topic_move.facts import Copiers, Ends, Gateways

_SEE_MIRROR = "look at zkmigrate mirror status, then resume"
_UNTOLD = "gateway.client-stuck"


Mark = tuple[float, int]
"""A time in seconds, and how many records source had received by then."""


@dataclass(frozen=True)
class Lag:
    """How far the mirror is behind source.

    mark: the values for a later measurement; None if an end is not known. s: the lag in seconds of what
    source receives; None without two marks. words: the lag as text.
    """

    mark: Mark | None
    s: float | None
    words: str

    def within(self, limit_s: float) -> bool:
        """Return whether the lag is known and at most ``limit_s`` seconds."""
        return self.s is not None and self.s <= limit_s


def lag(reading: Reading[Ends], now: float, before: Mark | None) -> Lag:
    """Return the lag between the ends of both logs.

    now: seconds. before: the mark of an earlier measurement.
    """
    if not isinstance(reading, Seen):
        return Lag(None, None, str(reading))
    ends = reading.value
    if dark := [part_name(part) for part, one in ends.items() if one.lag is None]:
        return Lag(None, None, f"not known: {few(dark)}")
    records = sum(one.lag or 0 for one in ends.values())
    mark = now, sum(one.source or 0 for one in ends.values())
    told = f"{records:,} records behind"
    if before is None:
        return Lag(mark, None, told)
    since, then = before
    rate = (mark[1] - then) / max(now - since, 0.001)
    told += f", {rate:,.0f} records/s"
    if records and rate <= 0:
        return Lag(mark, None, told)
    behind_s = records / rate if records else 0.0
    return Lag(mark, behind_s, f"{told}: {behind_s:.1f} s")


def part_name(part: tuple[str, int]) -> str:
    """Return the name of a partition as ``topic-number``."""
    return f"{part[0]}-{part[1]}"


def used(found: Gateways) -> Iterator[Finding]:
    """Yield the findings about the applications' clients that matter for a switch.

    A client that does not report its release is only a warning, because it cannot be made to report it.
    """
    for (host, name), app in found.at.items():
        for one in usage(name, app.seen):
            told = replace(one, target=f"{host}:{one.target}")
            unknown = told.id == _UNTOLD and told.held is Held.UNKNOWN
            yield replace(told, severity=Severity.WARN) if unknown else told


def unread(what: str, reading: Reading[object]) -> Finding:
    """Return the finding that both clusters could not be read.

    what: what could not be read. reading: why not.
    """
    return claim(
        "switch.clusters",
        "both clusters answer",
        None,
        seen=f"{what}: {reading}",
        needed="an answer of each broker that leads a partition of the set",
        moves=("see why it does not answer, then resume", "rollback"),
    )


def reached(
    found: Gateways, cluster: str, nodes: Collection[int] = (), severity: Severity = Severity.BLOCK
) -> Finding:
    """Check that every gateway reaches each broker of a cluster.

    nodes: the ids of its brokers, as far as known.
    """
    wrong = []
    for host, brokers in found.brokers.items():
        told = brokers.get(cluster, {})
        wrong += [f"{host}: broker {node}: {why}" for node, why in told.items() if why]
        wrong += [f"{host}: broker {node} is not in its file" for node in nodes if node not in told]
    return claim(
        "switch.reach",
        f"every gateway reaches each broker of {cluster}",
        not wrong if wrong or not found.unknown else None,
        seen=few(wrong) or "all of them, as far as gateways tell",
        needed="each broker in the gateway's file, and an answer of it",
        moves=(
            "see zkmigrate gateway status there",
            "fix the file or the connection to the broker, then resume",
        ),
        severity=severity,
    )


def surveyed(survey: MirrorSurvey) -> Iterator[Finding]:
    """Check that everything in the set is mirrored."""
    source, target = survey.ids
    yield claim(
        "switch.two-clusters",
        "source and target are two clusters",
        source != target,
        seen=f"cluster ids {source} and {target}",
        needed="two ids",
        moves=("correct the brokers under clusters",),
    )
    yield from _own_rights(survey)
    refused = [f"{topic}: {why}" for topic, why in survey.refused.items()]
    yield claim(
        "switch.topics",
        "every topic of the set can be mirrored",
        not refused,
        seen=few(refused) or "all",
        needed="topics as docs/reference/mirror.md says",
        moves=("leave the topic out of the set",),
    )
    differ = [f"{name}: {what}" for name, what in survey.differ.items()]
    yield claim(
        "switch.settings",
        "target's topics have source's settings",
        not differ,
        seen=few(differ) or "equal",
        needed="the same settings: the copier sets them while it runs",
        moves=(_SEE_MIRROR,),
    )
    if survey.left:
        yield claim(
            "switch.settings-left",
            "target's topics have every setting of source's",
            False,
            seen=few(f"{name}: {why}" for name, why in survey.left.items()),
            needed="none that one of the two releases lacks, or that the mirror leaves out",
            moves=("see zkmigrate mirror plan, and set on target what the topics need there",),
            severity=Severity.WARN,
        )
    wrong = not_mirrored(survey, ("equal", "behind", "held"))
    yield claim(
        "switch.partitions",
        "every partition is mirrored",
        not wrong,
        seen=few(wrong) or f"{len(survey.partitions):,} partitions",
        needed="partitions that are equal or behind",
        moves=("repair the mirror: docs/reference/mirror.md", _SEE_MIRROR),
    )
    yield groups_ready(survey.groups)
    yield from _transactions(survey)
    yield claim(
        "switch.rights",
        "target lets those read who may read on source",
        not survey.grants,
        seen=few(survey.grants) or "nothing is missing",
        needed="these ACLs: the copier grants them while it runs",
        moves=("grant them on target", _SEE_MIRROR),
        severity=Severity.WARN,
    )
    yield claim(
        "switch.rights-to-write",
        "the run grants on target, before it leads clients there, the rights to write that source grants",
        True,
        seen=few(map(str, survey.later)) or "nothing is missing",
        severity=Severity.INFO,
    )
    dark = [f"{about}: {why}" for about, why in survey.notes.items()]
    if dark:
        yield claim(
            "switch.unread",
            "groups and ACLs of both clusters can be read",
            None,
            seen=few(dark),
            needed="the right to describe them, on clusters that have an authorizer",
            moves=("grant it, then look again",),
            severity=Severity.WARN,
        )


def _own_rights(survey: MirrorSurvey) -> Iterator[Finding]:
    """Report the rights that the run itself needs and does not have."""
    for one in survey.lacking:
        yield claim(
            "switch.own-rights",
            "the run has the rights that it needs on both clusters",
            False,
            target=f"{one.side}:{one.resource}:{one.name}".rstrip(":"),
            seen=one.words,
            needed="the rights of docs/reference/mirror.md",
            moves=(one.command, "if an ACL denies it, delete that ACL"),
            severity=Severity.WARN if only_warns(one) else Severity.BLOCK,
        )
    if not survey.lacking:
        yield claim("switch.own-rights", "the run has the rights that it needs on both clusters", True)


def not_mirrored(survey: MirrorSurvey, sound: Collection[str] = ("equal", "behind")) -> list[str]:
    """List the partitions that are not in a sound state, each with its state and the reason."""
    return [
        f"{part_name(part)}: {state}" + (f", {why}" if why else "")
        for part, (state, why) in survey.partitions.items()
        if state not in sound
    ]


def too_few_in_sync(ends: Ends) -> tuple[Finding, ...]:
    """Return a finding if partitions of either cluster have too few replicas in sync."""
    short = [f"source's {part_name(part)}: {one.held}" for part, one in ends.items() if one.below]
    short += [
        f"target's {part_name(part)}: {one.target_below}" for part, one in ends.items() if one.target_below
    ]
    if not short:
        return ()
    return (
        claim(
            "switch.in-sync",
            "enough replicas of each partition are in sync",
            False,
            seen=few(short),
            needed="min.insync.replicas of each partition: below it nobody can read what a leader "
            "acknowledges with acks=1, and a switch would leave it behind",
            moves=("bring the brokers back that hold the other replicas, then run again",),
        ),
    )


def groups_ready(groups: Mapping[str, GroupPair]) -> Finding:
    """Check that every group can switch, and that none has members on target or is ahead of source."""
    wrong = [f"{name}: {one.why}" for name, one in groups.items() if one.state not in ("equal", "behind")]
    return claim(
        "switch.groups",
        "every group can switch, and none is active on target or ahead of source",
        not wrong,
        seen=few(wrong) or f"{len(groups):,} groups",
        needed="classic groups whose members all read on source, with commits inside source's logs",
        moves=(
            "if it is active on target just after a switch, wait until its sessions end, 10 to 45 s",
            "if a consumer reads on target, stop it",
            "if the group cannot switch, follow the advice beside its name, or name the groups of the set "
            "without it",
        ),
    )


def _transactions(survey: MirrorSurvey) -> Iterator[Finding]:
    """Report the transactional producers that source's brokers know for the set's topics."""
    named, dark = survey.transactional, survey.transactional_dark
    told: dict[str, tuple[bool | None, str]] = {name: (False, why) for name, why in named.items()}
    if dark or not named:
        told[""] = (None, dark) if dark else (True, "none")
    for name, (held, seen) in told.items():
        yield claim(
            "switch.transactions",
            "no producer writes to the set's topics in transactions",
            held,
            target=name,
            seen=seen,
            needed="none: on target each of its transactions would end with INVALID_PRODUCER_ID_MAPPING",
            moves=(
                "stop this producer, accept the finding, and start it again after the switch",
                "leave its topics out of the set",
            )
            if name
            else ("see why brokers do not tell, then run again",),
        )


def groups_equal(reading: Reading[Mapping[str, GroupPair]]) -> Finding:
    """Check that every group has the same commits on both clusters."""
    if not isinstance(reading, Seen):
        return unread("groups", reading)
    apart = [f"{name}: {one.why}" for name, one in reading.value.items() if one.state != "equal"]
    return claim(
        "switch.commits",
        "every group has the same commits on both clusters",
        not apart,
        seen=few(apart) or f"{len(reading.value):,} groups",
        needed="equal commits: a lower one delivers records twice, a higher one skips some",
        moves=("rollback",),
    )


def lapsed(found: Gateways) -> tuple[Finding, ...]:
    """Return a finding for each application whose requests no longer wait, though they should."""
    return tuple(
        claim(
            "switch.lapsed",
            "the application's requests wait",
            False,
            target=f"{host}:{name}",
            seen=app.words,
            needed="held, without a gap since the hold",
            moves=("run again with a longer topic_move.hold_ms", "see in the report which step was slow"),
        )
        for (host, name), app in found.at.items()
        if app.lapsed or not app.waits
    )


def unsure(found: Gateways, severity: Severity = Severity.BLOCK) -> tuple[Finding, ...]:
    """Return a finding for each application whose clients do not know the outcome of a batch."""
    return tuple(
        claim(
            "switch.outcomes",
            "the clients know the outcome of each batch that they sent",
            False,
            target=f"{host}:{name}",
            seen=app.unsure,
            needed="none: clients send them again, and after the switch target takes a retry for a record",
            moves=(
                "wait until the clients have sent these again, or have given up, then run again",
                "see under lost in zkmigrate gateway status, and in the brokers' logs, why answers were lost",
            ),
            severity=severity,
        )
        for (host, name), app in found.at.items()
        if app.unsure
    )


def restarted(found: Gateways) -> Iterator[Finding]:
    """Return a finding for each gateway that was restarted a short time ago."""
    for host, seconds in found.restarted.items():
        if seconds < DELIVERY_S:
            yield claim(
                "switch.restarted",
                "the gateway knows each batch whose outcome its clients do not know",
                None,
                target=host,
                seen=f"it was started again {seconds:.0f} s ago, and does not know what was lost before",
                needed=f"{DELIVERY_S:.0f} s: a retry of such a batch would be a second record on target",
                moves=(f"begin the switch {DELIVERY_S - seconds:.0f} s later",),
                severity=Severity.WARN,
            )


def moved(before: Mapping[tuple[str, int], int], now: Ends) -> tuple[Finding, ...]:
    """Return a finding if source's logs do not end where they ended after the hold.

    before: those ends by partition. An end that is not reported does not count as moved.
    """
    odd = [
        f"{part_name(part)}: {end:,}, now {one.source if one else 'gone'}"
        for part, end in before.items()
        if (one := now.get(part)) is None or one.source not in (None, end)
    ]
    odd += [f"{part_name(part)}: new" for part in now if part not in before]
    if not odd:
        return ()
    return (
        claim(
            "switch.bypassed",
            "nobody writes on source while the application's requests wait",
            False,
            seen=few(odd),
            needed="ends that do not move: every producer of these topics goes through the gateway",
            moves=("find the producer that connects to the brokers themselves", "let the run walk back"),
        ),
    )


def silent_source(ends: Ends, deadline_s: float, poll_s: float) -> Waiting | None:
    """Return a wait for the leaders of source that do not report a log end; None if all do.

    Without these ends it is not known whether the logs have grown.
    """
    dark = [part_name(part) for part, one in ends.items() if one.source is None]
    if not dark:
        return None
    return Waiting("source's leaders report their ends", f"silent: {few(dark)}", deadline_s, poll_s)


def not_silent(found: Copiers) -> tuple[Finding, ...]:
    """Return a finding for each mirror host that does not report whether its copier runs."""
    return tuple(
        claim(
            "switch.copier",
            "the mirror host reports whether its copier runs",
            None,
            target=host,
            seen=seen,
            needed=f"the state of {found.unit}",
            moves=("see why the host does not answer, then resume", "rollback"),
        )
        for host, seen in found.silent.items()
    )


MEANINGS = meanings(
    """
    switch.gateway: A gateway does not answer, or its file lacks an application of the set. Cause: Its
    process is down, or topic_move.set names another application. To do: See zkmigrate gateway status on
    that host, then resume.

    switch.reach: A gateway does not reach a broker, or its file lacks one. Cause: A firewall, or a broker
    that is down, or new. To do: See zkmigrate gateway status on that host.

    switch.clusters: A cluster did not answer. Cause: A broker is down, or refuses this client. To do: See
    why, then resume.

    switch.two-clusters: Source and target are the same cluster. Cause: Wrong brokers under clusters. To
    do: Correct the inventory.

    switch.topics: A topic of the set cannot be mirrored. Cause: The finding names it. To do: Leave the
    topic out of the set, or fix what is named.

    switch.settings: A topic has other settings on target. Cause: The copier does not run, or somebody
    changed them on target. To do: See zkmigrate mirror plan, then look again.

    switch.settings-left: A topic has settings that the mirror does not copy. Cause: One of the two releases
    of Kafka has no such setting, or it names source's brokers or format. To do: See that the topic does
    without it on target, or set there what it needs.

    switch.partitions: A partition is not mirrored, or its mirror failed. Cause: The finding names it. To
    do: Repair the mirror, then look again.

    switch.transactions: Source's brokers know a producer that writes to the set's topics in transactions, or
    cannot tell. Cause: It has a transactional.id, whose state does not follow to target. To do: Stop it,
    accept the finding for its id, and start it again after the switch. If brokers cannot tell, see why.

    switch.in-sync: Too few replicas of a partition are in sync. Cause: A broker is down, or so slow that its
    replicas left the set in sync. To do: Bring it back, and wait until its replicas are in sync. Records
    with acks=1 cannot be read until then.

    switch.groups: A consumer group cannot switch. Cause: It has members or later commits on target, because a
    switch just led them away or a consumer reads there. Or it is a live group of KIP-848, a share group or a
    streams group. Or it committed behind the end of source's log. To do: Wait for a minute, else stop the
    consumer on target. Let consumers use group.protocol=classic. Set a commit behind the end back with
    kafka-consumer-groups.

    switch.own-rights: The run lacks a right on a cluster, so that a later step would fail, or a look would
    see too little. Cause: An ACL is missing, or one denies it. To do: Give the command that the finding
    names, as an administrator. Then look again.

    switch.rights: Target lacks ACLs that source has. Cause: The copier does not run, or may not grant them.
    To do: Grant them on target before the switch.

    switch.rights-to-write: Some may write on source and not on target. Cause: The mirror leaves these rights
    to the switch. To do: Nothing; the step grant gives them.

    switch.unread: Groups or ACLs could not be read. Cause: The account lacks a right, or a cluster has no
    authorizer. To do: Grant the right; without an authorizer do nothing.

    switch.commits: A group's commits differ between the clusters. Cause: It committed after the copy, or
    the copy failed. To do: Let the run walk back, then run again.

    switch.lapsed: A gateway let an application's requests go on by itself. Cause: The hold lasted longer
    than topic_move.hold_ms, or the gateway was restarted. To do: Let the run walk back. See in the report
    which step was slow.

    switch.outcomes: Clients do not know the outcome of batches that they sent, and send them again. Cause: A
    broker or a client ended its connection before the answer, or replicas were missing. To do: Wait until
    they have sent them again, 300 seconds at most. Then run again.

    switch.restarted: A gateway was started again a short time ago. Cause: Its process ended, or its host.
    To do: Begin the switch 300 seconds after its start. Before that, a batch whose answer was lost with the
    former process may be sent again, and be a second record on target.

    switch.bypassed: A partition of source grew while the application's requests waited. Cause: A producer
    connects to the brokers beside the gateway. To do: Find it. The run walks back, unless clients already
    went on at target: then what was written since is on source only.

    switch.copier: A mirror host does not report whether its copier runs. Cause: The host does not answer.
    To do: See why, then resume.
    """
)
