"""Cut-overs with one fault at one phase each; each is judged and taken back before the next.

It builds a lab with load for each policy on lost brokers, moves brokers and clients to dest, and plays
:data:`~tests.drills.window_cases.CASES` on it. The faults are rollbacks from every phase, kills of the tool,
dead hosts, leaking rules, a cut link, a lost leader of source, and a lost broker.

After each case it judges exit code, direction, sessions, owners and the controller epoch. It also compares
the trees on disk, dest's files and rules, and source. At the end of a lab it judges the records of its
clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.drills.labs import OneLab, Play, Series, judge_last, loaded_lab, times_of
from tests.drills.window_cases import CASES, LABS, Case
from tests.drills.window_site import WindowSite
from zkmigrate.lab import fault, security
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.spec import LONG_SESSIONS, LabSpec, Role
from zkmigrate.lab.wait import TimedProgress

pytestmark = pytest.mark.drill

MINUTES = 100
RUN = "faults"
KINDS = ("producer", "consumer", "metadata", "tenant")
FLOWING_S = 60.0
OPEN_LIMIT_S = 30
"""Seconds that hosts wait for OPEN: enough to boot a host, or to start the tool again, meanwhile."""
LEASE = {"fence_ttl_ms": 9000, "cut_ttl_ms": 5000}
"""Longer than the defaults, because ten hosts and their load share a few cores.

The sessions last long enough for it.
"""


def repeated(cases: Sequence[Case], times: int) -> list[Case]:
    """Return all cases of each lab, `times` times. A case that goes past OPEN is played once, at the end."""
    again = range(1, times + 1)
    found = []
    for lab in LABS:
        own = [case for case in cases if case.lab == lab]
        rounds = [replace(case, name=f"{case.name}-{n}") for n in again for case in own if not case.last]
        found += own if times == 1 else [*rounds, *(case for case in own if case.last)]
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case."""
    cases = repeated(CASES, times_of(metafunc.config, 1))
    metafunc.parametrize("case", cases, ids=lambda case: case.name)


def roll_to_dest(lab: Lab, load: LoadRunner, directory: Path, broker_lost: str) -> WindowSite:
    """Move brokers and clients of a new lab to dest, and wait until everything flows."""
    load.start(KINDS)
    load.wait_flowing(KINDS, FLOWING_S)
    policy = {"broker_lost_in_window": broker_lost, "open_limit_s": OPEN_LIMIT_S, "lease": LEASE}
    write_inventory(lab, directory / "migration.yml", policy)
    operator = Operator(lab, directory, RUN)
    operator.through("join", "run", "--until", "join")
    for host in lab.names(Role.DEST):  # a server starts with its host, as usual outside a lab
        lab.exec(host, ["systemctl", "enable", "--quiet", fault.unit_of(lab, host)])
    operator.through("roll", "resume", "--until", "roll", "--skip", "rehearse")
    load.start(("raw",))
    load.wait_flowing(("raw",), FLOWING_S)
    return WindowSite(lab, operator, load)


@contextmanager
def in_lab(
    name: str, spec: LabSpec, directory: Path, wrong_loads: list[str]
) -> Iterator[tuple[Series, WindowSite]]:
    """Build a lab with brokers and clients on dest, whose load is judged at the end."""
    progress = TimedProgress()
    directory.mkdir()
    # Low rates keep logs and trees short, because every judgement reads them.
    history = directory / "history"
    with loaded_lab(spec, history, progress, raw_rate=10.0, tenant_rate=20.0) as (lab, load):
        site = roll_to_dest(lab, load, directory, LABS[name])
        yield Series(), site
        judge_last(wrong_loads, name, site.judge_load)


Windows: TypeAlias = OneLab[str, tuple[Series, WindowSite]]


@pytest.fixture(scope="module")
def windows(directory: Path, wrong_loads: list[str], pytestconfig: pytest.Config) -> Iterator[Windows]:
    spec = replace(LONG_SESSIONS, security=security.parse(pytestconfig.getoption("--security")))
    with closing(Windows(lambda name: in_lab(name, spec, directory / name, wrong_loads))) as made:
        yield made


def test_a_cut_over_with_a_fault_harms_nobody(
    windows: Windows, case: Case, play: Play, record_property: Callable[[str, object], None]
) -> None:
    series, site = windows.of(case.lab)
    play(case.what, case.expected, lambda: series.play(case.name, partial(site.play, case), site.recover))
    if site.silence is not None and site.lost is not None:
        figures = ("served_s", "limit_s", "sessions_lost", "lone_lost")
        for name, value in zip(figures, (*site.silence, *site.lost), strict=True):
            record_property(name, value)
