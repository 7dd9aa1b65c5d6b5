"""The private attributes of kafka-python that zkmigrate uses exist in the installed release."""

from __future__ import annotations

import re
from pathlib import Path

import kafka
from kafka.admin import KafkaAdminClient
from kafka.net.manager import KafkaConnectionManager

import zkmigrate

TRIED = "3.0.12"
PRIVATE = re.compile(r"\b_?admin\._[a-z]|producer\._[a-z]|KafkaAdminClient\._")


def test_the_private_attributes_are_those_of_the_release_that_was_tried() -> None:
    assert kafka.__version__ == TRIED, "read zkmigrate/kafka/clients/library.py against the new release"
    assert callable(KafkaAdminClient._convert_describe_acls_response_to_acls)
    assert all(hasattr(KafkaConnectionManager, name) for name in ("run", "send", "wait_for"))


def test_they_are_used_in_one_module() -> None:
    root = Path(zkmigrate.__file__).parent
    users = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if PRIVATE.search(path.read_text("utf-8"))
    }
    assert users == {"kafka/clients/library.py"}
