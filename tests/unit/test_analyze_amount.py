"""What counts as a small analysis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.zkdata_fixtures import build_log
from zkmigrate.analyze import verb
from zkmigrate.analyze.amount import SMALL, SMALL_TREES, is_small, written
from zkmigrate.analyze.asked import Asked, Place
from zkmigrate.analyze.session import Bounds
from zkmigrate.pipeline.files import File


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log as a server leaves it: a few records, then zeros up to more bytes than are small."""
    inside = tmp_path / "zk" / "version-2"
    inside.mkdir(parents=True)
    found = inside / "log.1"
    found.write_bytes(build_log(1, 10))
    with found.open("r+b") as file:
        file.truncate(2 * SMALL)
    return found


def asked(log: Path) -> Asked:
    return Asked((Place("", str(log.parents[1])),))


def test_zeros_that_a_server_keeps_in_advance_do_not_count(log: Path) -> None:
    assert is_small(asked(log))
    assert written(File("zk", str(log), log.stat().st_size)) == len(build_log(1, 10))


@pytest.mark.parametrize(
    ("source", "dest", "small"),
    [
        ((SMALL,), (), True), ((SMALL + 1,), (), False), ((SMALL // 2, SMALL // 2 + 1), (), False),
        ((1,), (SMALL_TREES - 1,), True), ((1,), (SMALL_TREES,), False),
    ],
)  # fmt: skip
def test_all_servers_together_have_to_be_small(
    tmp_path: Path, source: tuple[int, ...], dest: tuple[int, ...], small: bool
) -> None:
    places = []
    for number, size in enumerate((*source, *dest)):
        inside = tmp_path / f"zk{number}" / "version-2"
        inside.mkdir(parents=True)
        with (inside / "log.1").open("wb") as file:
            file.seek(size - 1)
            file.write(b"B")
        places.append(Place("", str(tmp_path / f"zk{number}")))
    asked_for = Asked(tuple(places[: len(source)]), dest=tuple(places[len(source) :]))
    assert is_small(asked_for) is small


def test_a_snapshot_counts_whole(tmp_path: Path) -> None:
    with (tmp_path / "snapshot.1").open("wb") as file:
        file.truncate(SMALL + 1)
    assert not is_small(Asked((Place("", str(tmp_path)),)))


@pytest.mark.parametrize(
    "more",
    [
        {"broker_dirs": ("/b",)}, {"broker_logs": ("/l",)}, {"client_history": ("/h",)},
        {"server_logs": ("/s",)}, {"run": Path("/r")},
    ],
)  # fmt: skip
def test_what_is_not_looked_at_may_be_large(log: Path, more: dict[str, Any]) -> None:
    assert not is_small(replace(asked(log), **more))


def test_a_place_with_nothing_is_left_to_the_job_that_says_so(tmp_path: Path) -> None:
    assert is_small(Asked((Place("", str(tmp_path / "nothing")),)))


def test_the_session_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []

    @contextmanager
    def seen(bounds: Bounds, _hint: verb.Say) -> Iterator[None]:
        told.append(bounds.small)
        yield None

    monkeypatch.setattr(verb, "session", seen)
    verb.analyze((), asked(log), Bounds(), None, print, print, as_json=True)
    verb.analyze((), replace(asked(log), broker_dirs=("/b",)), Bounds(), None, print, print, as_json=True)
    assert told == [True, False]
