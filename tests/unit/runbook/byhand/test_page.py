"""The page by hand and the report of a runbook that changes a cluster alone, or has no window."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import cast, get_args
from xml.etree import ElementTree

import pytest

import zkmigrate
from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.engine_world import ROLES, forward, inventory
from tests.unit.runbook.engine.test_cluster_changes import BEFORE, CLUSTER, STEP, TOPICS, SettingStep, Toy
from tests.world.operator import quiet_world
from zkmigrate.errors import UsageError
from zkmigrate.kafka.changes import AlterTopicConfig
from zkmigrate.report import page as html
from zkmigrate.report.build import build
from zkmigrate.report.markdown import markdown
from zkmigrate.report.pictures import timeline
from zkmigrate.report.sources import read
from zkmigrate.report.tables import figures, tables
from zkmigrate.runbook.byhand import export, page
from zkmigrate.runbook.byhand.sheet import Sheet
from zkmigrate.runbook.engine import plan
from zkmigrate.runbook.model.change import KINDS, Changes, PutFile, SimpleVerb
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Brief, Hazard, Way


def settings_by_hand(*, witnesses: bool = False, locked: bool = True) -> str:
    """The page of a runbook that changes a cluster alone. witnesses: hosts keep its lock."""
    changes = [AlterTopicConfig(CLUSTER, topic, "value", "new", BEFORE.get(topic)) for topic in TOPICS]
    planned = {c.topic: (plan.PlannedChange(c, c.describe(), plan.command(c), "", ()),) for c in changes}
    alone = SettingStep()
    step = plan.PlannedStep(alone.id, alone.title, alone.hazard, Brief("", "", "", "", ""), planned, "")
    stages = (Stage("main", "do", (cast(AnyStep, alone),), locked=locked),)
    whole = Playbook("toy", "A toy", stages, roles=ROLES if witnesses else ())
    of = plan.Plan("toy", "", (plan.PlannedStage("main", "do", "", False, False, (step,)),), ())
    return page.page(page.Runbook(whole, of, "d1ge57", inventory(), "r-1", {}, {}, "runbook.md"))


def test_by_hand_a_cluster_is_changed_by_its_own_tool_and_no_host_is_asked(tmp_path: Path) -> None:
    text = settings_by_hand()
    boxes = list(export.blocks(text))
    assert [box["step"] for box in boxes] == [
        "prepare.directory", "prepare.functions", "prepare.site", STEP,
    ]  # fmt: skip
    assert boxes[-1]["host"] == CLUSTER
    tool = "kafka-configs.sh --bootstrap-server BOOTSTRAP --alter --entity-type topics --entity-name"
    lines = [f"{tool} {topic} --add-config 'value=[new]'" for topic in TOPICS]
    assert boxes[-1]["text"].split(" &&\n") == lines
    assert "Expect: `Completed updating config` for each topic." in text
    for word in ("ssh.conf <<", "zkm-host that", "hold.lock", "dest host", "ZooKeeper", "stand`"):
        assert word not in text.replace(boxes[1]["text"], ""), word


@pytest.mark.parametrize("fails", ["", "c"])
def test_by_hand_the_boxes_of_such_a_page_run_to_the_first_line_that_fails(
    tmp_path: Path, fails: str
) -> None:
    (tmp_path / "runbook.md").write_text(settings_by_hand())
    prepare = [box["text"] for box in export.blocks(settings_by_hand()) if box["step"] != STEP]
    tool = f'kafka-configs.sh() {{ [ "$7" != "{fails}" ] && echo "$7" >>$HAND/set; }}'
    script = "\n".join([f"HAND={tmp_path}/hand; {tool}", *prepare, f"step {STEP}"])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    assert (tmp_path / "hand" / "set").read_text().split() == ([*"ab"] if fails else list(TOPICS))
    assert done.returncode == (1 if fails else 0)
    assert (f"STOPPED in {STEP} forward" in done.stdout) == bool(fails)


def test_by_hand_a_wave_of_hosts_and_clusters_is_hosts_first() -> None:
    changes: dict[str, Changes] = {
        "t": (AlterTopicConfig(CLUSTER, "t", "k", "1", None), AlterTopicConfig(CLUSTER, "t", "l", "2", "3")),
        "d1": (PutFile("d1", "/f", b"a\n", "root:root"), PutFile("d1", "/g", b"b\n", "root:root")),
    }
    step = plan.PlannedStep("setting", "set", Hazard.REVERSIBLE, Brief("", "", "", "", ""), {}, "")
    back = Sheet(inventory(), "r-1", "main", False, step, changes).waves(Way.BACK)
    assert [(block.hosts, block.way) for block in back] == [
        (("d1",), Way.BACK), (("d1",), Way.BACK), ((CLUSTER,), Way.BACK), ((CLUSTER,), Way.BACK),
    ]  # fmt: skip
    assert [block.text[0] == "next" for block in back] == [True, False, False, False]
    assert ["k=[1]" in block.text[0] for block in back] == [False, False, True, False]


def test_by_hand_a_cluster_is_asked_through_its_first_broker() -> None:
    known, topic = quiet_world().inventory, AlterTopicConfig(CLUSTER, "BOOTSTRAP", "k", "1", None)
    step = plan.PlannedStep("setting", "set", Hazard.REVERSIBLE, Brief("", "", "", "", ""), {}, "")
    [box] = Sheet(known, "r-1", "main", False, step, {"t": (topic,)}).waves(Way.BACK)
    assert f"--bootstrap-server {known.kafka.brokers[0].endpoint} --alter " in box.text[0]
    assert "--entity-name BOOTSTRAP " in box.text[0]


def test_by_hand_the_witnesses_are_taken_before_the_first_stage_that_needs_them() -> None:
    boxes = [box["step"] for box in export.blocks(settings_by_hand(witnesses=True))]
    assert boxes[3:] == ["hold.lock", "hold.steal", STEP, "hold.release"]
    assert "## hold: take the machines" in settings_by_hand(witnesses=True)
    assert "DEST='d1 d2 d3'\n" in settings_by_hand(witnesses=True)
    unlocked = export.blocks(settings_by_hand(witnesses=True, locked=False))
    assert [box["step"] for box in unlocked][3:] == [STEP]


def test_a_report_without_a_window_tells_changes_findings_and_the_end(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "r")
    toy.hosts.wrong = ["lost"]
    assert toy.process(forward).code == 0
    report = build(read(toy.run_dir), toy.playbook)
    assert (report.windows, report.lanes, report.proof, report.lags) == ((), (), None, ())
    assert figures(report) == (
        ("way back", "not taken", "see Decisions"),
        ("refusals and alarms", "0 and 0", "refused steps"),
    )
    assert report.left[-1] == "nothing"
    found = {table.id: table for table in tables(report)}
    assert set(found) == {"decisions", "calls", "steps", "findings", "changes", "digests"}
    on_hosts, on_clusters = (row[-1] for row in found["steps"].rows)
    assert on_hosts == "3 done on 3 hosts"
    assert on_clusters in ("1 unknown, 4 done on 5 targets", "4 done, 1 unknown on 5 targets")
    assert [row[2] for row in found["findings"].rows] == ["tiny.file", "toy.set"]
    [lost] = found["changes"].rows
    assert (lost[3], lost[5]) == ("unknown", "store: the connection broke")
    assert lost[4].startswith(f"set {lost[1]} to new (found: ")
    drawn = [box.attrib["data-state"] for box in ElementTree.fromstring(timeline(report)).iter()
             if "data-state" in box.attrib]  # fmt: skip
    assert drawn == ["main"]
    for text in (markdown(report), html.page(report)):
        assert "toy is complete (exit code 0)" in text
        for word in ("FENCE", "OPEN", "window", "dest", "source", "broker", "ZooKeeper", "roll", "lag"):
            assert not re.search(rf"\b{word}", text), word


HOMONYMS = {"go", "stop", "stopped", "open", "check"}
"""Answers of a person and states of a run, which some modules name as well."""


@pytest.mark.parametrize("package", ["runbook/ui", "report", "runbook/byhand"])
def test_pages_and_reports_name_no_stage_step_or_verb(package: str) -> None:
    steps = PLAYBOOK.step_ids()
    names = {*steps, *(part for step in steps for part in step.split("."))}
    names |= {str(verb) for verb in get_args(SimpleVerb)}
    names |= {str(getattr(kind, "verb", "")) for kind in KINDS.values()} - {""}
    files = list((Path(zkmigrate.__file__).parent / package).rglob("*.py"))
    said = {
        (file.name, node.value)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert len(said) > 100
    assert {(file, text) for file, text in said if text in names - HOMONYMS} == set()


def test_a_runbook_without_a_go_no_go_page_says_so() -> None:
    toy = Playbook("toy", "A toy", ())
    with pytest.raises(UsageError, match="toy has no go/no-go page"):
        export.go_no_go(toy, plan.Plan("toy", "", (), ()), inventory(), cast(Look, None), None)
