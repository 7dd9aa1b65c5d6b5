"""What the pages name is there: decisions by number, verbs, options, codes, checks, hooks' moments, keys."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest

import playbooks
from playbooks import kafka_zookeeper_return
from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.preflight_world import CHECKS
from tests.unit.test_repository import documents
from zkmigrate.cli.findings import entries
from zkmigrate.cli.main import cli
from zkmigrate.errors import LockedError
from zkmigrate.inventory.accept import ACCEPTABLE
from zkmigrate.inventory.hooks import Moment
from zkmigrate.runbook.runs.playbook_files import load

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = ROOT / "docs" / "adr"


def misnumbered(names_and_titles: Iterable[tuple[str, str]]) -> list[str]:
    """The decisions whose number another one has, or whose title says another number than the name."""
    taken: set[int] = set()
    wrong: list[str] = []
    for name, title in sorted(names_and_titles):
        named, titled = re.match(r"(\d{4})-", name), re.match(r"# (\d+)\. \S", title)
        if named is None or titled is None or int(named[1]) != int(titled[1]) or int(named[1]) in taken:
            wrong.append(name)
        if named is not None:
            taken.add(int(named[1]))
    return wrong


def test_every_decision_has_a_number_of_its_own() -> None:
    decisions = [(path.name, path.read_text().partition("\n")[0]) for path in DECISIONS.iterdir()]
    assert len(decisions) > 10
    assert misnumbered(decisions) == []


def test_misnumbered_decisions_are_found() -> None:
    decisions = [
        ("0001-a.md", "# 1. A"),
        ("0001-b.md", "# 1. B"),
        ("0002-c.md", "# 3. C"),
        ("d.md", "# 4. D"),
    ]
    assert misnumbered(decisions) == ["0001-b.md", "0002-c.md", "d.md"]


VERBS = [name for name in cli.list_commands(click.Context(cli)) if name != "lab"]
PROGRAMS = (
    "zkmigrate.lab.demo", "zkmigrate.lab.clients.__main__", "bench.placement_peer",
    "bench.subtree",
)  # fmt: skip
"""Programs with options of their own that the pages name."""
STAGES = (*PLAYBOOK.stages, *kafka_zookeeper_return.PLAYBOOK.stages)
PLACES = {s.id for s in STAGES} | {f"{s.id}.{t.id}" for s in STAGES for t in s.steps}
PHASES = {step.id for stage in PLAYBOOK.stages if stage.id == "cutover" for step in stage.steps}
VALUES = {
    "--until": PLACES,
    "--to": PLACES,
    "--wait": PLACES | {"end"},
    "--findings": PLACES | {"all"},
    "--at": PLACES | PHASES,
    "--skip": {"rehearse"},
}
ENDS = ("|", "&", ";", ">", "<", "#", "(", "...", "…")


def snippets(text: str) -> Iterator[str]:
    """What a page sets as code: each line of a fenced block, each inline span, by itself."""
    for block in re.findall(r"^ *```.*?\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE):
        yield from re.sub(r"\\\n", " ", block).splitlines()
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for _, span in re.findall(r"(`+)(.+?)\1", prose, flags=re.DOTALL):
        yield " ".join(span.split())


def calls(snippet: str) -> Iterator[list[str]]:
    """The words behind each ``zkmigrate``, up to what ends a command: a bar, a comment, ``--``."""
    words: list[str] | None = None
    for word in snippet.split():
        if re.fullmatch(r"`?(\S*/)?zkmigrate`?", word):
            if words:
                yield words
            words = []
        elif words is not None and (word == "--" or word.startswith(ENDS)):
            if words:
                yield words
            words = None
        elif words is not None:
            words.append(word.strip("`[]()"))
    if words:
        yield words


def unknown(words: list[str]) -> list[str]:
    """What of a call the command line does not know: the verb, an option, a step behind ``--until``."""
    command: click.Command = cli
    if not re.fullmatch(r"-.*|[a-z-]+", words[0]):
        return []  # VERB, or a sentence
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z-]+", words[0]):
        if words[0].startswith("-"):
            break
        try:
            _, found, words = command.resolve_command(click.Context(command), words)
        except click.UsageError:
            return [words[0]]
        command = found or command
    parameters = command.get_params(click.Context(command, **command.context_settings))
    options = {name for p in parameters for name in (*p.opts, *p.secondary_opts)}
    if command.ignore_unknown_options or command.context_settings.get("ignore_unknown_options"):
        words = [word for word in words if not re.fullmatch(r"-[a-z]", word)]  # of the command that it runs
    wrong = []
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        if name.startswith("-") and name not in options:
            wrong.append(name)
        value = value or (words[at + 1] if at + 1 < len(words) else "")
        wrong += misplaced(name, value)
    return wrong


def misplaced(option: str, value: str) -> list[str]:
    """The value, where an option takes a stage or step and there is none of this name."""
    known = VALUES.get(option)
    named = value.strip(",.:`")
    return [f"{option} {named}"] if known and re.fullmatch(r"[a-z.]+", named) and named not in known else []


def all_options() -> set[str]:
    """The options of every verb, of the lab's commands and of the programs beside."""
    root = click.Context(cli)
    commands = [cli.get_command(root, verb) for verb in VERBS]
    commands += [getattr(importlib.import_module(name), "main", None) for name in PROGRAMS]
    lab = importlib.import_module("zkmigrate.lab.cli").lab
    commands += [lab, *lab.commands.values(), *lab.commands["load"].commands.values()]
    commands += lab.commands["fault"].commands.values()
    commands += [
        each for verb in commands if isinstance(verb, click.Group) for each in verb.commands.values()
    ]
    return {
        name
        for command in commands
        if isinstance(command, click.Command)
        for parameter in command.get_params(click.Context(command, **command.context_settings))
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize("page", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_call_in_a_page_is_one_that_the_command_line_knows(page: Path) -> None:
    found = [
        word for snippet in snippets(page.read_text()) for call in calls(snippet) for word in unknown(call)
    ]
    assert found == []


def test_every_option_in_a_page_is_one_of_some_verb() -> None:
    """Where it stands alone, as in ``--until STEP``."""
    known = all_options() | {"--print", "--as", "--run"}  # the last three are zkm-host's
    found = {
        (page.name, name)
        for page in documents()
        for snippet in snippets(page.read_text())
        for name in re.findall(r"^(--[a-z-]+)", snippet)
        if name not in known
    }
    assert found == set()


def test_calls_that_are_wrong_are_found() -> None:
    text = (
        "`zkmigrate nosuch`, `zkmigrate run\n--until nowhere` and `zkmigrate VERB --help`\n"
        "```\n.venv/bin/zkmigrate lab exec -- zkmigrate resume --yes --no-such   # not --this\n"
        "zkmigrate plan | less --that\nzkmigrate lab fault nothing\nzkmigrate hold --at check\n```\n"
    )
    found = [word for snippet in snippets(text) for call in calls(snippet) for word in unknown(call)]
    assert sorted(found) == ["--no-such", "--until nowhere", "nosuch", "nothing"]


def keys(node: dict[str, Any], definitions: dict[str, Any], path: str = "") -> Iterator[str]:
    """Every key of migration.yml by its path, such as ``policy.lease.cut_ttl_ms``; a list is its items."""
    for part in (node, node.get("items", {}), *node.get("anyOf", ())):
        if "$ref" in part:
            yield from keys(definitions[part["$ref"].rpartition("/")[2]], definitions, path)
        for name, below in part.get("properties", {}).items():
            yield f"{path}{name}"
            yield from keys(below, definitions, f"{path}{name}.")


def identifiers() -> set[str]:
    """Everything with a dot in it that the code calls by that name: findings, checks, troubles."""
    code = "\n".join(path.read_text() for path in (ROOT / "zkmigrate").rglob("*.py"))
    return set(re.findall(r"""["']([a-z]+\.[a-z0-9-]+)["']""", code)) | {check.id for check in CHECKS}


def test_every_id_and_key_in_a_page_exists() -> None:
    known = PLACES | identifiers()
    for model in {load(one.name).inventory for one in pkgutil.iter_modules(playbooks.__path__)}:
        schema = model.model_json_schema()
        known |= set(keys(schema, schema["$defs"]))
    roots = {name.partition(".")[0] for name in known if "." in name} - {"lab", "zookeeper"}
    of_a_host = re.compile(rf"(host|{'|'.join(map(re.escape, PLACES))})\.(source|dest|broker)\d.*")
    shape = re.compile(rf"(?:{'|'.join(sorted(roots))})(?:\.[a-z0-9_-]+)+")
    files = re.compile(
        r"\.(json|jsonl|md|py|html|yml|log|sh|cfg|env|bak|dynamic(\.\w+)?|service|properties)$"
    )
    found = {
        (page.name, snippet)
        for page in documents()
        for snippet in snippets(page.read_text())
        if shape.fullmatch(snippet) and snippet not in known
        if not files.search(snippet) and not of_a_host.fullmatch(snippet)
    }
    assert found == set()


def test_every_moment_in_a_page_is_one() -> None:
    found = {
        (page.name, name)
        for page in documents()
        for snippet in snippets(page.read_text())
        for name in re.findall(r"^ *((?:before|after|on)_[a-z_]+):?$", snippet)
        if name not in get_args(Moment)
    }
    assert found == set()


def test_every_exit_code_in_a_page_is_in_the_table() -> None:
    table = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
    codes = {
        int(n) for row in re.findall(r"^\| ([\d, ]+) \|", table, flags=re.MULTILINE) for n in row.split(",")
    }
    said = cli.help or ""
    assert {int(n) for n in re.findall(r"\b\d+\b", said)} == codes - {1}, "--help tells the same codes"
    form = re.compile(r"(?:exit codes?|ends? with|code) (\d+)\b|\((\d{1,3})\)")
    found = {
        (page.name, number)
        for page in documents()
        if page.parent.name != "adr"
        for hit in form.findall(page.read_text())
        for number in hit
        if number and int(number) not in codes
    }
    assert found == set()


def test_a_process_that_was_fenced_off_ends_with_one_code_on_every_page() -> None:
    """The security page said 9, which is zkm-host's own code; the process of the operator ends with 5."""
    table = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
    assert re.search(rf"^\| {LockedError.exit_code} \|.*fenced this one off", table, re.MULTILINE)
    of_programs = {"zkm-host.md", "gateway.md"}  # they list the codes of programs on hosts
    for page in documents():
        if page.name not in of_programs and page.parent.name != "adr":
            fenced = [line for line in page.read_text().splitlines() if "fencing number" in line]
            assert not [line for line in fenced if re.search(r"\((?:exit )?(?:code )?9\)", line)], page


ADVICE = re.compile(r"(?<!-)\baccept\b")


def refused(page: str) -> set[str]:
    """The findings beside which a paragraph, list item or row says "accept", and that cannot be accepted."""
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.))", page)
    named = {id for part in parts if ADVICE.search(part) for id in re.findall(r"`([a-z-]+\.[a-z-]+)`", part)}
    return (named & entries().keys()) - ACCEPTABLE


def advised(source: str, names: dict[str, Any]) -> Iterator[str]:
    """The ids of each function's claims, if the function's own text or a constant that it uses says "accept".
    names: the globals of its module."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        body = function.body[1:] if ast.get_docstring(function) else function.body
        nodes = [node for part in body for node in ast.walk(part)]
        told = [names.get(node.id) if isinstance(node, ast.Name) else None for node in nodes]
        told += [node.value for node in nodes if isinstance(node, ast.Constant)]
        words = [word for one in told for word in (one if isinstance(one, tuple) else [one])]
        if not any(isinstance(word, str) and ADVICE.search(word) for word in words):
            continue
        for call in (*nodes, *function.decorator_list):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("claim", "check"):
                id = ast.unparse(call.args[0])
                yield names[id] if id in names else ast.literal_eval(id)


def test_no_page_tells_to_accept_what_cannot_be_accepted() -> None:
    """Without the pages that tell what was wrong before."""
    pages = [page for page in documents() if page.name not in ("CHANGELOG.md", "track-record.md")]
    assert {page.name: wrong for page in pages if (wrong := refused(page.read_text()))} == {}
    assert refused("- `prove.tail`: stop it, or\n  accept it.\n- `host.unit` blocks.") == {"prove.tail"}


def test_no_finding_advises_to_accept_what_cannot_be_accepted() -> None:
    in_entries = {id for id, one in entries().items() if ADVICE.search(one.meaning.todo)}
    assert in_entries - ACCEPTABLE == set()
    assert {"switch.transactions", "gateway.transactions"} <= in_entries
    found = set[str]()
    for path in sorted((ROOT / "zkmigrate").rglob("*.py")):
        text = path.read_text()
        if ADVICE.search(text):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found |= {*advised(text, vars(importlib.import_module(name)))}
    assert found - ACCEPTABLE == set()
    assert "return.source-owner" in found


def test_what_can_be_accepted_is_a_finding() -> None:
    assert entries().keys() >= ACCEPTABLE
