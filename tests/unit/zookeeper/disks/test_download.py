"""The line of `collect` that says how long it will take, by a clock that is given."""

from __future__ import annotations

from zkmigrate.zookeeper.disks.download import Progress


class Given:
    """A clock that goes on only when somebody waits or it is told to."""

    def __init__(self) -> None:
        self.time = 100.0
        self.paused: list[float] = []

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.time += seconds


def test_progress_counts_what_is_left_from_what_came() -> None:
    clock = Given()
    lines: list[str] = []
    progress = Progress(clock, lines.append)
    progress.plan("zk1 log.1", 6_000_000)
    progress.plan("zk1 log.9", 2_000_000)
    with progress.reading("zk1 log.1"):
        progress.read(1_000_000)
        assert lines == []
        clock.time += 4
        progress.read(1_000_000)
        clock.time += 1
        progress.read(1_000_000)
    clock.time += 5
    with progress.reading("zk1 log.9"):  # the rest of the first was padding
        progress.read(1_000_000)
    assert lines == [
        "2.0 MB of at most 8.0 MB read, at most 12 s left; now zk1 log.1",
        "4.0 MB of at most 5.0 MB read, at most 2 s left; now zk1 log.9",
    ]
