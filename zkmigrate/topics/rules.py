"""Findings about topics: whether one config can be set on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.model.look import TopicSetting
from zkmigrate.model.step import Context
from zkmigrate.topics.facts import FirstLook, shown, topic_config

AGAIN = "fix that, then resume"
LEAVE_OUT = "leave these topics as they are: add them to topic_config.leave_out, then resume"


def before(c: Context, f: FirstLook) -> tuple[Finding, ...]:
    """The findings before the first change; each that does not hold blocks."""
    if not isinstance(f.cluster, Seen):
        return (_unheard(f.cluster),)
    id = f.cluster.value.cluster_id
    same = claim(
        "topics.cluster",
        "the brokers are those of the cluster that the inventory names",
        id == c.inventory.kafka.cluster_id,
        seen=f"cluster id {id}",
        needed=c.inventory.kafka.cluster_id,
        moves=("check which cluster has the addresses under kafka.brokers",),
    )
    named = claim(
        "topics.names",
        "every entry of topic_config.topics matches a topic",
        not f.unmatched,
        seen=f"nothing matches {few(f.unmatched)}" if f.unmatched else f"{len(f.topics):,} topics",
        needed="a name of a topic, or a pattern that one matches",
        moves=("correct the entry, or take it out",),
    )
    return (same, named, *_settings(c, f))


def _settings(c: Context, f: FirstLook) -> tuple[Finding, ...]:
    wanted = topic_config(c.inventory)
    known = claim(
        "topics.key",
        f"Kafka has a topic config {wanted.key}",
        not isinstance(f.settings, Absent),
        seen="none of this name" if isinstance(f.settings, Absent) else "it has",
        needed="the name of a topic config, as kafka-configs.sh --help lists them",
        moves=("correct topic_config.key",),
    )
    if isinstance(f.settings, Absent):
        return (known,)
    if isinstance(f.settings, Unknown):
        return (_unheard(f.settings),)
    settings = f.settings.value
    if not isinstance(f.refused, Seen):
        return (known, *unreadable(settings), _unheard(f.refused))
    locked = [t for t, s in settings.items() if isinstance(s, Seen) and s.value.read_only]
    writable = claim(
        "topics.read-only",
        f"{wanted.key} may be changed",
        not locked,
        seen=f"read-only for {few(locked)}" if locked else "of every topic",
        moves=("ask whoever runs the cluster",),
    )
    return (known, *unreadable(settings), writable, *_refused(c, f.refused.value), _found(c, settings))


def unreadable(settings: Mapping[str, Reading[TopicSetting]]) -> tuple[Finding, ...]:
    """A finding for topics that are gone, and one for topics whose config may not be read."""
    gone = [t for t, s in settings.items() if isinstance(s, Absent)]
    dark = {t: s for t, s in settings.items() if isinstance(s, Unknown)}
    found = []
    if gone:
        found.append(
            claim(
                "topics.there",
                "every topic of this run exists",
                False,
                seen=f"gone: {few(gone)}",
                needed="each topic that the run began with",
                moves=("create the topic again, then resume", LEAVE_OUT, "rollback"),
            )
        )
    if dark:
        found.append(
            claim(
                "topics.readable",
                "the config of every topic can be read",
                None,
                seen=f"{few(dark)}: {next(iter(dark.values()))}",
                needed="the right DescribeConfigs on each topic",
                moves=(AGAIN, LEAVE_OUT),
            )
        )
    return tuple(found)


def _refused(c: Context, refused: Mapping[str, str]) -> tuple[Finding, ...]:
    """One finding for each reason that Kafka gives."""
    wanted = topic_config(c.inventory)
    sentence = f"every topic takes {wanted.key}={wanted.value}"
    reasons: dict[str, list[str]] = {}
    for topic, why in refused.items():
        reasons.setdefault(why.replace(f"'{topic}'", "TOPIC"), []).append(topic)
    return tuple(
        claim("topics.value", sentence, False, seen=f"{few(topics)}: {why}", moves=(AGAIN, LEAVE_OUT))
        for why, topics in reasons.items()
    ) or (claim("topics.value", sentence, True, seen="Kafka has validated it and changed nothing"),)


def _found(c: Context, settings: Mapping[str, Reading[TopicSetting]]) -> Finding:
    wanted = topic_config(c.inventory)
    count = Counter(shown(s.value.own) for s in settings.values() if isinstance(s, Seen))
    have = count.pop(wanted.value, 0)
    unset = count.pop(shown(None), 0)
    others = f"{count.total():,} have another value" + (f" ({few(count)})" if count else "")
    return claim(
        "topics.found",
        f"what the topics set for {wanted.key} now",
        True,
        seen=f"{unset:,} of {len(settings):,} set nothing, {have:,} have the value already, {others}",
        severity=Severity.INFO,
    )


def _unheard(reading: Unknown | Absent) -> Finding:
    cause = reading.cause if isinstance(reading, Unknown) else ""
    return claim(
        "topics.answer",
        "the brokers list their topics",
        None,
        seen=str(reading),
        moves=("see why no broker answers as it should, then resume",),
        cause=cause,
    )


MEANINGS = meanings(
    """
    topics.cluster: The brokers belong to another cluster than the inventory names. Cause: kafka.brokers
    or kafka.cluster_id is wrong. To do: Correct migration.yml.

    topics.names: An entry of topic_config.topics matches no topic. Cause: A typing error, or the topic is
    gone. To do: Correct the entry, or remove it.

    topics.key: Kafka has no topic config of this name. Cause: A typing error in topic_config.key. To do:
    Correct topic_config.key. kafka-configs.sh --help lists the names.

    topics.read-only: The brokers do not let anybody change this config. Cause: It is read-only on these
    brokers. To do: Ask whoever runs the cluster.

    topics.there: A topic of this run is gone. Cause: Somebody deleted it. To do: Create it again and
    resume, remove it from topic_config.topics, or roll back.

    topics.readable: The config of a topic cannot be read. Cause: The account lacks DescribeConfigs on it.
    To do: Grant the right, then resume.

    topics.value: Kafka refuses the value. Cause: The value does not fit the config, or an ACL forbids it.
    To do: Correct topic_config.value, or grant the right, then resume.

    topics.found: How many topics set this config now, and to what. Cause: A remark; it stops nothing. To
    do: Nothing.

    topics.answer: No broker tells of its topics. Cause: The brokers do not answer, or refuse this client.
    To do: See why, then resume.
    """
)
