"""How drills run under pytest: where their files are, what they print, and how an interrupt ends them."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.drills.labs import INTERRUPTED, Act, Play
from zkmigrate.errors import ZkmigrateError


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that repeats cases, and the one that secures the labs of faults in the window."""
    parser.addoption(
        "--times", type=int, help="How often cuts, kills of start_order, switches or faults are played."
    )
    parser.addoption("--security", default="", help="Kinds of security, or full, for window_faults.")


def pytest_report_collectionfinish(items: list[pytest.Item]) -> list[str]:
    """Report the number of cases, and the usual time of their drills on two cores."""
    cases = [one for one in items if isinstance(one, pytest.Function) and one.get_closest_marker("drill")]
    minutes = sum({case.module: case.module.MINUTES for case in cases}.values())
    return [f"{len(cases)} cases; all cases of their drills take about {minutes} min"] if cases else []


def pytest_keyboard_interrupt() -> None:
    """Mark the drills as interrupted, so that no load is judged any more."""
    INTERRUPTED.set()


@pytest.fixture(scope="session", autouse=True)
def signals() -> None:
    """Take the labs down on SIGTERM and SIGHUP as well as on Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


@pytest.fixture(scope="module")
def directory(request: pytest.FixtureRequest) -> Path:
    """Return ``drills/NAME`` of this drill, emptied."""
    name = request.path.stem.removeprefix("test_")
    path = request.config.rootpath / "drills" / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


@pytest.fixture(scope="module")
def wrong_loads() -> Iterator[list[str]]:
    """Collect the problems of each lab's load; the drill fails at its end if there are any."""
    found: list[str] = []
    yield found
    assert found == []


@pytest.fixture
def play(record_property: Callable[[str, object], None]) -> Play:
    """Return a function that plays a case, prints its outcome and keeps it for ``drills/result.xml``."""

    def played(what: str, expected: str, act: Act) -> None:
        print(f"\n{what}; expected: {expected}")
        outcome = ""
        try:
            outcome = act()
        except ZkmigrateError as error:
            outcome = str(error)
            raise
        finally:
            record_property("outcome", outcome)
        print(f"as expected: {outcome}")

    return played
