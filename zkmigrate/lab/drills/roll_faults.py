"""Everything up to the cut-over: refused beforehand, walked back from each step, and disturbed in the roll.

``python -m zkmigrate.lab.drills.roll_faults`` builds one lab under load and takes one run through the cases,
each from where the one before left it (``roll_before``, ``roll_cases``). Behind each the world is judged:
every file and rule as it was found or as it must be there, dest's trees as source's, source untouched, the
clients flowing; in the end the whole load: nothing lost, nothing twice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab.drills import result, roll_before, roll_cases
from zkmigrate.lab.drills.result import Case
from zkmigrate.lab.drills.roll_site import FRESH, JOINED, REHEARSED, ROLLED, RollSite
from zkmigrate.lab.drills.start import Telling, begun
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.spec import PATIENT, LabSpec
from zkmigrate.lab.wait import Progress

NAME = "roll_faults"
JUDGED = {"lost": 0, "duplicated": 0}
UNHARMED = {"other_tenant_unharmed": True}
"""Where no server of source was killed: that alone disconnects its other clients."""
FLOWING_S = 90.0


@dataclass(frozen=True)
class Trial:
    """A case to be tried. place: where the run has to be. act: returns what came of it, and raises when that
    is not as expected."""

    name: str
    place: str
    what: str
    expected: str
    act: Callable[[RollSite], str]


_REFUSED = "the preflight stops and names it; nothing begun"
_AS_FOUND = "every file, rule and mode as found"
_GOES_ON = "no session lost; the run goes on, or stops and is resumed"

TRIALS = (
    Trial("dest-foreign-data", FRESH, "epochs of another ensemble on a dest host", _REFUSED,
          roll_before.foreign_data),
    Trial("source-election-port", FRESH, "election port of one source server dead", _REFUSED,
          roll_before.election_port_dead),
    Trial("dest-foreign-myid", FRESH, "a source server's myid file on a dest host", _REFUSED,
          roll_before.foreign_myid),
    Trial("inventory-same-myid", FRESH, "a dest host with a source host's myid in the inventory",
          "refused (2) by name", roll_before.same_myid),
    Trial("chroot-typo", FRESH, "two letters of the chroot swapped", f"{_REFUSED}, and no such chroot made",
          roll_before.chroot_typo),
    Trial("back-from-install", FRESH, "rollback behind install", _AS_FOUND, roll_before.back_from_install),
    Trial("back-from-half-join", FRESH, "kill -9 half way through the join, rollback", _AS_FOUND,
          roll_before.back_from_half_join),
    Trial("back-from-join", FRESH, "rollback behind the join", _AS_FOUND, roll_before.back_from_join),
    Trial("leader-killed-in-join", FRESH, "source's leader killed in the join", _GOES_ON,
          roll_before.leader_killed_in_join),
    *(
        Trial(f"back-in-rehearsal-{kind.lower()}", JOINED,
              f"kill -9 in the rehearsal before the second host's {kind.upper()}, rollback to before it",
              "dest observes, brokers as found", partial(roll_before.back_in_rehearsal, kind=kind))
        for kind in roll_before.CHANGES
    ),
    Trial("killed-in-rehearsal", JOINED, "kill -9 between two SEALs of the rehearsal, rollback", _AS_FOUND,
          roll_before.killed_in_rehearsal),
    Trial("leader-killed-in-rehearsal", JOINED, "source's leader killed in the rehearsal, dest cut off",
          _GOES_ON, roll_before.leader_killed_in_rehearsal),
    Trial("back-from-half-roll", REHEARSED, "kill -9 before the second broker's restart, rollback",
          "brokers as found", roll_cases.back_from_half_roll),
    Trial("broker-does-not-start", REHEARSED, "the first broker's unit fails in the roll",
          "stops there, the others untouched; resume goes on", roll_cases.broker_does_not_start),
    Trial("back-controller-moves", ROLLED, "the controller moves in the middle of the way back",
          "the new controller last, no broker twice", roll_cases.back_with_controller_moving),
    Trial("broker-paused", REHEARSED, "the first broker is paused as it comes back; rollback as it is",
          "waits, the others untouched; brokers as found", roll_cases.broker_paused),
    Trial("controller-moves", REHEARSED, "the controller moves in the middle of the roll",
          "the new controller last, no broker twice", roll_cases.controller_moves),
    Trial("leader-killed-in-roll", REHEARSED, "source's leader killed in the roll", _GOES_ON,
          roll_cases.leader_killed_in_roll),
    Trial("observer-killed", REHEARSED, "kill -9 of a dest host under a broker in the roll",
          "no session lost; the roll goes on", roll_cases.observer_killed),
    Trial("second-operator", REHEARSED, "a second operator during the roll, then with --steal",
          "refused (5); after --steal the first is refused and sends nothing", roll_cases.second_operator),
    Trial("journal-truncated", REHEARSED, "kill -9 in the roll, half of the journal's last line gone",
          "resume goes on, no broker twice", roll_cases.journal_truncated),
    Trial("disk-full", REHEARSED, "the operator's disk full in the roll",
          "stops (8); nothing sent without its intent; resume goes on", roll_cases.disk_full),
    Trial("back-from-roll", REHEARSED, "rollback behind the roll", _AS_FOUND, roll_cases.back_from_roll),
)  # fmt: skip


def tried(site: RollSite, trial: Trial, say: Progress) -> Case:
    """One trial, with what brings the run to its place before and the judging behind it."""
    began = time.monotonic()
    try:
        site.at(trial.place)
        say(f"{trial.name}: {trial.what}")
        began = time.monotonic()
        outcome, held = trial.act(site), True
        site.judge()
    except ZkmigrateError as error:
        outcome, held = f"at {site.place}: {error}", False
    seconds = round(time.monotonic() - began, 1)
    say(f"{trial.name}: {'as expected' if held else 'WRONG'}, {seconds} s: {outcome}")
    return Case(trial.name, trial.what, trial.expected, outcome, seconds, held)


def loaded(site: RollSite, trials: tuple[Trial, ...], say: Progress) -> Case:
    """Forward once more behind everything, then what the load says of the whole time."""
    began = time.monotonic()
    killed = any(trial.name.startswith("leader-killed") for trial in trials)
    wanted = JUDGED if killed else JUDGED | UNHARMED
    what, expected = "the load over all cases", "lost 0, duplicated 0"
    expected += "" if killed else ", the other tenant unharmed"
    try:
        site.at(ROLLED)
        wrong = site.load.finish()
        verdict = judge(load_history(site.load.directory))
        values = {name: verdict[name].value for name in wanted}
        outcome = ", ".join(f"{name} {value}" for name, value in values.items())
        held = values == wanted and not wrong
        outcome = "; ".join([outcome, *wrong, *(verdict[n].detail for n in wanted if not held)])
    except ZkmigrateError as error:
        outcome, held = str(error), False
    say(f"load: {outcome}")
    return Case("load", what, expected, outcome, round(time.monotonic() - began, 1), held)


def drill(
    trials: tuple[Trial, ...], spec: LabSpec, directory: Path, say: Progress, cases: list[Case]
) -> None:
    """Every trial on one lab, one after the other; ``cases`` gets each as it ends."""
    with Lab.up(spec, say) as lab:
        load = runner_for(lab, directory / "history", raw_rate=20.0, tenant_rate=30.0)
        try:
            load.start(("producer", "consumer", "metadata", "tenant"))
            load.wait_flowing(("producer", "consumer", "tenant"), FLOWING_S)
            site = RollSite(lab, directory, load)
            for trial in trials:
                cases.append(tried(site, trial, say))
            cases.append(loaded(site, trials, say))
        finally:
            load.kill()
        say("lab: taking everything down")


@click.command()
@click.option(
    "--case",
    "wanted",
    multiple=True,
    type=click.Choice([trial.name for trial in TRIALS]),
    help="Only this case; may be given again.",
)
@click.option(
    "--directory", default=f"drills/{NAME}", type=click.Path(path_type=Path), help="Where the result goes."
)
def main(wanted: tuple[str, ...], directory: Path) -> None:
    """Disturb one run in every way up to its cut-over, and judge the world each time."""
    say = Telling()
    directory = begun(directory)
    trials = tuple(trial for trial in TRIALS if not wanted or trial.name in wanted)
    cases: list[Case] = []
    whole = False
    try:
        drill(trials, PATIENT, directory, say, cases)
        whole = True
    except ZkmigrateError as error:
        say(f"failed: {error}; what was recorded is in {directory}")
    finally:
        # What was cut short did not hold, though each case of it may have.
        body = result.body_of(NAME, cases, say.seconds)
        body["held"] = body["held"] and whole
        result.write(directory, body)
    say(f"{len(cases)} cases, {'all as they must be' if body['held'] else 'NOT all as they must be'}")
    sys.exit(0 if body["held"] else 1)


if __name__ == "__main__":
    main()
