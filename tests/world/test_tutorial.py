"""The tutorial's commands, in its order, over the model world: each ends as the page says where it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.world.site import INVENTORY
from tests.world.test_plan_cli import Desk
from tests.world.test_screen import PATIENT

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-move.md"
ELSEWHERE = ("lab", "init")
"""Verbs that need hosts; tests/lab does them."""
ASKS = ("run", "resume", "rollback")


def commands() -> list[tuple[list[str], int]]:
    """The calls of the tool in the page's ``sh`` blocks, without those for hosts only, and how each ends:
    with 0 where no comment behind it says otherwise."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("zkmigrate ")]
    calls = []
    for line in lines:
        call, _, said = line.partition("#")
        code = re.fullmatch(r" ends with (\d+)", said)
        calls.append((call.split()[1:], int(code[1]) if code else 0))
    return [(call, code) for call, code in calls if call[0] not in ELSEWHERE]


def test_every_command_of_the_tutorial_works_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    desk = Desk(tmp_path)
    desk.file.write_text(INVENTORY + PATIENT)
    verbs = []
    for call, code in commands():
        words = [word.replace("kafka-1", "world-1") for word in call]
        # The window has deadlines: there the world's time must not run away from a loaded machine.
        desk.environ["WORLD_SPEED"] = "1" if {"rehearse", "cutover"} & set(words) else "20"
        # What the page answers by hand; the model world has no terminal.
        done = desk.call(*words, *(["--yes"] if words[0] in ASKS else []))
        assert done.exit_code == code, f"{call}: {done.output}"
        verbs.append(words[0])
    assert {"preflight", "plan", "run", "hold", "release", "rollback", "watch", "report"} <= set(verbs)
    last = json.loads((tmp_path / "runs" / "world-1" / "journal.jsonl").read_text().splitlines()[-1])
    assert "is complete" in json.dumps(last)
