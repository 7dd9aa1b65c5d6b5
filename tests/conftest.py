"""What all tests share."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import settings

from tests import namespaces

# A run in the background of a script inherits an ignored SIGINT and hands it on: no Ctrl-C would arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Processes of tests buffer their output, as an operator's do.
os.environ.pop("PYTHONUNBUFFERED", None)

# The same code gets the same examples, and none is timed: a run says something of the code, not of its luck
# or its neighbours. An ordinary run tries few, `make explore` many new ones; tests/examples.py scales others.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("search", deadline=None, max_examples=300, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

FAST = tuple(Path(__file__).parent / name for name in ("unit", "world"))
FAST_S = 900.0
"""Seconds after which a fast test has failed, whatever it waits for. The longest takes 12 s alone, and took
more than 300 s at a lower priority beside three labs (load 57)."""
LAST_S = 2 * FAST_S
"""Seconds after which its process ends: some waits, as for a pool's threads, outlive the failure."""


def _fast(item: pytest.Item) -> bool:
    return any(item.path.is_relative_to(folder) for folder in FAST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every fast test a deadline, so that one without its guard fails and does not hang."""
    for item in filter(_fast, items):
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(FAST_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process of a fast test that hangs after its deadline, and show where its threads are."""
    if not _fast(item):
        return (yield)
    told = item.config.stash.get(fault_handler_stderr_fd_key, 2)  # what is shown, whatever is captured
    faulthandler.dump_traceback_later(LAST_S, exit=True, file=told)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before the first test, and once where several workers run them."""
    if os.geteuid() == 0 and not hasattr(session.config, "workerinput"):
        namespaces.sweep()
