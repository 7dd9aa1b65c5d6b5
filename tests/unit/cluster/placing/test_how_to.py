"""The examples of the how-to pages: each command over the page's cluster prints what the page shows.

``python -m tests.unit.cluster.placing.test_how_to`` writes the outputs anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from zkmigrate.cli.main import cli
from zkmigrate.cluster.placement.check import sets_of

HOW_TO = Path(__file__).resolve().parents[4] / "docs" / "how-to"
PAGES = ("full-disk.md", "move-off-a-rack.md")
EXAMPLE = re.compile(r"```json\n(.*?)```\n\n```sh\nzkmigrate (.*?)\n```\n\n```\n(.*?)```\n", re.DOTALL)


def shown(page: str) -> tuple[str, str, str]:
    """The cluster, the command and the output of a page."""
    found = EXAMPLE.search((HOW_TO / page).read_text())
    assert found is not None
    return found[1], found[2], found[3]


def printed(cluster: str, command: str) -> str:
    """What the command prints in this folder."""
    Path("cluster.json").write_text(cluster)
    done = CliRunner().invoke(cli, command.split())
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_its_command_prints(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster, command, output = shown(page)
    assert printed(cluster, command) == output, "python -m tests.unit.cluster.placing.test_how_to"
    assert sets_of((tmp_path / "plan.json").read_text()) != {}


def test_a_rack_that_goes_away_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed(*shown("move-off-a-rack.md")[:2])
    assert all(3 not in replicas for replicas in sets_of((tmp_path / "plan.json").read_text()).values())


def test_replication_is_raised_and_nothing_else_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = shown("move-off-a-rack.md")[0]
    raised = "placement rebuild --cluster cluster.json --replication 4 --placement storage --out plan.json"
    printed(cluster, raised)
    made = sets_of((tmp_path / "plan.json").read_text())
    for one in json.loads(cluster)["partitions"]:
        replicas = made[one["topic"], one["partition"]]
        assert list(replicas[:3]) == one["replicas"]
        assert len(replicas) == 4


def _write_anew() -> None:
    import os
    import tempfile

    for page in PAGES:
        cluster, command, output = shown(page)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            now = printed(cluster, command)
            os.chdir("/")
        path, before, after = HOW_TO / page, f"```\n{output}```\n", f"```\n{now}```\n"
        text = path.read_text()
        at = text.index("\n```\n\n" + before) + len("\n```\n\n")
        path.write_text(text[:at] + after + text[at + len(before) :])


if __name__ == "__main__":
    _write_anew()
