"""What must hold for the files of the repository as a whole."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from setuptools import find_packages  # type: ignore[import-untyped]

from tests.world.operator import quiet_world
from zkmigrate.hosts import zkm_host
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.runs import playbook_files

ROOT = Path(__file__).resolve().parents[2]
LOCKS = [ROOT / "setup" / name for name in ("requirements.txt", "requirements-spark.txt")]
TOOL_LOCK = ROOT / "setup" / "requirements-tool.txt"
CLIENT_LOCKS = sorted((ROOT / "setup" / "clients").glob("*.txt"))
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())

ROOMS = {
    "runbook",
    "inventory",
    "hosts",
    "zookeeper",
    "kafka",
    "move",
    "cluster",
    "topics",
    "spark",
    "report",
    "cli",
    "lab",
}
NEUTRAL = {
    "zkmigrate.clean",
    "zkmigrate.deadline",
    "zkmigrate.errors",
    "zkmigrate.hosts.jump_host",
    "zkmigrate.hosts.zkm_host",
    "zkmigrate.input_file",
    "zkmigrate.inventory.accept",
    "zkmigrate.inventory.checks",
    "zkmigrate.inventory.explain",
    "zkmigrate.inventory.hooks",
    "zkmigrate.inventory.inventory",
    "zkmigrate.inventory.login",
    "zkmigrate.inventory.marked_yaml",
    "zkmigrate.inventory.types",
    "zkmigrate.java_properties",
    "zkmigrate.json_text",
    "zkmigrate.keyed_digest",
    "zkmigrate.locations",
    "zkmigrate.token_bucket",
}
"""Layers that neither have to be pure nor are kept from the pure ones."""


def tracked() -> list[Path]:
    """Every file git tracks that is still there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def requirements(*locks: Path) -> Iterator[str]:
    """Each entry of the locks with its continuation lines."""
    joined = "".join(lock.read_text() for lock in locks).replace("\\\n", " ")
    return (line for line in joined.splitlines() if line.strip() and not line.strip().startswith("#"))


def contract(named: str) -> dict[str, Any]:
    """One import rule by its id."""
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    [found] = [one for one in contracts if one["id"] == named]
    return dict(found)


def layers() -> set[str]:
    """The modules that the layers name."""
    return {name for layer in contract("layers")["layers"] for name in layer.split(" : ")}


def files_with(pattern: str) -> list[str]:
    """The tracked files, but this one, in which a pattern is found."""
    wanted = re.compile(pattern.encode())
    here = Path(__file__).resolve()
    return [
        str(path.relative_to(ROOT)) for path in tracked() if path != here and wanted.search(path.read_bytes())
    ]


def test_a_fast_test_that_hangs_is_ended(request: pytest.FixtureRequest) -> None:
    """Those with servers and labs may take long; this one may not."""
    marker = request.node.get_closest_marker("timeout")
    assert marker is not None
    assert marker.args[0] < PYPROJECT["tool"]["pytest"]["ini_options"]["timeout"]


def test_no_tracked_file_names_a_path_of_this_machine() -> None:
    """Neither the checkout nor a folder beside it."""
    beside = [path for path in ROOT.parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    places = [ROOT] if ROOT.parent == Path("/") else beside
    assert files_with("|".join(rf"(?<![\w.]){re.escape(str(place))}(?![\w.-])" for place in places)) == []


def test_one_module_says_where_zkm_host_stands_and_keeps_its_state() -> None:
    """Settings of the lab and of the gateway under their own directories begin with the same words."""
    said = files_with(rf"{zkm_host.INSTALLED_PATH}|{zkm_host.STATE_DIR}(?!-lab|-gateway)")
    assert [name for name in said if re.fullmatch(r"zkmigrate/.*\.py", name)] == [
        "zkmigrate/hosts/zkm_host/__init__.py"
    ]


def test_no_tracked_file_names_a_registry_host() -> None:
    """Packages come from wherever the machine's own clients are set up to find them."""
    argv = [sys.executable, "-m", "pip", "config", "list"]
    settings = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    apt = Path("/etc/apt")
    for path in (Path.home() / ".m2" / "settings.xml", apt / "sources.list", *apt.glob("sources.list.d/*")):
        settings += path.read_text() if path.is_file() else ""
    hosts = set(re.findall(r"https?://(?:[^@/'\s]*@)?([\w.-]+)", settings))
    names = ("pypi", "files.pythonhosted", "repo.maven.apache", "repo1.maven", "deb.debian")
    hosts |= {f"{name}.org" for name in names}
    # The last two are in the name spaces of every XML file that Maven reads.
    hosts -= {"localhost", "127.0.0.1", "maven.apache.org", "www.w3.org"}
    assert files_with("|".join(rf"(?<![\w.-]){re.escape(host)}" for host in sorted(hosts))) == []


def documents() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


def headings(path: Path) -> set[str]:
    """The anchors a viewer makes of the headings: lower case, no punctuation, hyphens for spaces."""
    titles = re.findall(r"^#+ +(.+?) *$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(document: Path) -> Iterator[str]:
    """The relative links of a document that lead nowhere: no such file, no such heading."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (document.parent / place).resolve() if place else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in headings(target)):
            yield link


def test_relative_links_resolve() -> None:
    broken = {str(path.relative_to(ROOT)): list(broken_links(path)) for path in documents()}
    assert {path: links for path, links in broken.items() if links} == {}


def test_broken_links_are_found(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "# A title, *twice*\n[ok](page.md) [ok](#a-title-twice) [gone](other.md) [gone](page.md#none) "
        "[out](https://example.org/x)\n```\n[code](nowhere.md)\n```\n"
    )
    assert list(broken_links(document)) == ["other.md", "page.md#none"]


def test_every_locked_requirement_is_pinned_with_hashes() -> None:
    entries = list(requirements(*LOCKS, TOOL_LOCK, *CLIENT_LOCKS))
    assert entries
    assert len(CLIENT_LOCKS) == 2
    pinned = re.compile(r"[\w.-]+==\S+( +; .*?)?( +--hash=sha256:[0-9a-f]{64})+\s*")
    assert [entry for entry in entries if not pinned.fullmatch(entry)] == []


def package(requirement: str) -> str:
    """The normal name of what is required."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def test_an_operators_machine_gets_what_the_tool_needs_and_no_tools_of_the_tests() -> None:
    project = PYPROJECT["project"]
    needed = {package(one) for one in (*project["dependencies"], *PYPROJECT["build-system"]["requires"])}
    extras = {package(one) for extra in project["optional-dependencies"].values() for one in extra}
    entries = {entry.strip() for entry in requirements(TOOL_LOCK)}
    locked = {package(entry) for entry in entries}
    assert needed - locked == set()
    assert (extras - needed) & locked == set()
    assert entries - {entry.strip() for entry in requirements(*LOCKS)} == set(), "other versions or hashes"


def test_whatever_is_told_to_be_installed_is_locked() -> None:
    """A name alone takes what an index has under it. pip-audit comes in an environment of its own."""
    pages = [path for path in tracked() if path.suffix in (".md", ".py", ".sh") and "tests" not in path.parts]
    told = [found for path in pages for found in re.findall(r"pip install[^`\n]*", path.read_text())]
    assert len(told) >= 3
    locked = ("--require-hashes", "--no-deps", "pip-audit")
    assert [line for line in told if not any(word in line for word in locked)] == []


def test_every_declared_dependency_is_locked() -> None:
    project = PYPROJECT["project"]
    declared = [*project["dependencies"], *PYPROJECT["build-system"]["requires"]]
    for extra in project["optional-dependencies"].values():
        declared += extra
    locked = {package(entry) for entry in requirements(*LOCKS)}
    assert {package(requirement) for requirement in declared} - locked == set()


def test_every_folder_with_code_is_a_package() -> None:
    """Without `__init__.py` a folder is left out of the wheel and of the import rules."""
    roots = [ROOT / name for name in ("zkmigrate", "playbooks", "tests")]
    folders = {path.parent for root in roots for path in root.rglob("*.py")}
    bare = [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()]
    assert bare == []


def test_every_file_of_the_tool_that_is_no_module_is_installed() -> None:
    top = ROOT / "zkmigrate"
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["zkmigrate"]
    installed = {path for pattern in patterns for path in top.glob(pattern)}
    others = {path for path in tracked() if top in path.parents and path.suffix != ".py"}
    others = {path for path in others if top / "lab" not in path.parents}
    assert others - installed == set()


def test_the_package_has_twelve_rooms() -> None:
    folders = {path.parent.name for path in (ROOT / "zkmigrate").glob("*/__init__.py")}
    assert folders == ROOMS


def test_every_module_has_one_layer_and_each_layer_a_side() -> None:
    """A new one is named in the layers of pyproject.toml, and in its contract "pure" or in NEUTRAL here."""
    below = sorted((ROOT / "zkmigrate").rglob("*.py"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in below]
    named = layers() - {"playbooks"}
    for module in modules:
        inside = [layer for layer in named if f"{module}.".startswith(f"{layer}.")]
        assert len(inside) == 1 or module.endswith(("__init__", "__main__")), (module, inside)
    pure, effect = (set(contract("pure")[side]) for side in ("source_modules", "forbidden_modules"))
    sides = [pure - {"playbooks"}, {name for name in effect if name.startswith("zkmigrate.")}, NEUTRAL]
    assert set.union(*sides) == named
    assert sum(map(len, sides)) == len(named), "a layer has two sides"


def test_a_wheel_holds_neither_the_lab_nor_a_test() -> None:
    found = find_packages(str(ROOT), **PYPROJECT["tool"]["setuptools"]["packages"]["find"])
    assert {name.split(".")[1] for name in found if "." in name} == ROOMS - {"lab"}
    assert {name.split(".")[0] for name in found} == {"zkmigrate", "playbooks"}


HOUSE = (
    "report",
    "runbook/engine",
    "runbook/model/playbook.py",
    "runbook/runs",
    "runbook/site",
    "runbook/ui",
)
"""What knows no host role, stage, step or kind of sample by its name."""

ORDINARY = {
    "after": "where a hold is",
    "go": "an answer",
    "hold": "a pause that an operator asks for",
    "look": "a kind of connection, and what the verb preflight does",
    "open": "the state of a run",
    "planned": "what a saved plan holds",
    "read": "what is done with a file",
    "start": "where text is anchored in a picture",
    "stop": "an answer",
    "turn": "an entry of the journal",
}
"""Names of steps that are whole texts of the house as well, and what they mean there."""

_ZKM_HOST = "zkm-host's own words"
NAMED = {
    ("runbook/engine/plan.py", "DRAIN"): _ZKM_HOST,
    ("runbook/engine/plan.py", "GO"): _ZKM_HOST,
    ("runbook/engine/plan.py", "PROVE"): _ZKM_HOST,
    ("runbook/engine/plan.py", "SEAL"): _ZKM_HOST,
    ("runbook/engine/plan.py", "STOP"): _ZKM_HOST,
    ("runbook/engine/throttle_file.py", "throttle"): "the file of the verb; a step has the same name",
    ("runbook/runs/playbook_files.py", "kafka"): "the playbook that a call without --playbook means",
    ("runbook/runs/run_status.py", "cut"): _ZKM_HOST,
    ("runbook/runs/run_status.py", "fence"): _ZKM_HOST,
    ("report/plots.py", "broker"): "a field of Beat, which the report's JSON has",
}
"""Where a name may stand all the same, and why."""


@cache
def own_names() -> tuple[set[str], set[str]]:
    """The words of the shipped playbooks: host roles, clusters and kinds of samples, one or many; stages and
    steps."""
    systems, steps, inventory = set[str](), set[str](), quiet_world().inventory
    for path in sorted((ROOT / "playbooks").glob("[!_]*.py")):
        playbook = playbook_files.load(path.stem)
        steps |= {name for stage in playbook.stages for name in (stage.id, *(s.id for s in stage.steps))}
        systems |= {*playbook.clusters, *(role.part for role in playbook.roles)}
        for one in playbook.sampling:
            systems |= {question.kind for question in one.questions(inventory, cast(Look, None))}
            systems |= {told[0] for told in (one.canary, one.heard) if told is not None}
    systems |= {name.removesuffix("s") for name in systems}
    return systems, steps - systems


def names_in(source: str) -> set[str]:
    """Which of these words a module's code uses: a role, cluster or kind in an identifier or a text; a stage
    or step as a whole text, or in capitals. Docstrings may give examples."""
    systems, steps = own_names()
    tree, found = ast.parse(source), set[str]()
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):  # the contracts say which rooms may be imported
            continue
        for _, value in ast.iter_fields(node):
            if isinstance(value, str) and id(node) not in docs:
                words = set(re.findall(r"[a-z-]+", value.lower()))
                found |= systems & words
                if isinstance(node, ast.Constant):
                    capitals = set(re.findall(r"[A-Z]+", value))
                    found |= {value} & (steps - set(ORDINARY))
                    found |= {step.upper() for step in steps} & capitals
    return found


def test_the_house_names_nothing_of_a_playbook() -> None:
    found = set[tuple[str, str]]()
    for part in HOUSE:
        top = ROOT / "zkmigrate" / part
        for path in [top] if top.suffix else sorted(top.rglob("*.py")):
            name = str(path.relative_to(ROOT / "zkmigrate"))
            found |= {(name, word) for word in names_in(path.read_text())}
    assert sorted(found - set(NAMED)) == [], "say it in the playbook, its Sampling or its Reporting"
    assert sorted(set(NAMED) - found) == [], "no longer named: take it off the list"


@pytest.mark.parametrize(
    ("planted", "word"),
    [
        ('rows = of_kind(rows, "brokers")', "brokers"),
        ("def lag(dest_hosts): ...", "dest"),
        ('f"the longest silence of a broker"', "broker"),
        ("behind = source.leader", "source"),
        ('f"{hosts} hosts and Kafka"', "kafka"),
        ('if stage.id == "roll": ...', "roll"),
        ('raise Refused("not after SEAL")', "SEAL"),
    ],
)
def test_a_planted_name_of_a_playbook_is_found(planted: str, word: str) -> None:
    assert names_in(planted) == {word}
    assert names_in(f'"""Such as {word}."""\nstands, join = "done", ", ".join') == set()
