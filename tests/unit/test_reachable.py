"""Every public function of the product is reached from a verb, a playbook or a module's own code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]

ENTRIES = {"zkmigrate.cli": "command", "zkmigrate.spark.jobs": "run", "zkmigrate.lab.load": "run"}
"""By package: the function of its modules that a verb looks up by a word of the command line."""

Function = tuple[str, str]
"""Module and name."""


def module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.Module) -> dict[str, set[str]]:
    """What each name may stand for that the module imports, with dots: its functions import on their own."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            for one in node.names:
                found.setdefault(one.asname or one.name, set()).add(f"{node.module}.{one.name}")
        elif isinstance(node, ast.Import):
            for one in node.names:
                found.setdefault(one.asname or one.name, set()).add(one.name)
    return found


def named(node: ast.AST, names: Mapping[str, set[str]], own: str) -> Iterator[Function]:
    """The functions that some code names: by a name, through a module, or as ``module:function``."""
    for one in ast.walk(node):
        whole: set[str] = set()
        if isinstance(one, ast.Name):
            whole = names.get(one.id, {f"{own}.{one.id}"})
        elif isinstance(one, ast.Attribute):
            whole = {f"{at}.{one.attr}" for at in names.get(ast.unparse(one.value), ())}
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and len(one.value) < 200:
            whole = {one.value.replace(":", ".")}
        for text in whole:
            at, _, name = text.rpartition(".")
            yield at, name


def unreached(paths: Iterable[Path], root: Path) -> list[str]:
    """The public module-level functions that no code reaches which is itself reached. Code of a module and of
    its classes is; a decorated function is, because the decorator has it."""
    reached: set[Function] = set()
    calls: dict[Function, set[Function]] = {}
    exports: dict[Function, set[str]] = {}
    for path in paths:
        own, tree = module(path, root), ast.parse(path.read_text())
        names = imported(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list:
                calls[own, node.name] = set(named(node, names, own))
            else:
                reached |= set(named(node, names, own))
        if path.name == "__init__.py":
            exports |= {(own, name): places for name, places in names.items()}
    reached |= {one for one in calls if one[1] == ENTRIES.get(one[0].rpartition(".")[0])}
    todo = list(reached)
    while todo:
        one = todo.pop()
        through = {(at, name) for at, _, name in (place.rpartition(".") for place in exports.get(one, ()))}
        new = (calls.get(one, set()) | through) - reached
        reached |= new
        todo += new
    return sorted(f"{at}.{name}" for at, name in calls.keys() - reached if not name.startswith("_"))


def test_every_public_function_is_reached_from_a_verb_or_a_playbook() -> None:
    """What only tests and drills call is no feature: a user cannot type it."""
    folders = ("zkmigrate", "playbooks")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert unreached(paths, ROOT) == []


def test_a_function_that_only_an_unreached_one_calls_is_found(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(
        "def used(): ...\ndef lost(): return also_lost()\ndef also_lost(): ...\ndef by_name(): ...\n"
        "def through(): ...\ndef twin(): ...\n"
    )
    (tmp_path / "verb.py").write_text(
        "import rules\nfrom rules import used\n"
        "class Verb:\n    def act(self): return used(), rules.through()\n"
        "def twin(): ...\nSENDER = 'rules:by_name'\ntwin()\n"
    )
    paths = sorted(tmp_path.glob("*.py"))
    assert unreached(paths, tmp_path) == ["rules.also_lost", "rules.lost", "rules.twin"]
