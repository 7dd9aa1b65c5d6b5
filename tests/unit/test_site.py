"""The site of the documents: every page in its navigation, no link into nothing, nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_repository import headings

ROOT = Path(__file__).resolve().parents[2]


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "setup" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SITE = loaded()
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
PAGES = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]


def leaves(nav: list[Any]) -> list[str]:
    return [
        page
        for one in nav
        for page in ([one] if isinstance(one, str) else leaves([p for part in one.values() for p in part]))
    ]


def test_every_page_is_in_the_navigation_once_by_its_reader() -> None:
    nav = SITE.navigation([*PAGES, "project.md", "how-to/new.md", "explanation/new.md"])
    assert sorted(leaves(nav)) == sorted([*PAGES, "project.md", "how-to/new.md", "explanation/new.md"])
    assert [one if isinstance(one, str) else next(iter(one)) for one in nav] == [
        "README.md", "Before", "The night", "After", "Reference", "Why", "Code",
    ]  # fmt: skip
    assert "how-to/new.md" in nav[1]["Before"]
    assert nav[1]["Before"][0].startswith("tutorial/")
    assert nav[2]["The night"][0] == "how-to/move.md"
    assert "explanation/new.md" in nav[5]["Why"]
    decisions = [page for page in PAGES if page.startswith("adr/")]
    assert sorted(nav[5]["Why"][-1]["Decisions"]) == sorted(decisions)


def test_links_are_those_of_the_site() -> None:
    text = (
        "[a](../tour.md#x) [b](../../zkmigrate/errors.py) [c](../../README.md#try-it) [d](#here) "
        "[e](../adr/) [f](https://example.org/x)\n```\n[g](../../zkmigrate/errors.py)\n```\n"
    )
    assert SITE.moved(text, "docs/how-to/move.md") == (
        "[a](../tour.md#x) [b](../code/zkmigrate/errors.py.txt) [c](../project.md#try-it) [d](#here) "
        "e [f](https://example.org/x)\n```\n[g](../../zkmigrate/errors.py)\n```\n"
    )
    assert SITE.moved("[a](docs/tour.md)", "README.md") == "[a](tour.md)\n"
    with pytest.raises(ValueError, match="links to zkmigrate/nowhere"):
        SITE.moved("[a](../zkmigrate/nowhere.py)", "docs/tour.md")


def test_lists_are_indented_for_python_markdown() -> None:
    text = "1. One\n   more\n\n   ```yaml\n   a:\n     - b\n\n   ```\n\n```\n  code\n```\n"
    assert SITE.indented(text) == (
        "1. One\n    more\n\n\n        a:\n          - b\n\n\n\n```\n  code\n```\n"
    )


def test_anchors_are_those_that_a_forge_makes() -> None:
    for path in DOCUMENTS:
        titles = re.findall(r"^#+ +(.+?) *$", path.read_text(), re.MULTILINE)
        assert {SITE.anchor(title, "-") for title in titles} == headings(path)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<script src="js/x.js"></script><a href="https://example.org/">x</a>', []),
        ('<script async src="https://example.org/x.js"></script>', ["https://example.org/x.js"]),
        ('<link rel="stylesheet" href="//example.org/x.css">', ["//example.org/x.css"]),
        ("@font-face { src: url('https://example.org/f.woff') }", ["https://example.org/f.woff"]),
        ("@font-face { src: url(../fonts/f.woff) }", []),
    ],
)
def test_what_a_page_fetches_from_elsewhere_is_found(page: str, found: list[str]) -> None:
    assert SITE.fetched(page) == found


@pytest.mark.parametrize(
    ("name", "text"), [("x.html", '<img src="//e.org/x.png">'), ("x.css", "url(//e.org/x)")]
)
def test_a_site_that_is_not_whole_by_itself_is_refused(tmp_path: Path, name: str, text: str) -> None:
    config = SimpleNamespace(site_dir=str(tmp_path))
    (tmp_path / "code.txt").write_text(text)
    SITE.on_post_build(config)
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=rf"{name} fetches //e\.org/x"):
        SITE.on_post_build(config)
