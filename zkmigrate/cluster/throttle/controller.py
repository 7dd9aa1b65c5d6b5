"""Rules that choose each broker's rate from what was measured since the last tick.

A tick should be longer than 11 s: Kafka averages a throttled rate over 11 samples of 1 s. A rate falls at
once and rises by steps. While a measured value is between limit / ``raise_factor`` and its limit, the rate
does not rise: one step cannot jump over that band, so the rate does not oscillate.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.kafka.rates import (
    Decision,
    Endless,
    Moving,
    Overrides,
    Rate,
    Reason,
    Replica,
    Role,
    Sample,
    Settings,
    State,
    amount,
)

_LEAST_CUT, _MOST_CUT = 0.9, 0.5
"""The factors of the smallest and the largest cut of a rate that is too high for a disk or a client."""


def decide(
    moving: Sequence[Moving],
    samples: Mapping[int, Sample],
    settings: Settings,
    previous: State,
    overrides: Overrides = Overrides(),  # noqa: B008 (frozen)
) -> Decision:
    """Decide the rates of this tick.

    moving: the partitions of the run that still move or will.
    samples: samples by broker id, of every broker that the run uses, also while nothing moves. Brokers
    without figures are left out. A broker that had a rate keeps one.
    """
    tick = _Tick(moving, samples, settings, previous, overrides)
    brokers = sorted({broker for one in moving for broker in (one.leader, *one.adding)} | {*previous.rates})
    missed = {b: previous.missed.get(b, 0) + 1 for b in brokers if b not in samples}
    found = {(b, role): tick.rate(b, role, missed.get(b, 0)) for b in brokers for role in Role}
    rates = {b: Rate(found[b, Role.LEADER].rate, found[b, Role.FOLLOWER].rate) for b in brokers}
    late = tick.slow_ticks()
    pauses = tick.pauses(late)
    return Decision(
        rates,
        tuple(b for b in brokers if rates[b] != previous.rates.get(b)),
        bool(pauses),
        tuple(Reason(b, role, one.why) for (b, role), one in found.items()),
        tuple(one.endless for one in found.values() if one.endless),
        pauses,
        State(rates, missed, late, _lags(moving), bool(pauses)),
    )


def never_finishing(
    moving: Sequence[Moving], rates: Mapping[int, Rate], end_within_s: float
) -> tuple[Endless, ...]:
    """Return those rates at which copies can never finish. rates: by broker id."""
    found = (
        _endless(broker, role, rate.of(role), _need(moving, broker, role, end_within_s))
        for broker, rate in rates.items()
        for role in Role
    )
    return tuple(one for one in found if one is not None)


@dataclass(frozen=True, slots=True)
class _Found:
    rate: int
    why: str
    endless: Endless | None = None


@dataclass(frozen=True, slots=True)
class _Need:
    """The traffic that one rate has to carry.

    produced: bytes per second that clients write to the partitions of the rate, once for each follower that
    it counts.
    left: bytes to copy besides.
    ending: the rate that copies both within the wanted time.
    """

    produced: float
    left: int
    ending: int


def _need(moving: Sequence[Moving], broker: int, role: Role, end_within_s: float) -> _Need | None:
    """Return the traffic that one rate has to carry, or None if nothing is left to copy."""
    copies = [
        (one, len(one.adding) if role is Role.LEADER else 1)
        for one in moving
        if broker in ((one.leader,) if role is Role.LEADER else one.adding)
    ]
    left = sum(one.left * times for one, times in copies)
    if not left:
        return None
    leads = role is Role.LEADER
    produced = sum(one.produced * (times + one.followers * leads) for one, times in copies)
    return _Need(produced, left, math.floor(produced + left / end_within_s) + 1)


def _endless(
    broker: int, role: Role, rate: int, need: _Need | None, ceiling: float = math.inf
) -> Endless | None:
    """Return a description of a rate that can never carry its need, or None if it can."""
    if need is None or rate > need.produced:
        return None
    seconds = need.left / (need.ending - need.produced)
    return Endless(broker, role, rate, need.produced, need.ending, seconds, need.ending <= ceiling)


@dataclass(frozen=True, slots=True)
class _Tick:
    moving: Sequence[Moving]
    samples: Mapping[int, Sample]
    settings: Settings
    previous: State
    overrides: Overrides

    def rate(self, broker: int, role: Role, missed: int) -> _Found:
        rate, why = self._chosen(broker, role, missed)
        behind = self._falls_behind(broker) if role is Role.FOLLOWER else ""
        why = f"{why}; {behind}" if behind and behind not in why else why
        ceiling = self.settings.ceiling(broker, role)
        return _Found(rate, why, _endless(broker, role, rate, self._need(broker, role), ceiling))

    def _chosen(self, broker: int, role: Role, missed: int) -> tuple[int, str]:
        wish = self.overrides.of(broker)
        if wish is not None:
            rate = self._bounded(broker, role, wish)
            limit = "floor" if wish < rate else "ceiling"
            bound = "" if rate == wish else f"; the {limit} limits the rate to {amount(rate)}"
            return rate, f"an operator set {amount(wish)}{bound}"
        now = self.previous.rates.get(broker)
        before = None if now is None else self._bounded(broker, role, now.of(role))
        sample = self.samples.get(broker)
        if sample is not None:
            return self._computed(broker, role, sample, before)
        if before is not None and missed <= self.settings.keep_ticks:
            return before, f"no load figures for {_ticks(missed)}: the rate does not change"
        return self.settings.floor, f"no load figures for {_ticks(missed)}: the rate is the floor"

    def _computed(self, broker: int, role: Role, sample: Sample, before: int | None) -> tuple[int, str]:
        settings = self.settings
        free, why = self._free(broker, role, sample, before)
        name, load = self._pressure(sample)
        if load > 1:
            share = min(max(1 / load, _MOST_CUT), _LEAST_CUT)
            cut = settings.floor if before is None else min(free, before * share)
            return self._step(self._bounded(broker, role, cut), before), f"{name}, so the rate is lowered"
        most = math.inf if before is None else before * settings.raise_factor
        if load > 1 / settings.raise_factor:
            most, why = before or settings.floor, f"{why}; {name}, so the rate does not rise"
        target = min(free, most)
        if settings.raise_to_end:
            target, why = self._ended(broker, role, target, most, why)
        rate = self._bounded(broker, role, target)
        if before is None or rate == before or abs(rate - before) >= settings.threshold * before:
            return self._step(rate, before), why
        need = self._need(broker, role)
        if need is not None and before <= need.produced < rate:
            return self._step(rate, before), why
        return before, f"{why}; a change below {settings.threshold:.0%} is not sent"

    def _ended(self, broker: int, role: Role, target: float, most: float, why: str) -> tuple[float, str]:
        """Raise a rate at which copies would end too late or never, but not above ``most``."""
        need = self._need(broker, role)
        if need is not None and target < (ending := min(self._step_above(need.ending), most)):
            target = ending
            why = f"{why}; raised, because {amount(need.ending)} would end in time"
        now = self.previous.rates.get(broker)
        behind = self._falls_behind(broker) if role is Role.FOLLOWER else ""
        if behind and now is not None and target < min(now.follower * self.settings.raise_factor, most):
            target, why = (
                min(now.follower * self.settings.raise_factor, most),
                f"{why}; raised, because {behind}",
            )
        return target, why

    def _free(self, broker: int, role: Role, sample: Sample, before: int | None) -> tuple[float, str]:
        """Return the share of the cap that other traffic leaves, and a reason in words."""
        cap = self.settings.caps.get(broker, self.settings.cap).of(role)
        used = sample.traffic(role)
        own = (before or 0) if sample.copied is None else sample.copied.of(role)
        others = max(used - own, 0.0)
        free = max(cap - others, 0.0) * self.settings.percent.of(role) / 100
        return free, f"other traffic uses {amount(others)} of {amount(cap)}"

    def _pressure(self, sample: Sample) -> tuple[str, float]:
        """Return the signal that is highest relative to its limit, in words, and its share of the limit."""
        settings = self.settings
        signals = [
            (f"its disk is busy {value:.0%} of the time (limit {limit:.0%})", value / limit)
            for value, limit in ((sample.busy, settings.busy_limit),)
            if value is not None and limit is not None
        ]
        signals += [
            (f"{name} {_ms(value)} (limit {limit:g} ms)", value / limit)
            for name, value, limit in (
                ("a disk request takes", sample.await_ms, settings.await_limit_ms),
                ("the canary's p99 is", sample.latency_ms, settings.latency_limit_ms),
            )
            if value is not None and limit is not None
        ]
        return max(signals, key=lambda one: one[1], default=("", 0.0))

    def _need(self, broker: int, role: Role) -> _Need | None:
        return _need(self.moving, broker, role, self.settings.end_within_s)

    def _falls_behind(self, broker: int) -> str:
        """Describe the broker's moving replica whose lag grew most since the last tick.

        Empty if none grew.
        """
        grown = [
            (lag - self.previous.lags[key], key, lag)
            for key, lag in _lags(self.moving).items()
            if key[2] == broker and key in self.previous.lags and lag > self.previous.lags[key]
        ]
        if not grown:
            return ""
        _, key, lag = max(grown)
        was = self.previous.lags[key]
        return f"its replica of {key[0]}-{key[1]} falls behind: {was} messages, now {lag}"

    def slow_ticks(self) -> dict[int, int]:
        """Return the number of consecutive ticks at which each broker's canary was too slow.

        Only a tick well below the limit resets the count.
        """
        limit = self.settings.latency_limit_ms
        if limit is None:
            return {}
        found = {b: n for b, n in self.previous.late.items() if b not in self.samples}
        for broker, sample in self.samples.items():
            before = self.previous.late.get(broker, 0)
            if sample.latency_ms is None or limit / self.settings.raise_factor < sample.latency_ms <= limit:
                found[broker] = before
            elif sample.latency_ms > limit:
                found[broker] = before + 1
        return {broker: count for broker, count in sorted(found.items()) if count}

    def pauses(self, late: Mapping[int, int]) -> tuple[str, ...]:
        """Return the reasons why no new move is submitted."""
        return tuple(
            f"broker {broker}: the canary's p99 was above its limit at {_ticks(count)}, with the rate lowered"
            for broker, count in late.items()
            if count >= self.settings.pause_ticks
        )

    def _step(self, rate: int, before: int | None) -> int:
        """Return the highest step that a rate reaches. A rise that reaches no new step changes nothing."""
        steps = self.settings.steps
        if not steps or rate == before:
            return rate
        step = steps[bisect_right(steps, rate) - 1]
        return before if before is not None and step <= before < rate else step

    def _step_above(self, rate: int) -> int:
        """Return the lowest step that is not below a rate, or the rate itself if it is above all steps."""
        steps = self.settings.steps
        at = bisect_left(steps, rate)
        return steps[at] if at < len(steps) else rate

    def _bounded(self, broker: int, role: Role, rate: float) -> int:
        return max(min(math.floor(rate), self.settings.ceiling(broker, role)), self.settings.floor)


def _lags(moving: Sequence[Moving]) -> dict[Replica, int]:
    return {(one.topic, one.partition, broker): lag for one in moving for broker, lag in one.lags.items()}


def _ms(value: float) -> str:
    return "too long to measure" if math.isinf(value) else f"{value:.4g} ms"


def _ticks(count: int) -> str:
    return f"{count} tick" if count == 1 else f"{count} ticks"
