"""What: set one config on every topic that the inventory names, a wave of topics at a time.

Why now: the topics exist and Kafka would take the value. What each of them sets now is recorded first.

Clients may notice: what the config itself does, such as shorter retention; no connection ends.

Way back: each topic that the run changed gets the value that it had, or sets nothing again. A topic that
somebody else has changed since, or that is gone, stays as it is and is named.

Proof: every topic has the value when it is looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from zkmigrate.errors import HostError
from zkmigrate.model.change import KAFKA, AlterTopicConfig, Applied, Changes, inverses
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.finding import Finding, Severity, blocking, claim, few, meanings
from zkmigrate.model.look import Look, Settings, TopicSetting
from zkmigrate.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.model.step_record import known
from zkmigrate.topics.facts import FirstLook, Originals, first_look, left_out, shown, topic_config
from zkmigrate.topics.rules import LEAVE_OUT, before, unreadable

WAVE = 100
"""Topics in a wave: after a kill at most so many changes have an unknown outcome, so many notices reach every
broker at once, and so many topics share two fsyncs of the journal."""

LOOKS = 30
"""How often, a second apart, a broker is asked again that still shows the value before a confirmed change:
with KRaft each broker learns of it by itself. After that somebody else has changed it."""


@dataclass(frozen=True)
class TopicConfigFacts:
    """record: what was there before the first change. first: the look that finds it, before anything is sent.
    settings: what the topics set now. whole: these are all topics of the run."""

    record: Originals | None
    first: FirstLook | None
    settings: Settings
    whole: bool


class TopicConfigStep(Step[TopicConfigFacts]):
    """wave: how many topics are changed at once."""

    id = Originals.step
    title = "Set the config"
    hazard = Hazard.REVERSIBLE

    def __init__(self, wave: int = WAVE) -> None:
        self._wave = wave

    def observe(self, c: Context, look: Look) -> TopicConfigFacts:
        """Look at each topic once before its change and once at the end; between two waves only at the next
        ones, and at those whose change is not confirmed."""
        if not c.begun and c.way is Way.FORWARD:
            first = first_look(c, look)
            return TopicConfigFacts(None, first, first.settings, whole=True)
        record = known(Originals, c)
        if record is None:
            return TopicConfigFacts(None, None, Seen({}), whole=True)
        key = topic_config(c.inventory).key
        for some in self._next(c, record):
            settings = look.topic_settings(KAFKA, key, some)
            if not isinstance(settings, Seen) or self._act(c, record, settings.value):
                return TopicConfigFacts(record, None, settings, whole=False)
        every = look.topic_settings(KAFKA, key, self._meant(c, record))
        return TopicConfigFacts(record, None, every, whole=True)

    def _next(self, c: Context, record: Originals) -> Iterator[Sequence[str]]:
        """The topics that the journal does not show as finished, a wave at a time."""
        if c.way is Way.BACK:
            left = [topic for topic in record.original if topic in c.unrestored]
        else:
            value, meant = topic_config(c.inventory).value, self._meant(c, record)
            left = [topic for topic in meant if topic in c.unconfirmed]
            left += [t for t in meant if t not in c.unrestored and record.original[t] != value]
        return (left[at : at + self._wave] for at in range(0, len(left), self._wave))

    def _meant(self, c: Context, record: Originals) -> tuple[str, ...]:
        wanted = topic_config(c.inventory)
        return tuple(t for t in record.original if c.way is Way.BACK or not left_out(wanted, t))

    def _act(self, c: Context, record: Originals, settings: _BySetting) -> bool:
        """Whether these topics need a change, or stop the run. On the way back a topic that cannot be read
        stops nothing."""
        stops = c.way is Way.FORWARD and any(not isinstance(s, Seen) for s in settings.values())
        return stops or bool(_todo(c, record, settings))

    def check(self, c: Context, f: TopicConfigFacts) -> Verdict:
        if c.way is Way.BACK and f.record is None and not c.begun:
            return Done()
        if f.record is None and f.first is None:
            return Blocked((_lost(c),))
        if f.first is not None and blocking(findings := before(c, f.first)):
            return Blocked(findings)
        if not isinstance(f.settings, Seen):
            limit = c.inventory.policy.step_deadline_s
            return Waiting("Kafka reports its topics", str(f.settings), limit, poll_s=1.0)
        settings = f.settings.value
        record = f.record or Originals({t: _own(settings, t) for t in settings})
        if c.way is Way.BACK:
            return self._back(c, record, settings)
        if wrong := (*unreadable(settings), *_foreign(c, record, settings)):
            return Blocked(wrong)
        if todo := _todo(c, record, settings):
            return Ready(todo[: self._wave], record=record.encode())
        if late := _late(c, record, settings):
            return _not_told(c, late)
        return Done(_set(c, record, settings), record.encode())

    def _back(self, c: Context, record: Originals, settings: _BySetting) -> Verdict:
        if todo := _todo(c, record, settings):
            return Ready(todo[: self._wave])
        if late := _late(c, record, settings):
            return _not_told(c, late)
        if dark := {topic: s for topic, s in settings.items() if isinstance(s, Unknown)}:
            return Blocked(unreadable(dark))
        return Done((_as_before(c, record, settings),))

    def plan(self, c: Context, f: TopicConfigFacts, target: str) -> Changes:
        wanted = topic_config(c.inventory)
        found = _own(f.settings.value, target) if isinstance(f.settings, Seen) else None
        return (AlterTopicConfig(KAFKA, target, wanted.key, wanted.value, found),)

    def forecast(self, c: Context, look: Look) -> Forecast[TopicConfigFacts]:
        f = self.observe(c, look)
        verdict = self.check(c, f)
        if isinstance(verdict, Blocked):
            raise HostError("; ".join(f"{x.claim}: {x.seen}" for x in blocking(verdict.findings)))
        # Every wave, not the first one only.
        if not isinstance(verdict, Ready) or not isinstance(f.settings, Seen):
            return Forecast(f, ())
        return Forecast(f, _todo(c, f.record or Originals({}), f.settings.value))

    def basis(self, c: Context, f: TopicConfigFacts) -> Mapping[str, str]:
        """Which topics get the value, and nothing of what they set now: the run records that itself, and
        other hands may change it each minute."""
        return {f"topic {topic}": "there" for topic in f.first.topics} if f.first is not None else {}

    def undo(self, c: Context, f: TopicConfigFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return inverses(applied)


_BySetting: TypeAlias = Mapping[str, Reading[TopicSetting]]


def _own(settings: _BySetting, topic: str) -> str | None:
    """What a topic was seen to set; None where nothing, and where it was not seen."""
    setting = settings[topic]
    return setting.value.own if isinstance(setting, Seen) else None


def _todo(c: Context, record: Originals, settings: _BySetting) -> tuple[str, ...]:
    """The topics to change. On the way back these are the run's own changes that still stand: a value that is
    neither the run's nor the original one is of another hand and stays."""
    value = topic_config(c.inventory).value
    seen = {topic: s.value.own for topic, s in settings.items() if isinstance(s, Seen)}
    if c.way is Way.FORWARD:
        late = frozenset(_late(c, record, settings))  # of thousands
        return tuple(topic for topic, own in seen.items() if own != value and topic not in late)
    return tuple(topic for topic, own in seen.items() if own == value and topic in c.unrestored)


def _late(c: Context, record: Originals, settings: _BySetting) -> tuple[str, ...]:
    """The topics that brokers still show as before a change that Kafka has confirmed."""
    if c.kept.get("looks", 0) >= LOOKS:
        return ()
    value, old = topic_config(c.inventory).value, record.original
    sure = c.unrestored - c.unconfirmed
    if c.way is Way.BACK:
        sure, old = frozenset(old), dict.fromkeys(old, value)
    return tuple(
        topic
        for topic, s in settings.items()
        if isinstance(s, Seen) and topic in sure and s.value.own == old.get(topic)
        if record.original.get(topic, value) != value
    )


def _not_told(c: Context, late: Sequence[str]) -> Waiting:
    looks = c.kept.get("looks", 0) + 1
    what = f"brokers report what Kafka has confirmed of {topic_config(c.inventory).key}"
    limit = c.inventory.policy.step_deadline_s + LOOKS
    return Waiting(what, f"{len(late):,} topics: {few(late)}", limit, poll_s=1.0, keep={"looks": looks})


def _foreign(c: Context, record: Originals, settings: _BySetting) -> tuple[Finding, ...]:
    """A finding where topics set what is neither their original value nor the wanted one."""
    wanted = topic_config(c.inventory)
    odd = {
        topic: f"{topic}: {shown(s.value.own)} (before the run: {shown(record.original[topic])})"
        for topic, s in settings.items()
        if isinstance(s, Seen) and s.value.own not in (wanted.value, record.original[topic])
    }
    if not odd:
        return ()
    return (
        claim(
            "topics.foreign",
            f"nobody else changes {wanted.key} of a topic of this run",
            False,
            seen=few(odd.values()),
            needed=f"the value before the run, or {wanted.value}",
            moves=(
                "set one of the two by hand, then resume",
                LEAVE_OUT,
                "rollback: it leaves them as they are",
            ),
        ),
    )


def _set(c: Context, record: Originals, settings: _BySetting) -> tuple[Finding, ...]:
    wanted = topic_config(c.inventory)
    changed = sum(record.original[topic] != wanted.value for topic in settings)
    left = [topic for topic in record.original if topic not in settings]
    seen = f"{len(settings):,} topics have it; {changed:,} had another value, or none, before the run"
    if left:
        seen += f"; left out: {few(left)}"
    return (claim("topics.set", f"every topic has {wanted.key}={wanted.value}", True, seen=seen),)


def _as_before(c: Context, record: Originals, settings: _BySetting) -> Finding:
    """Whether the topics are as they were, and which are not; these are of other hands and stop nothing."""
    odd = [topic for topic, s in settings.items() if isinstance(s, Absent)]
    here = {topic: s.value.own for topic, s in settings.items() if isinstance(s, Seen)}
    odd = [f"{topic}: gone" for topic in odd]
    odd += [
        f"{topic}: {shown(own)} (before the run: {shown(record.original[topic])})"
        for topic, own in here.items()
        if own != record.original[topic]
    ]
    return claim(
        "topics.back",
        f"every topic sets what it set for {topic_config(c.inventory).key} before the run",
        not odd,
        seen=f"other hands changed {len(odd):,} since, which stay as they are: {few(odd)}"
        if odd
        else f"{len(here):,} topics",
        severity=Severity.WARN,
    )


def _lost(c: Context) -> Finding:
    return claim(
        "topics.original",
        f"the journal holds what each topic set for {topic_config(c.inventory).key} before the first change",
        None,
        seen="its lines are lost, and Kafka does not keep it",
        needed="the journal of this run",
        moves=(
            "put the file of the journal back from a copy, then resume",
            "begin another run: what the topics set now counts as original then",
        ),
    )


MEANINGS = meanings(
    """
    topics.foreign: Somebody else changed the config of a topic during this run. Cause: Another person or
    tool sets the same key. To do: Set one of the two values by hand and resume. Or roll back, which
    leaves these topics as they are.

    topics.set: A topic does not have the value yet. Cause: The change is under way. To do: Wait, or
    resume.

    topics.back: Some topics do not have their value from before the run. Cause: Somebody else changed
    them since; the rollback leaves them. To do: Set them by hand where you want the old value.

    topics.original: The journal does not tell what a topic set before the run. Cause: Lines of the
    journal are lost, and Kafka does not keep old values. To do: Put the journal back from a copy and
    resume. Or begin another run: it takes the present values as the original ones.
    """
)
