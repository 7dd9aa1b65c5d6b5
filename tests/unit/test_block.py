"""The rules that ``plan`` shows are the ones that zkm-host itself says it would make."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.zkm_net import Dest, net
from zkmigrate.hostside import block

PRINT = ("--print",)


@pytest.fixture
def dest(tmp_path: Path) -> Iterator[Dest]:
    with net() as made:
        yield Dest(tmp_path, made)


def spec(dest: Dest, cut: str) -> str:
    return base64.b64decode(dest.spec(cut=cut, cut_ports=PORTS)).decode()


def printed(dest: Dest, verb: str, *arguments: str) -> list[str]:
    """What ``--print`` says, without blank lines."""
    answer = dest.call(verb, "p", *arguments, options=PRINT)
    assert answer.rc == 0, answer
    return [line for line in answer.lines() if line]


def value(dest: Dest, key: str) -> str:
    """A value that the program itself put into the armed host's spec."""
    lines = (dest.directory / "spec").read_text().splitlines()
    return next(line.partition("=")[2] for line in reversed(lines) if line.startswith(f"{key}="))


CUTS = pytest.mark.parametrize("cut", ["zookeeper", "all"])
PORTS = "2181,2888,3888"


@CUTS
def test_arm_lines_are_what_arm_prints(dest: Dest, cut: str) -> None:
    said = printed(dest, "arm", dest.spec(cut=cut, cut_ports=PORTS))
    ports = next(line for line in said if "--dports" in line).split("--dports ")[1].split()[0]
    made = block.arm_lines(spec(dest, cut), "00000000", ports)
    assert said[: len(made)] == list(made)
    assert not any(line.startswith(("-", "add", "create")) for line in said[len(made) :])


@CUTS
def test_fence_and_cut_lines_are_what_they_print(dest: Dest, cut: str) -> None:
    dest.armed(cut=cut, cut_ports=PORTS)
    tag = hashlib.sha256(dest.run_id.encode()).hexdigest()[:8]
    fence = block.fence_lines(spec(dest, cut), 4500, tag, value(dest, "own"))
    said = printed(dest, "fence", "4500")
    assert [line for line in said if line in fence] == list(fence)
    assert not [line for line in said if line.startswith(("add", "ss")) and line not in fence]
    dest.do("fence", "60000")
    made = block.cut_lines(spec(dest, cut), 2000, tag, value(dest, "ssh_ports"))
    said = printed(dest, "cut", "2000")
    assert [line for line in said if line in made] == list(made)
    assert not [line for line in said if line.startswith(("add", "ss")) and line not in made]
