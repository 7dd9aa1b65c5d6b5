"""What: add the partitions of the plan to the topic.

Why now: the topic has as many partitions as the plan expects, and Kafka has validated the change.

Clients may notice: new partitions, which consumers and producers find within their metadata age. Records with
a key go to other partitions from then on.

Way back: none. A topic never has fewer partitions again.

Proof: each new partition has its planned replica list, and a leader.
"""

from __future__ import annotations

from zkmigrate.cluster.new_partitions.facts import (
    TopicReading,
    change,
    described,
    seen_by_brokers,
    silent,
    topic,
    wait_until_shown,
)
from zkmigrate.cluster.new_partitions.section import new_partitions_of
from zkmigrate.errors import HostError
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.finding import claim, meanings
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


class GrowStep(Step[TopicReading]):
    id = "grow-topic"
    title = "Add the partitions"
    hazard = Hazard.FINAL

    def observe(self, c: Context, look: Look) -> TopicReading:
        return topic(c, seen_by_brokers(c, look))

    def check(self, c: Context, f: TopicReading) -> Verdict:
        plan = new_partitions_of(c.inventory)
        if c.way is Way.BACK and not c.begun:
            return Done()
        if isinstance(f, Unknown):
            return silent(c, f)
        count = len(f.value.sets) if isinstance(f, Seen) else 0
        if c.way is Way.BACK:
            if isinstance(f, Seen) and count == plan.first and c.unconfirmed:
                return wait_until_shown(c) or Done()
            seen = described(f)
            stays = claim("new.grown-back", f"topic {plan.topic} has not grown", False, seen=seen)
            return Blocked((stays,), no_way_back=True)
        if isinstance(f, Seen) and count == plan.first:
            return (c.begun and not c.unconfirmed and wait_until_shown(c)) or Ready((plan.topic,))
        if not isinstance(f, Seen) or not c.begun or f.value.sets[plan.first :] != plan.sets:
            return Blocked(
                (
                    claim(
                        "new.grown-elsewhere",
                        f"topic {plan.topic} has the partitions that the plan expects",
                        False,
                        seen=described(f),
                        needed=f"{plan.first:,} partitions",
                    ),
                )
            )
        if not f.value.led:
            limit = c.inventory.policy.step_deadline_s
            return Waiting("a leader of each partition", described(f), limit, poll_s=1.0)
        seen = f"{count:,} partitions; the new ones have the planned replicas"
        return Done((claim("new.grown", f"topic {plan.topic} has grown", True, seen=seen),))

    def plan(self, c: Context, f: TopicReading, target: str) -> Changes:
        return (change(c.inventory, f),)

    def undo(self, c: Context, f: TopicReading, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[TopicReading]:
        found = self.observe(c, look)
        if isinstance(found, Unknown):
            raise HostError(f"the topic is not known: {found.why}")
        return Forecast(found, (new_partitions_of(c.inventory).topic,))


MEANINGS = meanings(
    """
    new.grown: The topic does not have all new partitions yet. Cause: Brokers have not received the change
    yet. To do: Wait, or resume.

    new.grown-back: The topic has grown, and that cannot be undone. Cause: Kafka has no way to remove
    partitions. To do: Resume; the run can only go forward.

    new.grown-elsewhere: The topic has other partitions than the plan expects. Cause: Another person or tool
    added partitions, or deleted the topic. To do: Plan again with `zkmigrate placement grow`.
    """
)
