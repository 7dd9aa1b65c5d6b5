"""``topic_config`` in the inventory: one config, its value, and the topics that get it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from zkmigrate.inventory.explain import NEEDED
from zkmigrate.inventory.inventory import Inventory, SettingKey, SettingValue

Topics = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._*?-]+$", max_length=249)]
_NAMES = "names of topics, or patterns with * and ?"


class TopicConfig(BaseModel):
    """What the playbook kafka_topic_config sets.

    topics: names, or patterns in which ``*`` stands for any characters and ``?`` for one. A pattern matches a
    topic that begins with ``__`` only if it begins so itself. leave_out: topics that stay as they are; it may
    be changed during a run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    key: SettingKey
    value: SettingValue
    topics: Annotated[tuple[Topics, ...], Field(min_length=1)]
    leave_out: tuple[Topics, ...] = ()


class TopicConfigInventory(Inventory):
    """The inventory of the playbook kafka_topic_config."""

    as_typed = (*Inventory.as_typed, ("topic_config", "value"))
    not_binding: ClassVar[Mapping[str, Any]] = {"topic_config": {"leave_out"}}
    needed: ClassVar[Mapping[str, str]] = {
        "topic_config.key": "the name of a topic config: letters, digits and . _ -",
        "topic_config.value": NEEDED["settings"],
        "topic_config.topics": _NAMES,
        "topic_config.leave_out": _NAMES,
    }

    topic_config: TopicConfig
