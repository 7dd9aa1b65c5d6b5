"""The unit for runs that nobody watches, and what an operator's process that ended leaves to be found."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from configparser import RawConfigParser
from pathlib import Path

import pytest
from click.testing import Result

from tests.unit.cluster.reassign.test_command_line import asked, cluster
from tests.unit.engine_world import Killed
from tests.world.cluster import Cluster
from tests.world.reassigning import plan
from zkmigrate.cli.main import cli
from zkmigrate.kafka.changes import ReassignPartition
from zkmigrate.runbook.model.change import ClusterChange

__all__ = ["asked", "cluster"]

UNIT = Path(__file__).parents[4] / "docs" / "examples" / "systemd" / "zkmigrate@.service"
PROGRAM = "/opt/zkmigrate/bin/zkmigrate"
RUN = "moves-1"


def service() -> dict[str, str]:
    parser = RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return dict(parser["Service"])


def words() -> list[str]:
    """What the unit calls, behind the program's name, for one run."""
    program, *rest = service()["ExecStart"].split()
    assert program == PROGRAM
    given = {"${ZKM_INVENTORY}": "moves.yml", "${ZKM_PLAYBOOK}": "kafka_reassign", "%i": RUN}
    return [given.get(word, word) for word in rest]


def verified(text: str, folder: Path) -> str:
    """What systemd has to say of a unit: nothing where it takes it as it is."""
    file = folder / UNIT.name
    file.write_text(text.replace(PROGRAM, str(Path(sys.executable).with_name("zkmigrate"))))
    tool = shutil.which("systemd-analyze")
    assert tool is not None, "systemd is one of the packages that setup installs"
    done = subprocess.run(
        [tool, "verify", "--man=no", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    return f"{done.stdout}{done.stderr}" or ("" if done.returncode == 0 else str(done.returncode))


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    assert verified(UNIT.read_text(), tmp_path) == ""


@pytest.mark.parametrize(
    ("there", "wrong"), [("Restart=on-abnormal", "Restart=often"), ("KillMode", "KilMode"), (PROGRAM, "/no")]
)
def test_systemd_would_not_take_a_wrong_one(tmp_path: Path, there: str, wrong: str) -> None:
    text = UNIT.read_text()
    assert there in text
    assert verified(text.replace(there, wrong), tmp_path) != ""


def test_the_unit_calls_a_verb_with_flags_that_it_has() -> None:
    verb, *options = words()
    made = cli.commands[verb].make_context(verb, options, resilient_parsing=True)
    assert (verb, made.params["run_id"], made.params["yes"]) == ("resume", RUN, True)


def test_only_a_process_that_a_signal_ended_is_begun_again() -> None:
    """Exit codes want a person, each another answer."""
    unit = service()
    assert (unit["Restart"], unit["SuccessExitStatus"], unit["KillMode"]) == ("on-abnormal", "130", "mixed")


def test_what_a_killed_operator_left_is_found_and_the_unit_goes_on_with_it(
    asked: Callable[..., Result], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No host keeps a mark of it: this machine's do."""
    first = cluster.copy()
    verb, _, _, _, _, *options = words()
    assert asked("run", "--run-id", RUN, "--yes", "--until", "preflight").exit_code == 0
    alter, sent = cluster.alter, []

    def killed(change: ClusterChange) -> tuple[int, str]:
        sent.append(change)
        if [type(one) for one in sent].count(ReassignPartition) == 3:
            raise Killed("apply")
        return alter(change)

    with monkeypatch.context() as dying:
        dying.setattr(cluster, "alter", killed)
        with pytest.raises(Killed):
            asked(verb, *options)

    status = asked("status", "--json")
    told = json.loads(status.output)
    assert (told["state"], told["where"]) == ("open", "at move.replicas, forward")
    assert (told["process"], told["ended"], told["begun"]) == (None, None, ["move.replicas"])
    assert {one["step"]: one["changes"] for one in told["stands"]} == {
        "move.throttle": 13,
        "move.replicas": 7,
    }
    assert {(one["where"], one["cluster"]) for one in told["stands"]} == {("kafka", True)}
    assert told["not_confirmed"]
    text = asked("status").output
    assert (
        "no process on this machine works on it; the last process exited without recording a result" in text
    )
    assert "not undone: move.replicas: 7 changes on cluster kafka" in text
    assert told["next"].startswith("zkmigrate resume -i ")
    assert f"  go on forward: {told['next']}\n  That command runs every remaining stage" in text
    other = asked("run", "--yes")
    assert other.exit_code == 2
    assert f"run {RUN} is not finished (at move.replicas, forward); not undone: move.throttle" in (
        other.output
    )

    assert asked(verb, *options).exit_code == 0
    assert {name: held.replicas for name, held in cluster.held.items()} == plan(first)
    assert json.loads(asked("status", "--json").output)["stands"] == []
    changes = len(cluster.made)
    assert asked(verb, *options).exit_code == 0, "as after a boot of this machine"
    assert len(cluster.made) == changes
    assert asked("rollback", "--yes").exit_code == 0
    assert [held.replicas for held in cluster.held.values()] == [h.replicas for h in first.held.values()]
