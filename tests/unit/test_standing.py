"""The lines of ``status``: what is told of steps that are done, and of those that were."""

from __future__ import annotations

from pathlib import Path

from tests.unit.test_report import Run
from zkmigrate import books, standing


def test_what_the_rehearsal_took_is_told_once_it_is_walked_back(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step("preflight.preflight", "begin")
    run.step("preflight.preflight", "done", seconds=3.0)
    for way, took in (("forward", 1.25), ("back", 0.5)):
        run.step("rehearse.fence", "begin", way)
        run.clock.pass_(took)
        run.step("rehearse.fence", "done", way, seconds=took)
    run.journal.close()
    body = standing.of_run(run.dir, books.load(books.DEFAULT), ("d1", "b1"), run.clock)
    lines = standing.lines(body)
    assert "  done  preflight.preflight (3.00 s)" in lines
    assert "  took  rehearse.fence (1.25 s, back 0.50 s)" in lines
    assert not [line for line in lines if line.startswith("  done  rehearse")]
