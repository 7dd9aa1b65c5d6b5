"""The screen of ``zkmigrate preflight``: what is told, in which order and width, and where it stands."""

from __future__ import annotations

import os
import pty
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from tests.unit.move.preflight.test_checks import PROPERTIES, Unreached, both, config, file, kafka, no_file
from tests.unit.move.preflight.test_kafka import tenant
from tests.unit.preflight_world import context, healthy, partition, run_preflight
from tests.world.site import INVENTORY
from zkmigrate.locations import Locations, read_locations
from zkmigrate.runbook.model.finding import AGAIN, Finding, Severity, claim
from zkmigrate.runbook.ui import preflight_view

NOWHERE = Locations("migration.yml")


def troubled() -> tuple[Finding, ...]:
    """Something in every section."""
    world = healthy()
    both(
        kafka(partition(replicas=(1,), isr=(1,))),
        config("autopurge.purgeInterval=0", "autopurge.purgeInterval=1"),
        no_file("broker2", PROPERTIES),
        tenant("source1"),
    )(world)
    return run_preflight(context(), world, "preflight")


def text(findings: tuple[Finding, ...], width: int | None = None, at: Locations = NOWHERE) -> str:
    return "\n".join(line for line, _ in preflight_view.lines(findings, at, width))


def test_every_finding_is_in_one_section_and_in_this_order() -> None:
    findings = troubled()
    counts = preflight_view.tally(findings)
    assert sum(counts.values()) == len(findings)
    assert all(counts.values())
    heads = re.findall(r"^([A-Z]+) \((\d+)\):", text(findings), re.MULTILINE)
    assert heads == [(name.upper(), str(count)) for name, count in counts.items()]


def test_every_check_is_named_once_where_it_belongs() -> None:
    findings = troubled()
    shown = text(findings)
    for f in findings:
        assert f.id in shown
    assert shown.count("kafka.replication:") == 1
    assert shown.index("kafka.replication") < shown.index("kafka.config") < shown.index("source.purge")


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal_or_hard_to_read(width: int) -> None:
    findings = (*troubled(), *run_preflight(context(), Unreached(), "preflight"))
    long = [line for line in text(findings, width).splitlines() if len(line) > min(width, 120)]
    assert long == []


def test_elsewhere_a_line_is_never_broken() -> None:
    lines = text(troubled()).splitlines()
    assert all(re.match(r"[A-Z]|  \S|    (\S+ +| +)\S|$", line) for line in lines)


def test_what_is_the_same_about_several_is_said_once() -> None:
    same = tuple(claim("a.b", "so it is", False, seen="bad", needed="good", target=f"h{n}") for n in (1, 2))
    assert text(same).splitlines()[1:5] == [
        "  a.b: Failed",
        "    h1        bad",
        "    h2        the same",
        "    expected  so it is",
    ]


def test_many_targets_are_counted() -> None:
    each = [claim("a.b", "so", False, seen=f"bad {n}", target=f"h{n}") for n in range(200)]
    assert "and 192 more; --json has all of them" in text(tuple(each))
    same = [replace(f, seen="bad") for f in each]
    assert "and 192 more like this" in text(tuple(same))


def test_the_move_that_all_have_is_said_at_the_end_alone() -> None:
    shown = text(troubled())
    assert AGAIN not in shown
    assert preflight_view.ending(troubled(), "-i m.yml")[-1].endswith("zkmigrate preflight -i m.yml")


def test_where_nothing_blocks_the_next_verb_is_named() -> None:
    findings = run_preflight(context(), healthy(), "preflight")
    ended = preflight_view.ending(findings, "-i m.yml")
    assert ended[0] == f"none of {len(findings)} findings block; 15 run later, {len(findings) - 15} hold"
    assert ended[1].endswith("zkmigrate plan -i m.yml")


def test_while_a_run_is_under_way_its_next_command_is_named_and_no_plan() -> None:
    findings = run_preflight(context(), healthy(), "preflight")
    ended = preflight_view.ending(findings, "-i m.yml", "zkmigrate resume -i m.yml --run-id r1")
    assert ended[1].endswith("zkmigrate resume -i m.yml --run-id r1")
    assert not [line for line in ended if " plan " in line]
    assert preflight_view.ending(troubled(), "-i m.yml", "zkmigrate resume")[-1].endswith(
        "preflight -i m.yml"
    )


def test_unknown_that_only_warns_is_told_so() -> None:
    unsure = claim("a.b", "so", None, seen="no answer", severity=Severity.WARN)
    shown = text((unsure,))
    assert "they warn, and none blocks" in shown
    assert "so        a warning: it does not block" in shown


def test_checks_that_one_look_leaves_unknown_are_one_item_with_its_target() -> None:
    shown = text(troubled())
    assert (
        "  9 checks: kafka.config, kafka.security, kafka.authorizer, kafka.kraft, kafka.log-dirs, "
        "kafka.zookeeper-login, kafka.tls-versions, kafka.trusts-dest, kafka.client\n"
        "    broker2  unknown (denied)" in shown
    )


def test_what_blocks_is_counted_once() -> None:
    assert preflight_view.ending(troubled(), "")[0].startswith("10 of "), "one check false, nine unknown"


def test_hosts_that_are_silent_for_one_reason_are_one_item(tmp_path: Path) -> None:
    findings = run_preflight(context(), Unreached("dest1", "dest2"), "preflight")
    (tmp_path / "m.yml").write_text(INVENTORY)
    shown = text(findings, None, read_locations(tmp_path / "m.yml"))
    assert "  dest1, dest2: no answer (unreachable)\n" in shown
    assert f"cannot connect to it: No route to host ({tmp_path}/m.yml:12,13)" in shown


def test_moves_and_hosts_name_their_line_in_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "night.yml"
    path.write_text(
        INVENTORY.replace("  chroot: /kafka\n", "  chroot: /kafka\n  config: /etc/kafka/s.properties\n")
    )
    found = read_locations(path)
    line = 1 + path.read_text().splitlines().index("  config: /etc/kafka/s.properties")
    assert found.located("correct kafka.config in migration.yml") == f"correct kafka.config in {path}:{line}"
    assert found.located("list the others in migration.yml") == f"list the others in {path}"
    both_keys = found.located("correct kafka.chroot or kafka.cluster_id in migration.yml")
    assert both_keys.endswith(f"in {path}:{line - 2},{line - 1}")
    assert found.located("correct dest.data_dir in migration.yml").endswith(f"in {path}"), (
        "it has no such key"
    )
    assert found.host("broker2") == f"{path}:{line + 3}"
    assert found.host("10.71.0.99") == ""


def test_the_file_is_named_once_whatever_it_is_called(tmp_path: Path) -> None:
    at = Locations("night/migration.yml", {"kafka": 3})
    assert at.located("correct kafka in migration.yml") == "correct kafka in night/migration.yml:3"


@pytest.mark.parametrize(
    ("term", "no_color", "coloured"), [("xterm", "", True), ("xterm", "1", False), ("dumb", "", False)]
)
def test_colour_is_for_a_terminal_that_has_it(
    term: str, no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    ours, theirs = pty.openpty()
    finding = claim("a.b", "so it is", False, seen="bad", moves=("heal it",))
    with os.fdopen(theirs, "w") as out:
        preflight_view.show(out, (finding,), NOWHERE, "-i m.yml")
        out.flush()
        shown = ""
        while "-i m.yml" not in shown:  # a terminal hands over what there is, piece by piece
            shown += os.read(ours, 65536).decode()
    os.close(ours)
    assert ("\x1b[" in re.sub(r"\x1b\[1m|\x1b\[0m", "", shown)) is coloured
    assert "heal it" in shown


def test_a_pipe_gets_neither_colour_nor_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = StringIO()
    preflight_view.show(out, troubled(), NOWHERE, "-i m.yml")
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().startswith(text(troubled()))
    assert out.getvalue().splitlines()[-2:] == preflight_view.ending(troubled(), "-i m.yml")


def test_a_file_that_is_wrong_is_told_with_its_line() -> None:
    world = healthy()
    file("broker1", PROPERTIES, b"broker.id=1\n\nzookeeper.connect=10.71.0.11:2181/other\n")(world)
    shown = text(run_preflight(context(), world, "preflight"))
    assert f"broker1   {PROPERTIES}:3: chroot /other, in the inventory /kafka" in shown
