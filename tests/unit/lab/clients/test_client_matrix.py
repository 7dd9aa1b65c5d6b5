"""The client matrix: its cases, its table and its hook."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from zkmigrate.lab.clients import __main__ as client_matrix
from zkmigrate.lab.clients.__main__ import carried_out, main
from zkmigrate.lab.clients.families import Program
from zkmigrate.lab.clients.matrix import Matrix
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.judge.clients import Figures, Row
from zkmigrate.lab.wait import Progress
from zkmigrate.runbook.model.finding import Held

FIGURES = Figures("library 1", 120, 0, 240, 3, 0, 0, 0, 0, 0, 1.25, None, 7)
GOOD = Row("java-2.8.2", FIGURES, Held.YES, "")
BAD = Row(
    "aiokafka", Figures("", 0, 0, 0, 0, None, None, None, None, None, None, None, 0), Held.UNKNOWN, "missing"
)


def test_a_hook_tells_what_it_said_and_fails_with_it() -> None:
    assert carried_out("echo first; echo switched") == "first\nswitched"
    assert carried_out("true") == "the hook ended with exit code 0"
    with pytest.raises(LabError, match="the hook ended with exit code 3: held, not switched"):
        carried_out("echo held, not switched; exit 3")


@pytest.mark.parametrize(("hook", "row", "code"), [("true", GOOD, 0), ("false", GOOD, 1), ("true", BAD, 1)])
def test_the_drill_holds_when_the_hook_and_each_client_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str, row: Row, code: int
) -> None:
    asked: list[Matrix] = []

    def play(
        matrix: Matrix,
        programs: Mapping[str, Program],
        _directory: Path,
        _progress: Progress,
        during: Callable[[], None],
    ) -> list[Row]:
        asked.append(matrix)
        assert list(programs) == ["kafka-python"]
        during()
        return [row]

    monkeypatch.setattr(client_matrix, "play", play)
    words = ["--bootstrap", "h:1", "--client", "kafka-python", "--seconds", "3", "--hook", hook]
    done = CliRunner().invoke(main, [*words, "--directory", str(tmp_path / "out")])
    assert done.exit_code == code, done.output
    assert asked == [Matrix("h:1", seconds=3.0)]
    body = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [case["name"] for case in body["cases"]] == ["hook", row.client]
    assert body["cases"][1]["figures"]["acked"] == row.figures.acked
