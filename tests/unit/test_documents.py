"""What the pages name is there: decisions by number, verbs, options, codes, checks, hooks' moments, keys."""

import re
from collections.abc import Iterable
from pathlib import Path

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
