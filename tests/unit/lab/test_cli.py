from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from zkmigrate.lab import state
from zkmigrate.lab.cli import lab, shell_prompt
from zkmigrate.lab.fault_cli import fault
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.spec import LabSpec

ARGUMENTS = {
    "clock": ["dest1", "300"],
    "slow-disk": ["dest1", "20"],
    "partition": ["dest1", "dest2"],
    "heal": ["dest1", "dest2"],
    "reboot": ["dest1", "--hard"],
    "operator-cut": [],
    "operator-restore": [],
}


@pytest.fixture(autouse=True)
def _no_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZKMIGRATE_LAB_DIR", str(tmp_path))


@pytest.mark.parametrize("name", sorted(fault.commands))
def test_every_fault_takes_its_arguments_and_asks_for_a_lab(name: str) -> None:
    done = CliRunner().invoke(lab, ["fault", name, *ARGUMENTS.get(name, ["dest1"])])
    assert done.exit_code == 1
    assert "the lab must be named. Labs: none" in done.output


@pytest.mark.parametrize(
    "command",
    [["status"], ["ssh", "dest1"], ["exec", "true"], ["logs", "dest1"], ["inventory", "new.yml"], ["down"]],
)
def test_without_a_lab_the_answer_says_how_to_get_one(command: list[str]) -> None:
    done = CliRunner().invoke(lab, command)
    assert done.exit_code == 1
    assert "zkmigrate lab up" in done.output


def test_an_inventory_that_is_there_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "migration.yml"
    file.write_text("mine")
    done = CliRunner().invoke(lab, ["inventory", str(file)])
    assert done.exit_code == 1
    assert "--force" in done.output
    assert file.read_text() == "mine"


def test_a_lab_that_does_not_exist_is_named() -> None:
    done = CliRunner().invoke(lab, ["status", "--lab", "abcdef"])
    assert done.exit_code == 1
    assert "zkm-lab-abcdef" in done.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bandwidth-kbit", "dest1"], "Needed: NAME=VALUE"),
        (["--bandwidth-kbit", "dest1=fast"], "Needed: dest1= and a whole number"),
        (["--dest-count", "4"], "possible: 3, 5 or 7"),
        (["--shared", "brokers"], "source-brokers"),
    ],
)
def test_up_refuses_bad_options_before_anything_is_built(
    tmp_path: Path, options: list[str], said: str
) -> None:
    done = CliRunner().invoke(lab, ["up", *options])
    assert done.exit_code != 0
    assert said in done.output
    assert list(tmp_path.iterdir()) == []


def test_an_interactive_shell_says_where_it_is_and_nothing_else_is_touched() -> None:
    """Bash reads its own files first, which set PS1: what it runs before its prompt has the last word."""
    assert shell_prompt("3209b4", "operator", ["/bin/sh"]) == ("env", "PS1=(lab 3209b4 operator) # ")
    said = shell_prompt("3209b4", "dest1", ["bash", "-l"])
    assert said == ("env", "PROMPT_COMMAND=PS1='(lab 3209b4 dest1) \\w\\$ '; unset PROMPT_COMMAND")
    for command in (["bash", "-c", "true"], ["zkmigrate", "status"], ["bash", "script.sh"]):
        assert shell_prompt("3209b4", "operator", command) == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--produce-plan", "60:100", "--produce-rate", "5"], "Needed: only one of them"),
        (["--repeat"], "Needed: the plan to repeat"),
        (["--produce-plan", "60"], "Needed: SECONDS:RATE"),
    ],
)
def test_load_refuses_a_plan_that_is_none(options: list[str], said: str) -> None:
    done = CliRunner().invoke(lab, ["load", "start", *options])
    assert done.exit_code != 0
    assert said in done.output


@pytest.mark.parametrize(("shared", "below"), [("source-brokers", "source"), ("dest-brokers", "dest")])
def test_the_inventory_names_each_broker_with_the_address_of_the_shared_machine(
    tmp_path: Path, shared: str, below: str
) -> None:
    made = Lab(state.create(LabSpec(shared=shared), kept=False))
    written = tmp_path / f"{state.PREFIX}{made.id}/hosts/{below}1/root/var/lib/kafka/meta.properties"
    written.parent.mkdir(parents=True)
    written.write_text(f"cluster.id={'C' * 22}\n")
    file = tmp_path / "migration.yml"
    assert CliRunner().invoke(lab, ["inventory", str(file)]).exit_code == 0
    named = YAML(typ="safe").load(file)
    address = {host["name"]: host["address"] for host in named[below]["hosts"]}
    brokers = {broker["name"]: broker["address"] for broker in named["kafka"]["brokers"]}
    assert brokers == {f"broker{n}": address[f"{below}{n}"] for n in (1, 2, 3)}
    assert made.host("broker2").netns == made.host(f"{below}2").netns == f"zkm-{made.id}-{below}2"
