"""The command line in this process, over one model world that stays."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from click.testing import CliRunner, Result

from tests.world.build import PROPERTIES, SOURCE_CONFIG
from tests.world.model.look import WorldLook
from tests.world.model.world import World, new_world
from tests.world.site import INVENTORY, WorldSite
from zkmigrate.cli.main import cli
from zkmigrate.inventory.inventory import Inventory, load
from zkmigrate.runbook.model.look import Look


class Desk:
    """An operator's folder and a world, a new one if none is given. environ: for each call."""

    def __init__(self, folder: Path, world: World | None = None, **environ: str) -> None:
        self.file = folder / "migration.yml"
        self.file.write_text(INVENTORY)
        self.world = world or new_world(load(self.file), PROPERTIES, SOURCE_CONFIG)
        self.runs = folder / "runs"
        self.environ = {"ZKMIGRATE_RUNS": str(self.runs), **environ}

    def call(self, *words: str, unreachable: frozenset[str] = frozenset()) -> Result:
        """Run one verb; hosts named ``unreachable`` answer no look."""

        def site(inventory: Inventory, run: str) -> WorldSite:
            made = WorldSite(inventory, run, self.world)
            made.look = cast(Look, WorldLook(self.world, unreachable))
            return made

        return CliRunner().invoke(cli, [*words, "-i", str(self.file)], obj=site, env=self.environ)
