"""Decide which of Kafka's znodes (``kafka.zk.ZkData``) a run is allowed to delete at all."""

from __future__ import annotations

import re

DELETIONS, TOPICS, CONFIGS = "/admin/delete_topics", "/brokers/topics", "/config/topics"
ISR, LOG_DIRS, CHANGES = "/isr_change_notification", "/log_dir_event_notification", "/config/changes"
REASSIGNMENT, ELECTION = "/admin/reassign_partitions", "/admin/preferred_replica_election"
CONTROLLER = "/controller"

_TOPIC = r"[A-Za-z0-9._-]+"
_REMOVABLE = re.compile(
    rf"{DELETIONS}/{_TOPIC}|{CONFIGS}/{_TOPIC}|{TOPICS}/{_TOPIC}(/.+)?"
    rf"|{ISR}/isr_change_\d+|{LOG_DIRS}/log_dir_event_\d+|{CHANGES}/config_change_\d+"
    rf"|{REASSIGNMENT}|{ELECTION}"
)


def removable(path: str) -> bool:
    """Return whether a znode, named below the chroot, is one that operations leave behind.

    It is never ``/controller``: that znode makes a broker the controller, and Kafka elects another one when
    it is deleted.
    """
    return _REMOVABLE.fullmatch(path) is not None


def topic_of(path: str) -> str:
    """Return the topic that a removable znode belongs to; empty if it belongs to none."""
    for folder in (DELETIONS, TOPICS, CONFIGS):
        if path.startswith(f"{folder}/"):
            return path.removeprefix(f"{folder}/").partition("/")[0]
    return ""
