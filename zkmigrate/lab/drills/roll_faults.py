"""Everything up to the cut-over: refused beforehand, walked back from each step, and disturbed in the roll.

``python -m zkmigrate.lab.drills.roll_faults`` builds one lab under load and takes one run through the trials
of ``roll_trials``, each from where the one before left it. Behind each it judges that every file and rule is
as it was found or as the state asks, dest's trees are source's, source is untouched and clients flow. At the
end it judges the whole load: nothing lost, nothing twice.
"""

from __future__ import annotations

from pathlib import Path

import click

from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab.drills.result import Case
from zkmigrate.lab.drills.roll_site import ROLLED, RollSite, Unexpected, require
from zkmigrate.lab.drills.roll_trials import TRIALS, Trial
from zkmigrate.lab.drills.runner import directory_option, finish_load, loaded_lab, play_case, run_drill
from zkmigrate.lab.spec import LONG_SESSIONS
from zkmigrate.lab.wait import Progress

NAME = "roll_faults"
FLOWING_S = 90.0


def _play(site: RollSite, trial: Trial, progress: Progress) -> Case:
    """One trial and the judging behind it."""

    def act() -> str:
        try:
            outcome = trial.act(site)
            site.judge()
        except ZkmigrateError as error:
            raise Unexpected(f"at {site.state}: {error}") from error
        return outcome

    return play_case(
        progress, trial.name, trial.what, trial.expected, act, lambda: site.bring_to(trial.state)
    )


def _judge_load(site: RollSite, trials: list[Trial], progress: Progress) -> Case:
    """Go forward once more behind everything, then judge the load of the whole time."""
    expected: dict[str, object] = {"lost": 0, "duplicated": 0}
    words = "lost 0, duplicated 0"
    # A killed server of source disconnects its other clients by itself.
    if not any(trial.name.startswith("leader-killed") for trial in trials):
        expected["other_tenant_unharmed"] = True
        words += ", the other tenant unharmed"

    def act() -> str:
        site.bring_to(ROLLED)
        outcome, wrong = finish_load(site.load, expected)
        require(not wrong, "; ".join([outcome, *wrong]))
        return outcome

    return play_case(progress, "load", "the load over all cases", words, act)


@click.command()
@click.option(
    "--case",
    "wanted",
    multiple=True,
    type=click.Choice([trial.name for trial in TRIALS]),
    help="Only this case; may be given again.",
)
@directory_option(NAME)
def main(wanted: tuple[str, ...], directory: Path) -> None:
    """Disturb one run in every way up to its cut-over, and judge the hosts each time."""
    trials = [trial for trial in TRIALS if not wanted or trial.name in wanted]

    def drill(directory: Path, progress: Progress, cases: list[Case]) -> None:
        history = directory / "history"
        with loaded_lab(LONG_SESSIONS, history, progress, raw_rate=20.0, tenant_rate=30.0) as (lab, load):
            load.start(("producer", "consumer", "metadata", "tenant"))
            load.wait_flowing(("producer", "consumer", "tenant"), FLOWING_S)
            site = RollSite(lab, directory, load)
            for trial in trials:
                cases.append(_play(site, trial, progress))
            cases.append(_judge_load(site, trials, progress))

    run_drill(NAME, directory, drill)


if __name__ == "__main__":
    main()
