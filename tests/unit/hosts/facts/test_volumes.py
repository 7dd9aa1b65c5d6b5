"""What ``df -Pk`` says of volumes, in the words of GNU and of BusyBox."""

from __future__ import annotations

import pytest

from zkmigrate.hosts.facts.volumes import parse
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.look import Volume

HEAD = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n"
SDB = "/dev/sdb1           1000000   250000    700000      27% /data 1\n"


def test_each_path_has_the_volume_of_its_line() -> None:
    text = f"{HEAD}{SDB}{SDB}//nas/my share 2000000 0 2000000 0% /data/2\noverlay 5 5 0 - /\n"
    first = Volume("/data 1", 1_024_000_000, 716_800_000)
    assert parse(text, ["/data 1/a", "/data 1/b", "/data/2", "/x"]) == Seen(
        {
            "/data 1/a": first,
            "/data 1/b": first,
            "/data/2": Volume("/data/2", 2_048_000_000, 2_048_000_000),
            "/x": Volume("/", 5120, 0),
        }
    )


@pytest.mark.parametrize(
    "text", ["", HEAD, f"{HEAD}{SDB}{SDB}", f"{HEAD}/dev/sdb1 1000000 250000 - 27% /data\n"]
)
def test_an_answer_that_does_not_fit_the_question_is_garbled(text: str) -> None:
    told = parse(text, ["/data"])
    assert isinstance(told, Unknown)
    assert told.cause == "garbled"
    assert "about /data" in told.why
