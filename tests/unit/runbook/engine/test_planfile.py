"""A plan as a file: written and applied once, refused when stale, damaged or foreign, always shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.cli.test_main import ALL, Place, place
from tests.unit.inventory.test_inventory import GOOD
from zkmigrate.cli.main import cli
from zkmigrate.runbook.engine import journal, planfile

__all__ = ["place"]


@pytest.fixture
def plan(place: Place) -> Path:
    """A plan of the world as it is, written to a file."""
    file = place.root / "move.plan"
    done = place.call("plan", "--out", str(file))
    assert done.exit_code == 0, done.output
    return file


def test_plan_out_writes_what_json_prints_and_says_how_to_apply_it(place: Place) -> None:
    file = place.root / "my plan"
    done = place.call("plan", "--out", str(file))
    said = json.loads(place.call("plan", "--json").stdout)
    assert json.loads(file.read_text()) == said
    assert file.stat().st_mode & 0o777 == 0o600
    assert done.stdout.splitlines()[0].endswith(f"digest {said['digest']}")
    assert f"written to {file}: plan {said['digest']}" in done.stdout
    steps = [step for stage in said["stages"] for step in stage["steps"]]
    changing = [step for step in steps if step["targets"]]
    assert f"{len(changing)} of {len(steps)} steps change something, " in done.stdout
    assert f"--plan '{file}'" in done.stdout
    assert not place.runs.exists()
    assert [p.name for p in place.root.iterdir() if "plan" in p.name] == ["my plan"], "no half file is left"


def test_plan_out_takes_no_file_s_place_unless_forced(place: Place, plan: Path) -> None:
    plan.write_text("mine")
    for words in (("--out", str(plan)), ("--out", str(place.root))):
        refused = place.call("plan", *words)
        assert refused.exit_code == 2
        assert (
            "Next: name another FILE, or pass --force" in refused.stderr or "is a directory" in refused.stderr
        )
    assert plan.read_text() == "mine"
    assert place.call("plan", "--out", str(place.root / "no" / "plan")).exit_code == 2
    assert place.call("plan", "--out", str(plan), "--force").exit_code == 0
    assert planfile.read(plan).playbook == "disk"


def test_a_file_in_the_way_is_found_before_a_host_is_asked(place: Place, plan: Path) -> None:
    def site(*_: object) -> None:
        pytest.fail("a site was opened")

    refused = CliRunner().invoke(cli, place.words("plan", "--out", str(plan)), obj=site, env=place.environ)
    assert (refused.exit_code, "already exists" in refused.stderr) == (2, True)


def test_a_link_that_leads_nowhere_is_a_file_too(place: Place, plan: Path) -> None:
    plan.unlink()
    plan.symlink_to("nowhere")
    assert place.call("plan", "--out", str(plan)).exit_code == 2
    assert plan.is_symlink()


def test_a_plan_that_holds_is_applied_once_and_journaled(place: Place, plan: Path) -> None:
    digest = json.loads(plan.read_text())["digest"]
    assert f"the given plan {digest[:12]} is still valid" in place.ends(
        0, "run", "--yes", "--plan", str(plan)
    )
    assert place.files() == ALL
    assert journal.read(place.runs / "lab-1").plan == digest
    assert (place.runs / "lab-1/plan.json").read_bytes() == plan.read_bytes()
    assert "needed: a plan that no run has applied. Next:" in place.ends(
        4, "run", "--yes", "--plan", str(plan)
    )
    assert not (place.runs / "lab-2").exists()


def test_a_stale_plan_says_what_differs_and_leaves_nothing(place: Place, plan: Path) -> None:
    (place.world / "dest2/one").write_text("tickTime=3000\n")
    assert "is stale: dest2 /one was absent and is now present; needed: a plan" in place.ends(
        4, "run", "--yes", "--plan", str(plan)
    )
    assert place.call("plan", "--out", str(plan), "--force").exit_code == 0
    (place.world / "dest2/one").write_text("tickTime=4000\n")
    refused = place.call("run", "--yes", "--plan", str(plan))
    assert "is stale: dest2 /one has changed; needed" in refused.output
    place.file.write_text(GOOD.replace("/kafka", "/kafka2"))
    refused = place.call("run", "--yes", "--plan", str(plan))
    assert (refused.exit_code, "is stale: the inventory's digest was" in refused.output) == (4, True)
    assert list(place.runs.iterdir()) == [], "no directory of a run that never began"
    assert place.files() == {"dest2/one"}


def test_a_plan_is_for_a_run_that_begins(place: Place, plan: Path) -> None:
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    assert "lab-1 was begun with this plan and has changed hosts since" in place.ends(
        4, "run", "--yes", "--run-id", "lab-1", "--plan", str(plan)
    )
    assert place.call("run", "--yes", "--run-id", "lab-1").exit_code == 0


def test_a_run_that_only_looked_begins_again_with_the_plan_that_is_given(place: Place, plan: Path) -> None:
    (place.world / "sick").touch()
    assert place.call("run", "--yes", "--plan", str(plan)).exit_code == 3
    (place.world / "sick").unlink()
    (place.world / "dest2/one").write_text("tickTime=3000\n")
    words = ("run", "--yes", "--run-id", "lab-1", "--plan", str(plan))
    refused = place.call(*words)
    assert (refused.exit_code, "is stale: dest2 /one" in refused.output) == (4, True)
    (place.world / "dest2/one").unlink()
    assert place.call(*words).exit_code == 0
    assert place.files() == ALL


def _edited(text: str) -> str:
    body = json.loads(text)
    body["stages"][0]["steps"][0]["title"] = "harmless"
    return json.dumps(body)


def _other_digest(text: str) -> str:
    """Edited with care: the checksum fits what the file says, the plan's own digest does not."""
    made = planfile.PlanFile.model_validate_json(text)
    made = made.model_copy(update={"seen": {}})
    return made.model_copy(update={"checksum": planfile.checksum_of(made)}).text()


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda text: "", "is not a plan of this version (Invalid JSON"),
        (lambda text: text[: len(text) // 2], "is not a plan of this version (Invalid JSON"),
        (lambda text: "[]", "is not a plan of this version"),
        (lambda text: "{}", "is not a plan of this version (format: Field required)"),
        (lambda text: "[" * 100_000, "is not a plan of this version"),
        (lambda text: text.replace("zkmigrate-plan-1", "zkmigrate-plan-9"), "format: Input should be"),
        (lambda text: text.replace('"seen"', '"sees"', 1), "is not a plan of this version"),
        (lambda text: text.replace("0644", "0666", 1), "is damaged or was edited"),
        (_edited, "is damaged or was edited"),
        (_other_digest, "is damaged or was edited"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "show"])
def test_a_file_that_is_no_plan_is_refused_with_2(
    place: Place, plan: Path, spoilt: object, said: str, verb: str
) -> None:
    assert callable(spoilt)
    plan.write_text(spoilt(plan.read_text()))
    words = {"run": ("run", "--yes", "--plan"), "show": ("plan", "--show")}[verb]
    refused = place.call(*words, str(plan))
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert "Next:" in refused.stderr
    assert not place.runs.exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x00" * 10])
def test_bytes_that_are_no_text_are_no_plan(place: Place, plan: Path, content: bytes) -> None:
    plan.write_bytes(content)
    for name in (str(plan), str(place.root), str(place.root / "none")):
        assert place.call("run", "--yes", "--plan", name).exit_code == 2


def test_show_prints_a_plan_whatever_became_of_it(place: Place, plan: Path) -> None:
    printed = place.call("plan").stdout
    shown = place.call("plan", "--show", str(plan))
    assert (shown.exit_code, shown.stdout) == (0, printed)
    (place.world / "dest2/one").write_text("tickTime=3000\n")
    stale = place.call("plan", "--show", str(plan))
    assert (stale.exit_code, stale.stdout.startswith(printed)) == (0, True)
    assert "\nwarning: the plan " in stale.stdout
    assert "is stale: dest2 /one was absent and is now present" in stale.stdout
    assert "warning" not in place.call("plan", "--show", str(plan), "--offline").stdout, "no host was asked"
    (place.world / "dest2/one").unlink()
    place.call("run", "--yes", "--plan", str(plan))
    said = json.loads(place.call("plan", "--show", str(plan), "--json").stdout)
    assert said["remarks"][0] == "run lab-1 was begun with this plan"
    assert "is stale: dest1 /one was absent and is now present" in said["remarks"][1]
    place.file.write_text("version: 2\n")
    lost = place.call("plan", "--show", str(plan))
    assert (lost.exit_code, "cannot find out whether this plan is still valid: " in lost.stdout) == (0, True)


def test_the_options_of_a_plan_that_contradict_each_other_are_refused(place: Place, plan: Path) -> None:
    for words in (("--show", str(plan), "--out", "x"), ("--force",), ("--offline",)):
        assert place.call("plan", *words).exit_code == 2


def test_a_plan_pretty_printed_by_another_tool_is_the_same_plan(place: Place, plan: Path) -> None:
    plan.write_text(json.dumps(json.loads(plan.read_text()), indent=2))
    assert place.call("run", "--yes", "--plan", str(plan)).exit_code == 0
