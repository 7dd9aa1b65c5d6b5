"""What all tests share."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from tests import namespaces

# A run in the background of a script inherits an ignored SIGINT and hands it on: no Ctrl-C would arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same code gets the same examples, and none is timed: a run says something of the code, not of its luck
# or its neighbours. `make explore` looks for new examples; tests/examples.py makes each test draw more then.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=300, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before the first test, and once where several workers run them."""
    if os.geteuid() == 0 and not hasattr(session.config, "workerinput"):
        namespaces.sweep()
