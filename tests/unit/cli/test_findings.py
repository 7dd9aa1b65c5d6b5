"""Every finding has an entry that ``zkmigrate help`` prints: what it means, and what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from tests.unit.cli.test_completion import completed
from tests.world.toy import KEEPER
from zkmigrate.cli import findings
from zkmigrate.cli.main import cli
from zkmigrate.errors import UsageError
from zkmigrate.move.preflight import checks
from zkmigrate.runbook.model.finding import meanings
from zkmigrate.runbook.model.window import Trouble

ROOT = Path(__file__).resolve().parents[3]
ID = re.compile(r"[a-z][a-z-]*\.[a-z][a-z0-9-]*")
MAKERS = {
    "claim", "Finding", "check", "Condition", "unknown", "unanswered", "claims",
    "lost_baseline", "_at_rest", "not_in_state",
}  # fmt: skip
"""Functions that take the id of a finding, as ``id`` or among the first two arguments."""

PUT_TOGETHER = {
    "clean-up.{what}": {f"clean-up.{what}" for what in ("owned", "watched", "written", "children", "locked")},
    "hook.{moment}": {"hook.MOMENT"},
    "host.{host}": {"host.HOST"},
    "{step}.phase": {"STEP.phase"},
    "{step}.service": {"STEP.service"},
}
"""Ids that the code puts together and their entries; those of ``{kind}`` are each dependent's."""


@cache
def trees() -> tuple[ast.Module, ...]:
    """What the modules say that make findings. Seconds: so not where tests are only gathered."""
    return tuple(
        ast.parse(path.read_text())
        for path in sorted((ROOT / "zkmigrate").rglob("*.py"))
        if not {"lab", "spark"} & set(path.relative_to(ROOT).parts)
    )


@cache
def constants() -> dict[str, set[str]]:
    """Names of a module's constants that hold an id, such as ``OWNER = "return.source-owner"``."""
    found: dict[str, set[str]] = {}
    for tree in trees():
        for node in tree.body:
            if isinstance(node, ast.Assign):
                names = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for name, value in zip(names, values, strict=False):
                    if isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                        found.setdefault(name.id, set()).add(str(value.value))
    return found


def ids(tree: ast.Module) -> Iterator[str]:
    """The ids of the findings that a module makes, as text or as a constant in its calls of MAKERS; and other
    texts in their place."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called, args = node.func, node.args
        if getattr(called, "id", "") == "partial":
            called, args = args[0], args[1:]
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        given = [word.value for word in node.keywords if word.arg == "id"] + args[:2]
        for arg in given if name in MAKERS else []:
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                yield arg.value
            elif isinstance(arg, ast.Name):
                yield from constants().get(arg.id, ())
            elif isinstance(arg, ast.JoinedStr):
                yield ast.unparse(arg)[2:-1]


def test_every_id_in_the_code_has_an_entry() -> None:
    made = {id for tree in trees() for id in ids(tree)}
    together = {id for id in made if re.fullmatch(r"[\w-]*{\w+}[.]\S+|\S+[.]{\w+}", id)}
    assert {id for id in together if not id.startswith("{kind}.")} == set(PUT_TOGETHER)
    wanted = {id for id in made if ID.fullmatch(id)} | set().union(*PUT_TOGETHER.values())
    wanted |= {trouble.value for trouble in Trouble} | {
        check.id for dependent in findings.dependents() for check in checks(dependent)
    }
    assert len(wanted) > 200
    known = set(findings.entries())
    assert sorted(wanted - known) == [], "say what it means: MEANINGS in its module, or the check's docstring"
    assert sorted(known - wanted) == [], "no finding has this id"


def test_ids_are_found_as_text_as_a_constant_and_as_a_keyword() -> None:
    code = (
        'claim("a.b", "so", None)\nclaim(OWNER, "so")\nFinding(id="c.d")\nx.claims("e.f", "so")\n'
        'other("g.h")\npartial(claim, "i.j")'
    )
    assert list(ids(ast.parse(code))) == ["a.b", "so", "return.source-owner", "so", "c.d", "e.f", "so", "i.j"]


def test_a_dependent_that_is_added_as_a_file_has_its_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    added = ModuleType("madeup")
    vars(added)["MEANINGS"] = meanings(
        "madeup.shard: A shard has no leader. Cause: It is down. To do: Start it."
    )
    vars(added)["KEEPER"] = KEEPER
    shipped, kafkas = findings._modules, findings.entries()

    def modules(package: str) -> Iterator[ModuleType]:
        if package == "zkmigrate.move.dependents":
            yield added
        yield from shipped(package)

    monkeypatch.setattr(findings, "_modules", modules)
    findings.entries.cache_clear()
    try:
        assert "## Madeup\n\n### madeup.shard\n\n- Failed: A shard has no leader.\n" in findings.page()
        assert "### keeper.release\n" in findings.page()
        assert "Checked for each keeper" in findings.page()
        assert findings.entries().items() >= kafkas.items(), "Kafka's words stay"
    finally:
        findings.entries.cache_clear()


def test_every_entry_says_all_and_none_stands_twice() -> None:
    for id, entry in findings.entries().items():
        text = "\n".join(entry.lines())
        assert re.match(r"(Expected|Failed|Shows): \S.+\nCause: \S.+\nWhat to do: \S", text), id
        assert "{" not in text, id
    told = list(findings._meanings())
    assert len(told) == len({meaning.id for meaning in told})


def test_help_findings_prints_every_entry_once() -> None:
    done = CliRunner().invoke(cli, ["help", "findings"])
    assert done.exit_code == 0
    assert sorted(re.findall(r"^### (.+)$", done.output, re.MULTILINE)) == sorted(findings.entries())


def test_a_meaning_that_lacks_a_part_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"a\.b: It failed"):
        meanings("a.b: It failed. Cause: No part says what to do.")


@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("kafka.quiet", "What to do: Wait until no leader and no ISR changes."),
        ("seal.phase", "Failed: A dest host is in a phase"),
        ("host.dest1", "Failed: A dest host did not answer."),
        ("hook.before_window", "Failed: A hook of the inventory stopped the run"),
    ],
)
def test_help_prints_the_entry_of_an_id(id: str, said: str) -> None:
    done = CliRunner().invoke(cli, ["help", id])
    assert (done.exit_code, done.output.splitlines()[0]) == (0, id)
    assert said in done.output


@pytest.mark.parametrize(
    ("id", "near"),
    [("kafka.quite", "kafka.quiet"), ("host.acess", "host.access"), ("quiet", "kafka.quiet")],
)
def test_an_unknown_id_names_near_ones(id: str, near: str) -> None:
    done = CliRunner().invoke(cli, ["help", id])
    assert done.exit_code == 2
    assert f"similar ids: {near}" in done.stderr
    with pytest.raises(UsageError, match="lists all of them"):
        findings.entry("")


def test_help_shows_a_verb_and_completes_ids() -> None:
    runner = CliRunner()
    assert "Usage: cli release" in runner.invoke(cli, ["help", "release"]).output
    assert runner.invoke(cli, ["help"]).output == runner.invoke(cli, ["--help"]).output
    assert "up" in runner.invoke(cli, ["help", "lab"]).output
    assert completed("zkmigrate help kafka.qu", {}) == ["kafka.quiet"]
