"""The report of a runbook that has no window."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from tests.unit.engine_world import forward
from tests.unit.runbook.engine.test_cluster_changes import Toy
from zkmigrate.report import page as html
from zkmigrate.report.build import build
from zkmigrate.report.markdown import markdown
from zkmigrate.report.pictures import timeline
from zkmigrate.report.sources import read
from zkmigrate.report.tables import figures, tables


def test_a_report_without_a_window_tells_changes_findings_and_the_end(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "r")
    toy.hosts.wrong = ["lost"]
    assert toy.process(forward).code == 0
    report = build(read(toy.run_dir), toy.playbook)
    assert (report.windows, report.lanes, report.proof, report.lags) == ((), (), None, ())
    assert figures(report) == (
        ("way back", "not taken", "see Decisions"),
        ("refusals and alarms", "0 and 0", "refused steps"),
    )
    assert report.left[-1] == "nothing"
    found = {table.id: table for table in tables(report)}
    assert set(found) == {"decisions", "calls", "steps", "findings", "changes", "digests"}
    on_hosts, on_clusters = (row[-1] for row in found["steps"].rows)
    assert on_hosts == "3 done on 3 hosts"
    assert on_clusters in ("1 unknown, 4 done on 5 targets", "4 done, 1 unknown on 5 targets")
    assert [row[2] for row in found["findings"].rows] == ["tiny.file", "toy.set"]
    [lost] = found["changes"].rows
    assert (lost[3], lost[5]) == ("unknown", "store: the connection broke")
    assert lost[4].startswith(f"set {lost[1]} to new (found: ")
    drawn = [box.attrib["data-state"] for box in ElementTree.fromstring(timeline(report)).iter()
             if "data-state" in box.attrib]  # fmt: skip
    assert drawn == ["main"]
    for text in (markdown(report), html.page(report)):
        assert "toy is complete (exit code 0)" in text
        for word in ("FENCE", "OPEN", "window", "dest", "source", "broker", "ZooKeeper", "roll", "lag"):
            assert not re.search(rf"\b{word}", text), word
