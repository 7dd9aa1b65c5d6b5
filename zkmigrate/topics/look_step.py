"""What: check the topics that the inventory names; change nothing.

Why now: a wrong cluster, name, config or value must show before the first change.

Clients may notice: nothing; Kafka validates the new value and keeps the old one.

Way back: nothing was changed.

Proof: the brokers are of the named cluster, each entry matches a topic, and Kafka would take the value on
every topic.
"""

from __future__ import annotations

from zkmigrate.model.look import Look
from zkmigrate.model.step import Context, Done, Reads, Verdict
from zkmigrate.topics.facts import FirstLook, first_look
from zkmigrate.topics.rules import before


class TopicCheckStep(Reads[FirstLook]):
    id = "topics"
    title = "Look at the topics"

    def observe(self, c: Context, look: Look) -> FirstLook:
        return first_look(c, look)

    def check(self, c: Context, f: FirstLook) -> Verdict:
        return Done.unless_blocked(before(c, f))
