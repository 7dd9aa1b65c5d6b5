"""``--json`` over the model world: what resume, rollback and status tell of hosts that answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.world.build import PROPERTIES, SOURCE_CONFIG
from tests.world.model.world import new_world
from tests.world.site import INVENTORY, WorldSite
from zkmigrate.cli.main import cli
from zkmigrate.inventory.inventory import Inventory, load


def test_resume_rollback_and_status_tell_all_in_json(tmp_path: Path) -> None:
    file = tmp_path / "migration.yml"
    file.write_text(INVENTORY)
    world = new_world(load(file), PROPERTIES, SOURCE_CONFIG)

    def call(*words: str) -> list[dict[str, Any]]:
        def site(inventory: Inventory, run: str) -> WorldSite:
            return WorldSite(inventory, run, world)

        environ = {"ZKMIGRATE_RUNS": str(tmp_path / "runs"), "WORLD_SPEED": "20"}
        done = CliRunner().invoke(cli, [*words, "-i", str(file), "--json"], obj=site, env=environ)
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    call("run", "--yes", "--until", "install")
    resumed = call("resume", "--yes", "--until", "join")
    assert (resumed[0]["event"], resumed[0]["resumed"], resumed[0]["way"]) == ("RunBegun", True, "forward")
    assert (resumed[-1]["event"], resumed[-1]["code"]) == ("RunEnded", 0)
    [told] = call("status")
    assert (told["state"], told["done"][-1]) == ("open", "join.join")
    assert {host: said["phase"] for host, said in told["hosts"].items()} == dict.fromkeys(
        ("dest1", "dest2", "dest3"), "idle"
    )
    back = call("rollback", "--yes")
    assert (back[0]["event"], back[0]["way"]) == ("RunBegun", "back")
    assert [e["way"] for e in back if e["event"] == "Turned"] == ["back"]
    assert (back[-1]["code"], back[-1]["message"]) == (0, "back at the beginning: asked by the operator")
    assert call("status")[0]["state"] == "back"
