"""The commands of pages to follow, in their order, over the model world: each ends as the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.world.desk import Desk
from tests.world.site import INVENTORY
from tests.world.test_screen import PATIENT

DOCS = Path(__file__).resolve().parents[2] / "docs"
ELSEWHERE = ("lab", "init")
"""Verbs that need hosts; tests/lab does them."""
ASKS = ("run", "resume", "rollback")


def commands(page: Path) -> list[tuple[list[str], int]]:
    """The calls of the tool in the page's ``sh`` blocks, without those for hosts only, and how each ends:
    with 0 where no comment behind it says otherwise."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("zkmigrate ")]
    calls = []
    for line in lines:
        call, _, said = line.partition("#")
        call = call.partition(" > ")[0]
        code = re.fullmatch(r" ends with (\d+)", said)
        calls.append((call.split()[1:], int(code[1]) if code else 0))
    return [(call, code) for call, code in calls if call[0] not in ELSEWHERE]


@pytest.mark.parametrize(
    ("page", "verbs"),
    [
        ("tutorial/first-move.md", {"preflight", "plan", "run", "hold", "release", "rollback"}),
        ("how-to/unattended.md", {"preflight", "plan", "run", "resume", "report"}),
    ],
)
def test_every_command_of_a_page_works_where_it_stands(
    page: str, verbs: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    desk = Desk(tmp_path)
    desk.file.write_text(INVENTORY + PATIENT)
    done = set()
    for call, code in commands(DOCS / page):
        words = [re.sub(r"(kafka|orders)-1", "world-1", word) for word in call]
        # The window has deadlines: there the world's time must not run away from a loaded machine.
        desk.environ["WORLD_SPEED"] = "1" if {"rehearse", "cutover"} & set(words) else "20"
        # What the page answers by hand; the model world has no terminal.
        missing = ["--yes"] if words[0] in ASKS and "--yes" not in words else []
        ended = desk.call(*words, *missing)
        assert ended.exit_code == code, f"{call}: {ended.output}"
        done.add(words[0])
    assert verbs <= done
    journal = (tmp_path / "runs" / "world-1" / "journal.jsonl").read_text().splitlines()
    last = json.loads(journal[-1])["body"]
    assert last["code"] == 0
    assert ("is complete" in last["message"]) == (page == "tutorial/first-move.md")
