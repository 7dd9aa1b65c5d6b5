"""The pictures of the README, from a model run: ``make images``. Needs Chromium."""

from __future__ import annotations

import io
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from tests.world.operator import quiet_world
from tests.world.told import ToldOperator, Written, report_of
from zkmigrate.report.page import page
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.ui.live import LiveView
from zkmigrate.runbook.ui.run_files import PLAN

OUT = Path(__file__).parents[1] / "docs/images"
RUN = "world-1"
WIDTH, HEIGHT, STORY = 100, 40, 9
SIZE = "1112,815"


class Screen(Written):
    """The live screen: drawn once, when the last host is stopped in the cut-over."""

    def __init__(self, operator: ToldOperator) -> None:
        super().__init__(operator)
        self.said, self.svg = io.StringIO(), ""
        views = [sampling.view() for sampling in operator.playbook.sampling]
        self.view = LiveView(self.said, lambda: operator.world.now, clock=lambda: "", views=views)
        self.view._console.width, self.view._console.height = WIDTH, HEIGHT
        self.directory = operator.run_dir

    def append(self, event: events.Event, /) -> None:
        super().append(event)
        self.view(replace(event, run=RUN) if isinstance(event, events.RunBegun) else event)
        if isinstance(event, events.StepEnded) and (event.stage, event.step) == ("cutover", "stop"):
            for line in filter(None, (self.directory / "samples.jsonl").read_text().splitlines()):
                row = json.loads(line)
                self.view.sample(row["mono"], row["kind"], row)
            console = Console(record=True, file=io.StringIO(), width=WIDTH)
            for line in self.said.getvalue().splitlines()[-STORY:]:
                console.print(line, markup=False, highlight=False)
            console.print()
            console.print(self.view._drawn())
            drawn = console.export_svg(title="zkmigrate run")
            self.svg = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.S).replace(
                "Fira Code", "DejaVu Sans Mono"
            )


def main() -> None:
    """Write both."""
    with TemporaryDirectory() as temp:
        operator = ToldOperator(quiet_world(), Path(temp) / "run")
        operator.run_dir.mkdir(mode=0o700)
        (operator.run_dir / PLAN).write_text("{}")
        screen = operator.events = Screen(operator)
        assert operator.forward().code == 0
        (OUT / "screen.svg").write_text(screen.svg)
        made = Path(temp) / "report.html"
        made.write_text(page(replace(report_of(operator), run=RUN, name="world")))
        shot = f"--screenshot={OUT / 'report.png'}"
        quiet = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}"]
        subprocess.run(["chromium", *quiet, shot, made.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
