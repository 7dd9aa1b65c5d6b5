"""What: limit what the brokers of the moves send and receive for replicas that are not in sync.

Why now: a move without a limit takes network and disks from clients. The former settings are recorded first.

Clients may notice: nothing; a follower of these partitions that falls behind catches up more slowly.

Way back: each setting gets its former value, or is unset again. Values that other tools set meanwhile stay.

Proof: a new query shows the setting of every broker and topic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from zkmigrate.cluster.reassign.answers import WITNESSES
from zkmigrate.cluster.reassign.facts import LOOKS
from zkmigrate.cluster.reassign.moves import Move, Originals, originals, section
from zkmigrate.cluster.reassign.rules import originals_lost
from zkmigrate.cluster.reassign.throttle import (
    LISTS,
    FirstLimits,
    Limits,
    Seens,
    SentRates,
    Throttles,
    Values,
    choosing,
    fixed,
    involved,
    listed,
    of_broker,
    preset,
    read,
    sent_rates,
    throttles,
    unreadable,
    values,
)
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import KAFKA, AlterAtController, AlterBrokerConfig, AlterTopicConfig
from zkmigrate.kafka.questions import DescribePartitions, TopicSetting, ValidateAtController
from zkmigrate.runbook.accepted import accepted
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, blocking, claim, few, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import (
    Blocked,
    Context,
    Done,
    Forecast,
    Hazard,
    Ready,
    Step,
    Verdict,
    Waiting,
    Way,
)
from zkmigrate.runbook.model.step_record import known

WAVE = 100
"""The number of brokers and topics that are set at once."""


def _none(_inventory: Inventory) -> tuple[int, ...]:
    return ()


@dataclass(frozen=True)
class ThrottleFacts:
    """The throttle settings of the run's brokers and topics.

    limits: the throttle of this run; before its first change, as it will be recorded.
    record: the record to write with the first change; else empty.
    seen: the current settings.
    after: in a forecast, the settings after the step, from which it is undone.
    wall: the time at which the facts were read, in seconds since the epoch.
    set_since: what another tool has set since the preflight, in words.
    refused: for each broker that does not answer, why the controller refuses to restore its rates; empty if
    it accepts.
    """

    plan: Originals | None
    limits: Limits | None
    record: Mapping[str, object]
    seen: Reading[Seens]
    after: Reading[Seens] | None = None
    wall: float = 0.0
    set_since: tuple[str, ...] = ()
    refused: Mapping[str, Reading[str]] = field(default_factory=dict)

    @cached_property
    def now(self) -> Values:
        """The current settings by target and key; empty if they could not be read."""
        return values(self.seen.value) if isinstance(self.seen, Seen) else {}


class ThrottleStep(Step[ThrottleFacts]):
    id = Throttles.step
    title = "Set the throttle"
    hazard = Hazard.REVERSIBLE
    sets = Way.FORWARD
    """The direction in which the throttle is set; in the other one it is removed."""

    def __init__(
        self,
        *,
        every_broker: bool = False,
        foresee: Callable[[Context, Look], tuple[Move, ...]] | None = None,
        leave: Callable[[Inventory], Collection[int]] = _none,
        first: type[FirstLimits] = FirstLimits,
    ) -> None:
        """Create the step.

        every_broker: whether brokers without a part in the moves known so far get a rate, too.
        foresee: returns the moves as they will be, before they are recorded; None if that is unknown.
        leave: returns the brokers that the run itself may have stopped going forward.
        first: the type of the preflight's record.
        """
        self.every_broker, self.foresee, self.leave, self._first = every_broker, foresee, leave, first

    def brokers(self, c: Context, rated: Collection[int]) -> tuple[int, ...]:
        """Return the brokers that this step sets, out of those with a rate of this run."""
        return tuple(rated)

    def topics(self, c: Context, moved: tuple[str, ...]) -> tuple[str, ...]:
        """Return the topics that this step sets, out of those that move."""
        return moved

    def observe(self, c: Context, look: Look) -> ThrottleFacts:
        facts = replace(self._observed(c, look, originals(c)), wall=look.wall())
        if c.way is self.sets or c.kept.get("looks", 0) < LOOKS or facts.limits is None:
            return facts
        rates = {one: _at_controller(one, facts.limits) for one in self._keeping(c, facts)}
        return replace(
            facts, refused={one: look.ask(ValidateAtController(of[0])) for one, of in rates.items() if of}
        )

    def _observed(self, c: Context, look: Look, plan: Originals | None) -> ThrottleFacts:
        if plan is None:
            return ThrottleFacts(None, None, {}, Seen({}))
        topics = tuple(dict.fromkeys(move.topic for move in plan.throttled if move.copies))
        before = throttles(c)
        if before is None or (self.id == Throttles.step and c.way is Way.FORWARD and not c.begun):
            named = topics or tuple(dict.fromkeys(move.topic for move in plan.moves))
            asked = named or self.every_broker
            alive = look.ask(DescribePartitions(KAFKA, named[:1], WITNESSES)) if asked else None
            if alive is not None and not isinstance(alive, Seen):
                return ThrottleFacts(plan, None, {}, alive)
            here = alive.value.brokers if alive is not None else frozenset()
            some = sorted(here) if self.every_broker else involved(plan.throttled)
            brokers = tuple(broker for broker in some if broker in here)
            inside = tuple(broker for broker in choosing(plan.moves) if broker in here)
            seen = read(look, brokers, topics, inside)
            if not isinstance(seen, Seen) or unreadable(seen.value):
                return ThrottleFacts(plan, None, {}, seen)
            how = section(c.inventory)
            between = dict.fromkeys(inside, how.throttle_bytes_s)
            before = Throttles(values(seen.value), fixed(how, brokers), between, preset(c, brokers))
            limits = Limits.of(before, sent_rates(c), plan.moves, self.sets, plan.others)
            first = known(self._first, c) or FirstLimits()
            since = first.set_since(before.found)
            return ThrottleFacts(plan, limits, before.encode(), seen, set_since=since)
        brokers, inside = self.brokers(c, before.rates), self.brokers(c, before.inside)
        seen = read(look, brokers, self.topics(c, topics), inside)
        limits = Limits.of(before, sent_rates(c), plan.moves, self.sets, plan.others)
        return ThrottleFacts(plan, limits, {}, seen)

    def check(self, c: Context, f: ThrottleFacts) -> Verdict:
        if f.plan is None:
            return Done() if c.way is Way.BACK and not c.begun else Blocked((originals_lost(),))
        limit = c.inventory.policy.step_deadline_s
        looks = c.kept.get("looks", 0)
        if not isinstance(f.seen, Seen):
            return Waiting("a response of Kafka about throttles", str(f.seen), limit, poll_s=1.0)
        silent = unreadable(f.seen.value)
        if f.limits is None:
            told = few(f"{target}: {why}" for target, why in silent.items())
            return Waiting("a response of Kafka about throttles", told, limit, poll_s=1.0)
        if f.set_since and c.way is Way.FORWARD:
            return Blocked((_set_since(f.set_since),))
        differ = self._differ(c, f)
        sent = c.unrestored - c.unconfirmed if c.way is Way.FORWARD else frozenset(differ) - c.unrestored
        todo = tuple(target for target in differ if target not in sent)
        if todo:
            return Ready(todo[:WAVE], record=f.record)
        passed = self._passed(c)
        dead = tuple(one for one in self._keeping(c, f) if f.refused.get(one) == _TAKEN and one not in passed)
        if dead:
            return Ready(dead[:WAVE], record=f.record, keep={**c.kept, "passed": passed | {*dead[:WAVE]}})
        must_hold = bool(silent) and c.way is self.sets is Way.FORWARD  # no move begins without its limits
        left = self._remaining_throttles(c, f)
        if must_hold or ((differ or silent) and looks < LOOKS):
            what, keep = "the brokers report the throttle that Kafka has confirmed", {"looks": looks + 1}
            late = few((*differ, *silent))
            longest = math.inf if left else limit + LOOKS  # the number of looks limits it
            return Waiting(what, late, longest, poll_s=1.0, keep=keep)
        if differ and c.way is Way.FORWARD:
            return Ready(differ[:WAVE])
        return Blocked(left) if blocking(left) else Done((*left, self._result(c, f)), f.record)

    def _keeping(self, c: Context, f: ThrottleFacts) -> tuple[str, ...]:
        """Return the targets that may keep the throttle of the run, because they do not answer."""
        if c.way is self.sets or not isinstance(f.seen, Seen):
            return ()
        forward = c.way is Way.FORWARD
        silent = unreadable(f.seen.value)
        return tuple(one for one in silent if forward or one in c.unrestored or known(SentRates, c))

    def _passed(self, c: Context) -> frozenset[str]:
        """Return the brokers whose rates the controller has restored since this step was entered."""
        passed: frozenset[str] = c.kept.get("passed", frozenset())
        return passed - c.unconfirmed

    def _remaining_throttles(self, c: Context, f: ThrottleFacts) -> tuple[Finding, ...]:
        """Return a finding for each target that keeps the throttle of the run.

        Every other broker refuses requests for a broker's id. With ZooKeeper no other broker can unset its
        rates; without it only the controller can.
        """
        assert f.limits is not None
        away = frozenset(() if c.way is Way.BACK else map(of_broker, self.leave(c.inventory)))
        done = away | self._passed(c)
        findings = [
            _throttle_remains(one, f.limits, f.refused.get(one))
            for one in self._keeping(c, f)
            if one not in done
        ]
        return accepted(c.inventory.accept, findings, f.wall)

    def _needed_settings(
        self, c: Context, f: ThrottleFacts, target: str
    ) -> dict[str, tuple[str | None, str | None]]:
        """Return the settings of a target that differ, each with its current and its wanted value."""
        assert f.limits is not None
        to = f.limits.on if c.way is self.sets else f.limits.off
        now = f.now.get(target, {}) if target in f.limits.found else {}
        there = {key: (own, to(target, key, own)) for key, own in now.items()}
        return {key: (own, value) for key, (own, value) in there.items() if own != value}

    def _differ(self, c: Context, f: ThrottleFacts) -> tuple[str, ...]:
        assert isinstance(f.seen, Seen)
        return tuple(target for target in f.seen.value if self._needed_settings(c, f, target))

    def _changes(self, c: Context, f: ThrottleFacts, target: str) -> Changes:
        if f.limits is not None and f.refused.get(target) == _TAKEN:
            return _at_controller(target, f.limits)
        return tuple(
            AlterTopicConfig(KAFKA, target.removeprefix("topic-"), key, value, own)
            if key in LISTS
            else AlterBrokerConfig(KAFKA, int(target.removeprefix("broker-")), key, value, own)
            for key, (own, value) in self._needed_settings(c, f, target).items()
        )

    def plan(self, c: Context, f: ThrottleFacts, target: str) -> Changes:
        return self._changes(c, f, target)

    def undo(self, c: Context, f: ThrottleFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return self._changes(c, f if f.after is None else replace(f, seen=f.after), target)

    def forecast(self, c: Context, look: Look) -> Forecast[ThrottleFacts] | None:
        """Forecast the step from the settings that it will find: current ones, or those with the throttle."""
        if self.foresee is None:
            return None
        facts = self._observed(c, look, Originals(self.foresee(c, look)))
        if facts.limits is None or not isinstance(facts.seen, Seen):
            return None
        on = replace(facts.limits, way=Way.FORWARD)
        throttled: Reading[Seens] = Seen(
            {
                target: {key: Seen(TopicSetting(on.on(target, key, own))) for key, own in settings.items()}
                for target, settings in facts.now.items()
            }
        )
        if self.sets is Way.FORWARD:
            facts = replace(facts, after=throttled)
        else:
            facts = replace(facts, seen=throttled, after=facts.seen)
        return Forecast(facts, self._differ(c, facts))

    def _result(self, c: Context, f: ThrottleFacts) -> Finding:
        assert f.limits is not None
        assert isinstance(f.seen, Seen)
        silent = unreadable(f.seen.value)
        by_hand: tuple[str, ...] = ()
        if c.way is self.sets:
            topics = sum(target.startswith("topic-") for target in f.seen.value)
            sentence = "the brokers of the moves are throttled"
            seen = f"brokers: {len(f.seen.value) - topics:,}; topics: {topics:,}"
            odd: tuple[str, ...] = tuple(silent)
        else:
            sentence = "every throttle setting is as it was before the run"
            odd = tuple(
                f"{target}: {key} is {'unset' if own is None else own}"
                for target, settings in f.now.items()
                if target in f.limits.found
                for key, own in settings.items()
                if own != f.limits.found[target].get(key)
            )
            passed = self._passed(c)
            left = {target: why for target, why in silent.items() if target not in passed}
            odd += tuple(f"{target}: {why}" for target, why in left.items())
            by_hand = _by_hand(left, f.limits)
            kept = listed(f.limits.found)
            seen = f"restored from before the run: {few(kept)}" if kept else "no setting remains"
            seen += f"; restored at the controller for {few(sorted(passed))}" if passed else ""
        return claim(
            "reassign.throttle",
            sentence,
            not odd,
            seen=few(odd) if odd else seen,
            needed="the settings from before the run",
            moves=by_hand,
            severity=Severity.WARN,
        )


def _set_since(told: Sequence[str]) -> Finding:
    return claim(
        "reassign.throttle-changed",
        "no other person or tool has set a throttle since the preflight",
        False,
        seen=few(told),
        needed="the settings of the preflight; otherwise this run would restore those of another run",
    )


_TAKEN = Seen("")


def _at_controller(target: str, limits: Limits) -> tuple[AlterAtController, ...]:
    """Return the changes by which the controller restores the rates of a broker that is down.

    Empty for a topic.
    """
    if not target.startswith("broker-"):
        return ()
    id = int(target.removeprefix("broker-"))
    return tuple(
        AlterAtController(KAFKA, id, key, found, limits.on(target, key, None))
        for key, found in limits.found.get(target, {}).items()
    )


def _throttle_remains(target: str, limits: Limits, refused: Reading[str] | None) -> Finding:
    return claim(
        "reassign.throttle-stays",
        "the run has removed its throttle",
        False,
        target=target,
        seen=f"{target} does not respond, and may keep the settings of the run{_of_controller(refused)}",
        needed="a response of this broker, or without ZooKeeper of the controller; no other broker "
        "can unset its settings",
        moves=(
            f"start {target}, then resume",
            *_by_hand((target,), limits),
            "accept this finding in migration.yml",
        ),
    )


def _of_controller(refused: Reading[str] | None) -> str:
    """Say why the controller does not restore the rates; empty with ZooKeeper, where it cannot."""
    if refused is None or isinstance(refused, Absent):
        return ""
    return f"; the controller: {refused.value if isinstance(refused, Seen) else refused}"


def _by_hand(silent: Collection[str], limits: Limits) -> tuple[str, ...]:
    """Return the commands that restore the rates of brokers that did not answer; no later step does that."""
    return tuple(
        f"once {target} responds: {AlterBrokerConfig(KAFKA, int(target[7:]), key, value, None).command}"
        for target in silent
        for key, value in limits.found.get(target, {}).items()
        if key not in LISTS
    )


MEANINGS = meanings(
    """
    reassign.throttle: A throttle setting is not as the run needs it. Cause: Another person or tool changed it
    during the run, or its broker does not respond. To do: Find out who changed the setting, and set by hand
    the value that you want.

    reassign.throttle-changed: Another person or tool has set a throttle since the preflight of this run.
    Cause: Another run or tool moves partitions. To do: Wait until it has removed its throttle, then resume.
    If these settings are to remain, roll back and run again.

    reassign.throttle-stays: A broker or topic does not respond, so it may keep the throttle of the run.
    Cause: Its broker is down, and no other broker can remove its rates. Without ZooKeeper the active
    controller can, but it did not respond or had forgotten the broker. To do: Start the broker, then resume.
    If the broker never comes back, accept this in migration.yml.
    """
)
