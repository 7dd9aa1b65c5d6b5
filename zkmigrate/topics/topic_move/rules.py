"""Make the findings that several steps of a switch of topics need."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Held, Severity, claim, few, meanings
from zkmigrate.runbook.model.step import Waiting
from zkmigrate.topics.gateway.rules.outcomes import DELIVERY_S
from zkmigrate.topics.gateway.usage import certificates, usage
from zkmigrate.topics.mirror.questions import GroupPair, MirrorSurvey
from zkmigrate.topics.mirror.rules.needed import only_warns
from zkmigrate.topics.topic_move.facts import Copiers, Ends, Gateways

_STUCK = "gateway.client-stuck"


Mark = tuple[float, int]
"""A time in seconds, and the number of records that source had received by that time."""


@dataclass(frozen=True)
class Lag:
    """The delay of the mirror behind source.

    mark: the values that a later measurement needs; None if the end of a log is not known. s: the delay in
    seconds, as the time in which source received the missing records; None before the second measurement.
    words: the delay as text.
    """

    mark: Mark | None
    s: float | None
    words: str

    def within(self, limit_s: float) -> bool:
        """Return whether the delay is known and is at most ``limit_s`` seconds."""
        return self.s is not None and self.s <= limit_s


def lag(reading: Reading[Ends], now: float, before: Mark | None) -> Lag:
    """Return how far the mirror is behind source.

    reading: where the logs end. now: the time in seconds. before: the mark of an earlier measurement.
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
    return Lag(mark, behind_s, f"{told}, a lag of {behind_s:.1f} s")


def part_name(part: tuple[str, int]) -> str:
    """Return the name of a partition as text, such as ``orders-3``."""
    return f"{part[0]}-{part[1]}"


def client_findings(found: Gateways) -> Iterator[Finding]:
    """Yield the findings about the applications' clients that matter for a switch.

    If a client does not report its release, the finding is only a warning, because no operator can make the
    client report it.
    """
    for (host, name), app in found.at.items():
        for one in usage(name, app.seen):
            told = replace(one, target=f"{host}:{one.target}")
            unknown = told.id == _STUCK and told.held is Held.UNKNOWN
            yield replace(told, severity=Severity.WARN) if unknown else told
    for host, seen in found.certificates.items():
        yield from certificates(host, seen)


def cannot_read(what: str, reading: Reading[object]) -> Finding:
    """Return the finding that something could not be read from both clusters.

    what: the subject that could not be read. reading: the failed reading, which has the reason.
    """
    return claim(
        "switch.clusters",
        "both clusters respond",
        None,
        seen=f"{what}: {reading}",
        needed="a response from each broker that leads a partition of the set",
    )


def check_reach(
    found: Gateways, cluster: str, nodes: Collection[int] = (), severity: Severity = Severity.BLOCK
) -> Finding:
    """Check that every gateway reaches each broker of a cluster.

    nodes: the ids of the cluster's brokers, as far as known. severity: the severity of the finding.
    """
    wrong = []
    for host, brokers in found.brokers.items():
        told = brokers.get(cluster, {})
        wrong += [f"{host}: broker {node}: {why}" for node, why in told.items() if why]
        wrong += [
            f"{host}: broker {node} is not in the gateway's configuration"
            for node in nodes
            if node not in told
        ]
    return claim(
        "switch.reach",
        f"every gateway reaches each broker of {cluster}",
        not wrong if wrong or not found.unknown else None,
        seen=few(wrong) or "each broker, as far as the gateways report",
        needed="each broker in the gateway's configuration, and a response from it",
        severity=severity,
    )


def check_survey(survey: MirrorSurvey) -> Iterator[Finding]:
    """Check that all topics, groups and ACLs of the set are mirrored."""
    source, target = survey.ids
    yield claim(
        "switch.two-clusters",
        "source and target are two clusters",
        source != target,
        seen=f"cluster ids {source} and {target}",
        needed="two different ids",
    )
    yield from _own_rights(survey)
    refused = [f"{topic}: {why}" for topic, why in survey.refused.items()]
    yield claim(
        "switch.topics",
        "every topic of the set can be mirrored",
        not refused,
        seen=few(refused) or "all",
        needed="topics that meet the conditions in docs/reference/mirror.md",
    )
    differ = [f"{name}: {what}" for name, what in survey.differ.items()]
    yield claim(
        "switch.settings",
        "target's topics have the same settings as source's",
        not differ,
        seen=few(differ) or "the same settings",
        needed="the same settings: the copier sets them while it runs",
    )
    if survey.left:
        yield claim(
            "switch.settings-left",
            "the mirror copies every setting of source's topics",
            False,
            seen=few(f"{name}: {why}" for name, why in survey.left.items()),
            needed="settings that both releases of Kafka have and that the mirror copies",
            severity=Severity.WARN,
        )
    wrong = not_mirrored(survey, ("equal", "behind", "held"))
    yield claim(
        "switch.partitions",
        "every partition is mirrored",
        not wrong,
        seen=few(wrong) or f"{len(survey.partitions):,} partitions",
        needed="partitions that are equal or behind",
    )
    yield check_groups(survey.groups)
    yield from _transactions(survey)
    yield claim(
        "switch.rights",
        "users who may read on source may read on target",
        not survey.grants,
        seen=few(survey.grants) or "nothing is missing",
        needed="each of these ACLs on target; the copier adds them while it runs",
        severity=Severity.WARN,
    )
    yield claim(
        "switch.rights-to-write",
        "before the switch the run grants on target the rights to write that users have on source",
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
            severity=Severity.WARN,
        )


def _own_rights(survey: MirrorSurvey) -> Iterator[Finding]:
    """Report the rights that the run needs for its own work and does not have."""
    for one in survey.lacking:
        yield claim(
            "switch.own-rights",
            "the run has the rights that it needs on both clusters",
            False,
            target=f"{one.side}:{one.resource}:{one.name}".rstrip(":"),
            seen=one.words,
            needed="the rights that docs/reference/mirror.md lists",
            moves=(one.command, "if an ACL denies the right, delete that ACL"),
            severity=Severity.WARN if only_warns(one) else Severity.BLOCK,
        )
    if not survey.lacking:
        yield claim("switch.own-rights", "the run has the rights that it needs on both clusters", True)


def not_mirrored(survey: MirrorSurvey, sound: Collection[str] = ("equal", "behind")) -> list[str]:
    """List the partitions whose state is not sound, each with its state and the reason.

    sound: the states that are sound.
    """
    return [
        f"{part_name(part)}: {state}" + (f", {why}" if why else "")
        for part, (state, why) in survey.partitions.items()
        if state not in sound
    ]


def check_in_sync(ends: Ends) -> tuple[Finding, ...]:
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
            needed="min.insync.replicas of each partition: below it, records that a leader "
            "acknowledged with acks=1 cannot be read, and a switch would lose them",
        ),
    )


def check_groups(groups: Mapping[str, GroupPair]) -> Finding:
    """Check that every group can switch, has no members on target, and is not ahead of source."""
    wrong = [f"{name}: {one.why}" for name, one in groups.items() if one.state not in ("equal", "behind")]
    return claim(
        "switch.groups",
        "every group can switch, and none is active on target or ahead of source",
        not wrong,
        seen=few(wrong) or f"{len(groups):,} groups",
        needed="classic groups whose members all read on source, with commits inside source's logs",
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
            needed="none: on target each transaction would fail with INVALID_PRODUCER_ID_MAPPING",
        )


def check_commits(reading: Reading[Mapping[str, GroupPair]]) -> Finding:
    """Check that every group has the same commits on both clusters."""
    if not isinstance(reading, Seen):
        return cannot_read("groups", reading)
    apart = [f"{name}: {one.why}" for name, one in reading.value.items() if one.state != "equal"]
    return claim(
        "switch.commits",
        "every group has the same commits on both clusters",
        not apart,
        seen=few(apart) or f"{len(reading.value):,} groups",
        needed="equal commits: a lower commit delivers records twice, and a higher commit skips records",
    )


def check_leases(found: Gateways) -> tuple[Finding, ...]:
    """Return a finding for each application whose requests should wait but do not wait any more."""
    return tuple(
        claim(
            "switch.lapsed",
            "the application's requests wait",
            False,
            target=f"{host}:{name}",
            seen=app.words,
            needed="held without interruption since the step hold",
        )
        for (host, name), app in found.at.items()
        if app.lapsed or not app.requests_wait
    )


def check_outcomes(found: Gateways, severity: Severity = Severity.BLOCK) -> tuple[Finding, ...]:
    """Return a finding for each application with clients that do not know the outcome of a batch."""
    return tuple(
        claim(
            "switch.outcomes",
            "the clients know the outcome of each batch that they sent",
            False,
            target=f"{host}:{name}",
            seen=app.unsure,
            needed="none: clients send such a batch again, and after the switch target would store it twice",
            severity=severity,
        )
        for (host, name), app in found.at.items()
        if app.unsure
    )


def check_restarts(found: Gateways) -> Iterator[Finding]:
    """Yield a finding for each gateway that was restarted a short time ago."""
    for host, seconds in found.restarted.items():
        if seconds < DELIVERY_S:
            yield claim(
                "switch.restarted",
                "the gateway's list of batches whose outcome its clients do not know is complete",
                None,
                target=host,
                seen=f"the gateway was restarted {seconds:.0f} s ago, and has lost its former list",
                needed=f"{DELIVERY_S:.0f} s since the start; before that, target could store a batch twice",
                moves=(f"begin the switch {DELIVERY_S - seconds:.0f} s later",),
                severity=Severity.WARN,
            )


def check_source_ends(before: Mapping[tuple[str, int], int], now: Ends) -> tuple[Finding, ...]:
    """Return a finding if source's logs no longer end where they ended after the hold.

    before: the ends after the hold, by partition. now: the current ends. If the current end of a log is not
    reported, the log is not counted as grown.
    """
    odd = [
        f"{part_name(part)}: {end:,}, now {one.source if one else 'missing'}"
        for part, end in before.items()
        if (one := now.get(part)) is None or one.source not in (None, end)
    ]
    odd += [f"{part_name(part)}: new" for part in now if part not in before]
    if not odd:
        return ()
    return (
        claim(
            "switch.bypassed",
            "no client writes on source while the application's requests wait",
            False,
            seen=few(odd),
            needed="log ends that do not move: every producer of these topics must use the gateway",
        ),
    )


def wait_for_leaders(ends: Ends, deadline_s: float, poll_s: float) -> Waiting | None:
    """Return a wait until all leaders of source report the end of their logs; None if all report it."""
    dark = [part_name(part) for part, one in ends.items() if one.source is None]
    if not dark:
        return None
    return Waiting("source's leaders report their ends", f"no response: {few(dark)}", deadline_s, poll_s)


def check_copiers_report(found: Copiers) -> tuple[Finding, ...]:
    """Return a finding for each mirror host that does not report whether its copier runs."""
    return tuple(
        claim(
            "switch.copier",
            "the mirror host reports whether its copier runs",
            None,
            target=host,
            seen=seen,
            needed=f"the state of {found.unit}",
        )
        for host, seen in found.silent.items()
    )


MEANINGS = meanings(
    """
    switch.gateway: A gateway does not respond, or its configuration lacks an application of the set. Cause:
    Its process is down, or topic_move.set names another application. To do: Run zkmigrate gateway status on
    that host, fix the gateway or its configuration, then resume.

    switch.reach: A gateway cannot reach a broker, or its configuration lacks one. Cause: A firewall blocks
    the connection, or the broker is down or new. To do: Run zkmigrate gateway status on that host. Fix the
    configuration or the connection to the broker, then resume.

    switch.clusters: A cluster did not respond. Cause: A broker is down, or refuses this client. To do: Find
    out why it does not respond, then resume or roll back.

    switch.two-clusters: Source and target are the same cluster. Cause: The inventory has wrong brokers under
    clusters. To do: Correct the brokers under clusters.

    switch.topics: A topic of the set cannot be mirrored. Cause: The finding names the reason. To do: Fix the
    reason, or remove the topic from the set.

    switch.settings: A topic has other settings on target. Cause: The copier does not run, or somebody changed
    them on target. To do: Look at zkmigrate mirror plan and zkmigrate mirror status, start the copier, then
    resume.

    switch.settings-left: A topic has settings that the mirror does not copy. Cause: One of the two releases
    of Kafka has no such setting, or the setting names source's brokers or format. To do: Look at zkmigrate
    mirror plan, and set on target what the topic needs there.

    switch.partitions: A partition is not mirrored, or its mirror failed. Cause: The finding names the reason.
    To do: Repair the mirror as docs/reference/mirror.md explains. Look at zkmigrate mirror status, then
    resume.

    switch.transactions: Source's brokers know a producer that writes to the set's topics in transactions, or
    do not report their producers. Cause: The producer has a transactional.id, whose state is not copied to
    target. To do: Stop the producer, accept the finding for its id, and start it again after the switch. Or
    remove its topics from the set. If brokers do not report, find out why, then run again.

    switch.in-sync: Too few replicas of a partition are in sync. Cause: A broker is down, or so slow that its
    replicas are no longer in sync. To do: Start the brokers that have the other replicas, wait until these
    are in sync, then run again. Until then, records written with acks=1 cannot be read.

    switch.groups: A consumer group cannot switch. Cause: The group has members or later commits on target,
    because clients just switched away from there or a consumer reads there. Or it is a live group of KIP-848,
    a share group or a streams group. Or it committed beyond the end of source's log. To do: Just after a
    switch, wait for a minute until its sessions end. If a consumer reads on target, stop it. Otherwise follow
    the advice next to the group's name, or remove the group from the set.

    switch.own-rights: The run lacks a right on a cluster, so a later step would fail, or a check would see
    too little. Cause: An ACL is missing, or one denies it. To do: As an administrator, run the command that
    the finding shows. If an ACL denies the right, delete that ACL.

    switch.rights: Target lacks ACLs that source has. Cause: The copier does not run, or may not grant them.
    To do: Start the copier, or grant these ACLs on target.

    switch.rights-to-write: Some users may write on source and not on target. Cause: This is only a remark:
    the mirror does not copy these rights. To do: Nothing; the step grant adds them.

    switch.unread: Groups or ACLs could not be read. Cause: The account lacks a right, or a cluster has no
    authorizer. To do: Grant the right to describe groups or ACLs, then check again. Without an authorizer do
    nothing.

    switch.commits: A group's commits differ between the clusters. Cause: The group committed after the copy,
    or the copy failed. To do: Let the run roll back, then run again.

    switch.lapsed: A gateway released an application's requests by itself. Cause: The hold lasted longer than
    topic_move.hold_ms, or the gateway was restarted. To do: Let the run roll back. Find the slow step in the
    report, or raise topic_move.hold_ms, then run again.

    switch.outcomes: Clients do not know the outcome of batches that they sent, and send them again. Cause: A
    broker or a client closed the connection before the response, or replicas were missing. To do: Wait until
    the clients have sent them again, 300 seconds at most, then run again. See the table lost in zkmigrate
    gateway status, and the brokers' logs, for the cause.

    switch.restarted: A gateway was restarted a short time ago. Cause: Its process or its host was restarted.
    To do: Begin the switch 300 seconds after the gateway's start. Before that, a client may send a batch
    again whose response the former process lost, and target would store it as a second record.

    switch.bypassed: A partition of source grew while the application's requests waited. Cause: A producer
    connects to the brokers directly, not through the gateway. To do: Find that producer. The run rolls back,
    unless clients already use target: then the records written since are on source only.

    switch.copier: A mirror host does not report whether its copier runs. Cause: The host does not respond. To
    do: Find out why the host does not respond, then resume or roll back.
    """
)
