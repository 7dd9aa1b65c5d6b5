"""Everything up to the cut-over: refused beforehand, taken back from each step, and disturbed in the roll.

One lab under load and one run go through the trials of ``roll_trials``, each from where the one before left
it. After each the drill judges files and rules: they must be as at the start or as the state requires. Dest's
trees must be source's, source untouched, and clients flowing. At the end it judges the whole load: nothing
lost, nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drills.labs import Play, finish_load, judge_last, loaded_lab
from tests.drills.roll_site import ROLLED, RollSite, Unexpected
from tests.drills.roll_trials import TRIALS, Trial
from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab.spec import LONG_SESSIONS
from zkmigrate.lab.wait import TimedProgress

pytestmark = pytest.mark.drill

MINUTES = 40
FLOWING_S = 90.0


@pytest.fixture(scope="module")
def site(directory: Path, wrong_loads: list[str]) -> Iterator[RollSite]:
    history, progress = directory / "history", TimedProgress()
    with loaded_lab(LONG_SESSIONS, history, progress, raw_rate=20.0, tenant_rate=30.0) as (lab, load):
        load.start(("producer", "consumer", "metadata", "tenant"))
        load.wait_flowing(("producer", "consumer", "tenant"), FLOWING_S)
        made = RollSite(lab, directory, load)
        yield made
        judge_last(wrong_loads, "all trials", lambda: judge_load(made))


def judge_load(site: RollSite) -> str:
    """Roll once more after all trials, then judge the load of the whole time."""
    site.bring_to(ROLLED)
    # A killed server of source disconnects its other clients by itself.
    unharmed = {} if site.source_killed else {"other_tenant_unharmed": True}
    return finish_load(site.load, {"lost": 0, "duplicated": 0, **unharmed})


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_a_disturbed_roll_leaves_hosts_as_its_state_asks(site: RollSite, trial: Trial, play: Play) -> None:
    def act() -> str:
        try:
            outcome = trial.act(site)
            site.judge()
        except ZkmigrateError as error:
            raise Unexpected(f"at {site.state}: {error}") from error
        return outcome

    site.bring_to(trial.state)
    play(trial.what, trial.expected, act)
