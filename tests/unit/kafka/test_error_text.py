"""Kafka's errors as people read them."""

from __future__ import annotations

import pytest
from kafka.errors import InvalidConfigurationError, KafkaTimeoutError, TopicAuthorizationFailedError

from zkmigrate.kafka.error_text import describe_error, describe_exception


def test_an_error_has_kafkas_name_and_its_sentence() -> None:
    assert (
        describe_error(40, "Unknown topic config name: a") == "INVALID_CONFIG: Unknown topic config name: a"
    )
    assert describe_error(29) == describe_error(29, "") == "TOPIC_AUTHORIZATION_FAILED"
    assert describe_error(9999) == "Kafka's error 9999"
    assert describe_error(9999, "new in 5.0") == "Kafka's error 9999: new in 5.0"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidConfigurationError("no such key"), "INVALID_CONFIG: no such key"),
        (
            InvalidConfigurationError("Request 'CreateTopicsRequest(version=7)' failed with response 'x'."),
            "INVALID_CONFIG",
        ),
        (TopicAuthorizationFailedError(None), "TOPIC_AUTHORIZATION_FAILED"),
        (KafkaTimeoutError("after 30 s"), "KafkaTimeoutError: after 30 s"),
        (ConnectionResetError(104, "reset"), "ConnectionResetError: [Errno 104] reset"),
    ],
)
def test_an_exception_tells_no_request_and_no_name_twice(error: Exception, text: str) -> None:
    assert describe_exception(error) == text
