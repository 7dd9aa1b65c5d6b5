"""The playbook kafka_topic_config by the command line: its file, and a run from plan to rollback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.engine_world import TinyClock
from tests.unit.topic_world import ID, KEY, VALUE, TopicLook, names, topics
from zkmigrate.cli.main import cli
from zkmigrate.engine import planfile
from zkmigrate.errors import InventoryError
from zkmigrate.inventory.inventory import Inventory, digest, load
from zkmigrate.model.change import Change, ClusterChange, Outcome
from zkmigrate.moves.world.topics import TopicWorld
from zkmigrate.site.wiring import Site
from zkmigrate.topics.section import TopicConfigInventory

FILE = f"""version: 1
name: topics
kafka:
  cluster_id: {ID}
  brokers:
    - {{name: broker1, address: 127.0.0.1, id: 1}}
topic_config:
  key: {KEY}
  value: {VALUE}
  topics: ["t*"]
"""
SECTIONS = ("kafka", "topic_config")


def loaded(folder: Path, text: str = FILE) -> TopicConfigInventory:
    path = folder / "topics.yml"
    path.write_text(text)
    return load(path, TopicConfigInventory, SECTIONS)


def test_a_value_that_looks_like_a_number_is_text(tmp_path: Path) -> None:
    assert loaded(tmp_path).topic_config.value == VALUE
    assert loaded(tmp_path, FILE.replace(VALUE, "true")).topic_config.value == "true"


@pytest.mark.parametrize(
    ("line", "other", "needed"),
    [
        ('topics: ["t*"]', "topics: []", "10: topic_config.topics: too few (seen 0, needed at least 1)"),
        (
            '["t*"]',
            '["t[0-9]"]',
            "10: topic_config.topics[0]: not allowed (seen 't[0-9]', needed names of topics, or patterns "
            "with * and ?)",
        ),
        (
            f"key: {KEY}",
            "key: 'a b'",
            "8: topic_config.key: not allowed (seen 'a b', needed the name of a topic config: letters, "
            "digits and . _ -)",
        ),
        (f"  value: {VALUE}\n", "", "7: topic_config.value: missing (needed: this key)"),
        ("topic_config:", "topic:", "1: topic_config: missing (needed: this key)"),
    ],
)
def test_each_mistake_is_told_with_its_place(tmp_path: Path, line: str, other: str, needed: str) -> None:
    with pytest.raises(InventoryError) as caught:
        loaded(tmp_path, FILE.replace(line, other))
    assert f"{tmp_path}/topics.yml:{needed}" in str(caught.value).splitlines()


def test_a_run_is_bound_to_all_but_what_it_leaves_out(tmp_path: Path) -> None:
    first = digest(loaded(tmp_path))
    assert digest(loaded(tmp_path, f"{FILE}  leave_out: [t00001]\n")) == first
    assert digest(loaded(tmp_path, FILE.replace(VALUE, "5"))) != first
    assert digest(loaded(tmp_path, FILE.replace('"t*"', '"t0*"'))) != first


def site_of(world: TopicWorld) -> Callable[[Inventory, str], Site]:
    """The real site, in which the world stands for Kafka."""

    class TopicSite(Site):
        def __init__(self, inventory: Inventory, run: str) -> None:
            super().__init__(inventory, run)
            answers = TopicLook(world, TinyClock())
            for question in ("topics", "topic_partitions", "topic_settings", "refused_setting"):
                for look in (self.look, self._watch_look):
                    setattr(look, question, getattr(answers, question))
            self.apply: Any = self._sent

        def _sent(self, change: Change, _operation: str, _fencing: int) -> Outcome:
            assert isinstance(change, ClusterChange)
            return Outcome(*world.alter(change))

    return TopicSite


@pytest.fixture
def world() -> TopicWorld:
    return TopicWorld(ID, topics(12))


@pytest.fixture
def asked(tmp_path: Path, world: TopicWorld) -> Callable[..., Result]:
    """``asked(verb, options)``: one verb over the world."""
    path = tmp_path / "topics.yml"
    path.write_text(FILE)

    def ask(verb: str, *options: str) -> Result:
        words = [verb, "-i", str(path), "--playbook", "kafka_topic_config", *options]
        return CliRunner().invoke(
            cli, words, obj=site_of(world), env={"ZKMIGRATE_RUNS": str(tmp_path / "runs")}
        )

    return ask


def test_from_plan_to_rollback(asked: Callable[..., Result], world: TopicWorld, tmp_path: Path) -> None:
    first = {name: dict(own) for name, own in world.topics.items()}
    planned = asked("plan")
    assert (planned.exit_code, world.topics) == (0, first)
    assert planned.output.count(f"--add-config '{KEY}=[{VALUE}]'") == 11
    lines = planned.output.splitlines()
    at = lines.index(f"     set {KEY}={VALUE} of topic t00001 (found: unset)")
    assert lines[at + 1].startswith("       $ kafka-configs.sh ")
    assert lines[at + 2] == f"     set {KEY}={VALUE} of topic t00002 (found: unset)", "two lines a topic"
    assert (
        "beside it: one Metadata request for these topics alone, to each witness; 2 witnesses, every 30 s"
        in planned.output
    )
    assert asked("run", "--yes").exit_code == 0
    assert {world.topics[name][KEY] for name in names(12)} == {VALUE}
    status = asked("status", "--findings", "all", "--json")
    told = json.loads(status.output)
    assert (status.exit_code, told["state"], told["hosts"]) == (0, "complete", {})
    assert [f["id"] for f in told["findings"]["set.topic-config"]] == ["topics.set"]
    assert asked("plan").output.count("--add-config") == 0
    back = asked("rollback", "--yes")
    assert (back.exit_code, world.topics) == (0, first)
    assert asked("report", "--run-id", "topics-1", "--out", str(tmp_path / "report.html")).exit_code == 0


def test_without_its_journal_a_run_asks_for_it(asked: Callable[..., Result], tmp_path: Path) -> None:
    asked("run", "--yes")
    (tmp_path / "runs" / "topics-1" / "journal.jsonl").unlink()
    lost = asked("resume", "--journal-lost", "back", "--run-id", "topics-1", "--yes")
    assert lost.exit_code != 0
    assert "does not go on without its journal" in lost.output


@pytest.fixture
def plan(asked: Callable[..., Result], tmp_path: Path) -> Path:
    file = tmp_path / "topics.plan"
    assert asked("plan", "--out", str(file)).exit_code == 0
    return file


def test_a_saved_plan_stays_fresh_while_what_topics_set_changes_each_minute(
    asked: Callable[..., Result], world: TopicWorld, tmp_path: Path, plan: Path
) -> None:
    for minute in range(3):
        world.topics["t00000"][KEY] = str(minute)
        assert "warning" not in asked("plan", "--show", str(plan)).output
    world.topics["t00001"][KEY] = VALUE  # one that the plan would have changed
    done = asked("run", "--yes", "--plan", str(plan))
    assert done.exit_code == 0, done.output
    digest = json.loads(plan.read_text())["digest"]
    assert f"the plan {digest[:12]} that was given still holds" in done.output
    assert (tmp_path / "runs" / "topics-1" / "plan.json").read_bytes() == plan.read_bytes()
    again = asked("run", "--yes", "--plan", str(plan))
    assert (again.exit_code, f"the plan {digest[:12]} was applied by run topics-1" in again.output) == (
        4,
        True,
    )
    assert asked("rollback", "--yes").exit_code == 0
    assert world.topics["t00000"][KEY] == "2", "what the run found, not what the plan had seen"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda topics: topics.update(t99999={}), "topic t99999 was not there, is there"),
        (lambda topics: topics.pop("t00004"), "topic t00004 was there, is not there"),
        (lambda topics: topics.pop("t00009"), "topic t00009 was there, is not there"),
    ],
    ids=["one came", "one went", "one went that has the value already"],
)
def test_a_saved_plan_is_stale_when_other_topics_are_meant(
    asked: Callable[..., Result], world: TopicWorld, plan: Path, change: Callable[[Any], object], said: str
) -> None:
    change(world.topics)
    refused = asked("run", "--yes", "--plan", str(plan))
    assert refused.exit_code == 4
    assert f"is stale: set.topic-config: {said}; needed: what was planned" in refused.output
    assert f"is stale: set.topic-config: {said}; needed" in asked("plan", "--show", str(plan)).output


def test_a_plan_of_before_tells_no_basis_and_is_judged_by_its_changes(
    asked: Callable[..., Result], world: TopicWorld, plan: Path
) -> None:
    body = json.loads(plan.read_text())
    for stage in body["stages"]:
        for step in stage["steps"]:
            step.pop("basis", None)
    old = planfile.PlanFile.model_validate_json(json.dumps(body))
    old = old.model_copy(update={"checksum": planfile.checksum_of(old)})
    plan.write_text(old.text())
    assert "basis" not in old.text()
    assert "warning" not in asked("plan", "--show", str(plan)).output
    world.topics["t00000"][KEY] = "5"
    refused = asked("run", "--yes", "--plan", str(plan))
    assert (refused.exit_code, "set.topic-config on t00000: not as planned" in refused.output) == (4, True)
