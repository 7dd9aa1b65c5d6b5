"""Describe Kafka's errors by Kafka's own names and messages."""

from __future__ import annotations

from kafka.errors import BrokerResponseError, KafkaError, for_code

_REQUEST = "Request '"
"""The beginning of a kafka-python error text that repeats the whole request and response."""


def describe_error(code: int, message: str | None = None) -> str:
    """Return Kafka's name for an error code, followed by the error message.

    message: the error message in the response, if it has one.
    """
    error = for_code(code)
    # For an unknown code kafka-python returns another error's name.
    name = f"Kafka's error {code}" if error.__name__ == "UnrecognizedBrokerError" else str(error.message)
    return f"{name}: {message}" if message else name


def describe_exception(error: Exception) -> str:
    """Return the text of an exception from kafka-python or the operating system.

    The request that kafka-python repeats in the text of some errors is left out.
    """
    text = ", ".join(str(one) for one in error.args if one is not None)
    if isinstance(error, BrokerResponseError) and error.errno is not None:
        return describe_error(error.errno, "" if text.startswith(_REQUEST) else text)
    if isinstance(error, KafkaError):
        return f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{type(error).__name__}: {error}"
