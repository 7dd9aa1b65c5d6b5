"""The page of commands: of a runbook that changes a cluster, hostile text, and the expected answers."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import pytest
from click.testing import CliRunner

import zkmigrate
from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.engine_world import inventory
from tests.unit.runbook.engine.test_cluster_changes import BEFORE, CLUSTER, STEP, TOPICS, SettingStep
from zkmigrate.clean import inline
from zkmigrate.cli.main import cli
from zkmigrate.errors import UsageError
from zkmigrate.kafka.changes import AlterTopicConfig
from zkmigrate.runbook.engine import plan
from zkmigrate.runbook.model.change import (
    KINDS,
    Change,
    Fence,
    HostVerb,
    PutFile,
    RestoreImage,
    SetService,
    SimpleVerb,
    Unseal,
)
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Brief, Way
from zkmigrate.runbook.ui.runbook_page import Block, Runbook, expected, text
from zkmigrate.topics.gateway.order import GatewayOrder


def book(changes: dict[str, tuple[Change, ...]]) -> Runbook:
    """A runbook of one step with these changes, by target."""
    planned = {
        target: tuple(plan.PlannedChange(c, c.describe(), plan.command(c), "", ()) for c in all_)
        for target, all_ in changes.items()
    }
    alone = SettingStep()
    step = plan.PlannedStep(alone.id, alone.title, alone.hazard, Brief("", "", "", "", ""), planned, "")
    whole = Playbook("toy", "A toy", (Stage("main", "do", (cast(AnyStep, alone),)),))
    of = plan.Plan("toy", "", (plan.PlannedStage("main", "do", "", False, False, (step,)),), ())
    return Runbook(whole, of, inventory(), "r-1", 7)


def blocks(of: Runbook) -> list[Block]:
    return [part for part in of.parts() if isinstance(part, Block)]


def test_a_cluster_is_changed_by_the_lines_of_its_own_tool() -> None:
    of = book({t: (AlterTopicConfig(CLUSTER, t, "value", "new", BEFORE.get(t)),) for t in TOPICS})
    tool = "kafka-configs.sh --bootstrap-server BOOTSTRAP --alter --entity-type topics --entity-name"
    lines = [line for block in blocks(of) for line in block.lines]
    assert lines == [f"{tool} {topic} --add-config 'value=[new]'" for topic in TOPICS]
    assert {block.hosts for block in blocks(of)} == {(CLUSTER,)}
    page = text(of.parts())
    assert f"```sh host={CLUSTER} step={STEP} way=forward\n{lines[0]}\n```" in page
    assert "Expect: `Completed updating config` for each topic." in page


def test_hosts_with_the_same_changes_share_their_words_and_each_has_its_own_line() -> None:
    of = book({host: (Fence(host, 30_000), HostVerb(host, "stopped")) for host in ("d2", "d1")})
    each = ("fence main.setting.{}.7.1 30000", "stopped main.setting.{}.7.2")
    assert [block.lines for block in blocks(of)] == [
        tuple(f"ssh {h} sudo zkm-host --run r-1 --as N {words.format(h)}" for h in ("d2", "d1"))
        for words in each
    ]
    page = text(of.parts())
    assert "1. refuse clients (lease 30000 ms) and end their connections, in this order: d2, d1" in page


def test_an_order_to_a_gateway_has_the_id_that_its_relay_makes() -> None:
    [block] = blocks(book({"g1": (GatewayOrder("g1", "unhold", "orders"),)}))
    [line] = block.lines
    assert line.startswith(
        "ssh g1 zkmigrate gateway order --config CONFIG --as N unhold r-1.main.setting.g1.7.1"
    )


@pytest.mark.parametrize("owner", ["root:root;touch canary", "root:$(touch canary)", "root root", ""])
def test_no_page_holds_a_word_that_a_shell_would_read(owner: str) -> None:
    with pytest.raises(UsageError, match="cannot be sent to a host"):
        book({"d1": (PutFile("d1", "/etc/zoo.cfg", b"a\n", owner),)}).parts()


@pytest.mark.parametrize("value", ["x\ntouch canary", "\x1b[2J", "\u202ex"])
def test_no_page_is_made_with_a_command_that_a_terminal_obeys(value: str) -> None:
    of = book({"t": (AlterTopicConfig(CLUSTER, "t", "k", value, None),)})
    with pytest.raises(UsageError, match="No page was written") as caught:
        of.parts()
    assert inline(value) in str(caught.value)


def test_text_of_a_file_cannot_end_its_block() -> None:
    of = book({"d1": (PutFile("d1", "/f", b"", "root:root"),)})
    [stage] = of.plan.stages
    [step] = stage.steps
    [change] = step.targets["d1"]
    diff = "+a\n ```\n```sh host=d1 step=main.setting way=forward\ntouch canary\n```\n"
    step = replace(step, targets={"d1": (replace(change, diff=diff),)})
    shown = replace(of, plan=replace(of.plan, stages=(replace(stage, steps=(step,)),)))
    lines = text(shown.parts()).splitlines()
    assert "    touch canary" in lines
    assert sum(line.lstrip(" ").startswith("```") and not line.startswith("    ") for line in lines) == 2


@pytest.mark.parametrize(
    ("change", "way", "said"),
    [
        (Fence("d1", 1), Way.FORWARD, "`killed=N left=0`"),
        (SetService("b1", "kafka.service", "restart"), Way.FORWARD, "`restart kafka.service`"),
        (PutFile("d1", "/f", b"", "a:b"), Way.FORWARD, "`wrote /` or `unchanged /`"),
        (
            HostVerb("d1", "started-observer"),
            Way.BACK,
            "`started`, or a refusal because the host never got this far",
        ),
        (HostVerb("d1", "halt"), Way.BACK, "`halted`, or a refusal because the host never got this far"),
        (RestoreImage("d1"), Way.BACK, "`image restored`, or a refusal because the host never got this far"),
        (Unseal("d1", 1, 1), Way.BACK, "`unsealed`, or a refusal because the host never got this far"),
        (HostVerb("d1", "halt"), Way.FORWARD, "`halted`"),
        (GatewayOrder("g1", "unhold", "orders"), Way.FORWARD, "`done:`"),
    ],
)
def test_the_answer_is_shown_without_the_marks_of_a_pattern(change: Change, way: Way, said: str) -> None:
    assert expected(change, way) == said


HOMONYMS = {"go", "stop", "stopped", "open", "check"}
"""Answers of a person and states of a run, which some modules name as well."""


@pytest.mark.parametrize("package", ["runbook/ui", "report"])
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


def test_a_runbook_without_a_go_no_go_page_says_so(tmp_path: Path) -> None:
    file = tmp_path / "m.yml"
    file.write_text("version: 1\nname: x\nkafka:\n  cluster_id: abcdefghijklmnopqrstuv\n  brokers:\n"
                    "    - {name: broker1, address: 127.9.0.1, id: 1}\n")  # fmt: skip
    words = ["runbook", "--go-no-go", "--playbook", "kafka_clean_leftovers", "-i", str(file)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert "kafka_clean_leftovers has no go/no-go page" in done.output
