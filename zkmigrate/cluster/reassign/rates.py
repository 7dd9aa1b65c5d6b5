"""The throttle rates that are in force while partitions move."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from zkmigrate.cluster.reassign.moves import section
from zkmigrate.cluster.reassign.rate_control import Control, Copying, listen
from zkmigrate.cluster.reassign.throttle import (
    FOLLOWER_RATE,
    LEADER_RATE,
    RATES,
    ROLES,
    Limits,
    Seens,
    SentRates,
    Throttles,
    Values,
    of_broker,
    read,
    sent_rates,
    throttles,
    values,
)
from zkmigrate.errors import HostError
from zkmigrate.kafka.changes import KAFKA, AlterBrokerConfig
from zkmigrate.kafka.rates import Overrides, Rate
from zkmigrate.runbook.model.change import Changes
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Ready, Verdict, Waiting


def wanted_rates(record: Throttles, overrides: Overrides, control: Control | None) -> Mapping[int, Rate]:
    """Return the rate to set for each broker.

    An operator's rate comes first, then the one that follows the load, then the one that the throttle began
    with.
    """
    if control is not None:
        return {id: control.rate(id, overrides) or rate for id, rate in record.rates.items()}
    told = {id: overrides.of(id) for id in record.rates}
    return {id: rate if (wish := told[id]) is None else Rate(wish, wish) for id, rate in record.rates.items()}


@dataclass(frozen=True)
class RatesInForce:
    """The broker rates while partitions move.

    wanted: the rates to set, by broker id.
    seen: the rates that live brokers report.
    unchanged: whether every broker was already seen to have the wanted rates, so that none was queried again.
    control: the control that makes the rates follow the load; None for fixed rates.
    """

    limits: Limits
    sent: SentRates
    wanted: Mapping[int, Rate]
    seen: Reading[Seens]
    unchanged: bool
    control: Control | None = None

    @property
    def withheld(self) -> tuple[str, ...]:
        """The reasons why no move is submitted now; empty if moves may be submitted."""
        return () if self.control is None else self.control.withheld

    @property
    def listening(self) -> str:
        """What the last tick measured and changed, for the progress report; empty for fixed rates."""
        return "" if self.control is None else self.control.words

    @property
    def found(self) -> tuple[Finding, ...]:
        """The finding about how the throttle followed the load; empty for fixed rates."""
        return () if self.control is None else (self.control.found(),)

    def recorded(self, rates: Mapping[int, Rate]) -> SentRates:
        """Return the record to write before these rates are sent.

        Rates that are steps are recorded with the steps.
        """
        steps = () if self.control is None else self.control.settings.steps
        limits = replace(self.limits, steps=tuple({*self.limits.steps, *steps}))
        new = {
            id: rate
            for id, rate in rates.items()
            if any(str(rate.of(role)) not in limits.ours(of_broker(id), key) for key, role in ROLES.items())
        }
        return self.sent.with_rates(new, steps)

    @cached_property
    def _now(self) -> Values:
        return values(self.seen.value) if isinstance(self.seen, Seen) else {}

    @property
    def settled(self) -> bool:
        """Whether every broker reported its rates, and has the wanted ones or those of another tool."""
        whole = sum(len(own) == len(RATES) for own in self._now.values())
        return self.unchanged or (whole == len(self.wanted) and not self.differ)

    @cached_property
    def differ(self) -> tuple[int, ...]:
        """The brokers that have a rate of this run other than the wanted one."""
        return tuple(id for id in self.wanted if self.changes(id))

    @property
    def of_others(self) -> tuple[str, ...]:
        """The rates that another tool has set, in words. The run leaves them."""
        return tuple(
            f"{target}: {key} is {'unset' if own is None else own} (set by another tool), and the "
            "run keeps it"
            for target, settings in self._now.items()
            for key, own in settings.items()
            if own not in self.limits.ours(target, key) and own != self._wanted(target, key)
        )

    def changes(self, id: int) -> Changes:
        """Return the changes that give a broker its wanted rates. A rate that another tool has set stays."""
        target = of_broker(id)
        now = self._now.get(target, {})
        return tuple(
            AlterBrokerConfig(KAFKA, id, key, self._wanted(target, key), own)
            for key, own in now.items()
            if own != self._wanted(target, key) and own in self.limits.ours(target, key)
        )

    def _wanted(self, target: str, key: str) -> str:
        return str(self.wanted[int(target.removeprefix(of_broker(0)[:-1]))].of(ROLES[key]))


def rates_in_force(c: Context, look: Look, copying: Copying) -> RatesInForce | None:
    """Look up the rates of the moves, and the load if the rates follow it and a tick is due.

    Returns None if the run has set no throttle. Brokers are not queried again once all had the wanted rates.
    """
    record, sent = throttles(c), sent_rates(c)
    if record is None:
        return None
    limits, alive = Limits.of(record, sent, copying.every, c.way), copying.found.alive
    control: Control | None = c.kept.get("control")
    adapt = section(c.inventory).adapt
    if adapt is not None and copying.found.missing_answer is None:
        shown = {} if control is not None else _shown(look, limits, alive)
        control = listen(c, look, adapt, shown, copying, control)
    wanted = wanted_rates(record, c.overrides, control)
    unchanged = c.kept.get("settled") == wanted
    asked = () if unchanged else tuple(id for id in wanted if id in alive)
    return RatesInForce(limits, sent, wanted, read(look, asked, ()), unchanged, control)


def keeping_control(c: Context, rates: RatesInForce | None, verdict: Verdict) -> Verdict:
    """Return the verdict, with the control kept for the next time."""
    if rates is None or rates.control is None or not isinstance(verdict, Ready | Waiting):
        return verdict
    return replace(verdict, keep={**(verdict.keep or c.kept), "control": rates.control})


def _shown(look: Look, limits: Limits, alive: Collection[int]) -> Mapping[int, Rate]:
    """Return the rates that brokers show if the run may have set them, else those that the run began with.

    After a killed process the run continues from the returned rates. Raises HostError if no broker answers.
    """
    seen = read(look, tuple(id for id in limits.rates if id in alive), ())
    if not isinstance(seen, Seen):
        raise HostError(f"the rates in force: {seen}")
    now = values(seen.value)

    def rate(id: int, key: str) -> int:
        own, target = now.get(of_broker(id), {}).get(key), of_broker(id)
        return (
            int(own)
            if own is not None and own in limits.ours(target, key)
            else limits.preset.get(id, limits.rates[id]).of(ROLES[key])
        )

    return {id: Rate(rate(id, LEADER_RATE), rate(id, FOLLOWER_RATE)) for id in limits.rates}
