"""The carrier of late frames: source's wait, all others pass, and no order is changed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.namespaces import own
from tests.unit.zkm_net import eventually, need_root
from zkmigrate.lab.network import inside

SOURCE, OTHER, DEST = (
    bytes.fromhex("02000a47000b"),
    bytes.fromhex("02000a470028"),
    bytes.fromhex("02000a470015"),
)
# An EtherType for local experiments (IEEE 802), so that nothing else on the taps is taken for ours.
KIND = bytes.fromhex("88b5")


@dataclass
class Carrier:
    """Two taps with the carrier between them; what is put on one end is read on the other."""

    figure: Path
    far: socket.socket
    near: socket.socket

    def waits(self, milliseconds: int) -> None:
        """Delay source's frames by so much. Never does an empty file stand there, as in the lab."""
        part = self.figure.with_suffix(".part")
        part.write_text(f"{milliseconds}\n")
        part.rename(self.figure)

    def says(self, text: str, mac: bytes, far: bool = True) -> None:
        """One frame onto the far end (source's side), or the near one."""
        end = self.far if far else self.near
        end.send(DEST + mac + KIND + text.encode().ljust(50))

    def hears(self, far: bool = False) -> str:
        """The next frame of ours that comes out at an end."""
        end = self.far if far else self.near
        while True:
            frame, (_, _, direction, *_) = end.recvfrom(2000)
            if frame[12:14] == KIND and direction != socket.PACKET_OUTGOING:
                return frame[14:].decode().strip()


@pytest.fixture
def carrier(tmp_path: Path) -> Iterator[Carrier]:
    need_root()
    name = own()
    figure = tmp_path / "ms"
    figure.write_text("0\n")
    subprocess.run(["ip", "netns", "add", name], check=True)
    argv = [sys.executable, "-m", "zkmigrate.lab.delay", "far", "near", str(figure), SOURCE.hex(":")]
    process = subprocess.Popen(["ip", "netns", "exec", name, *argv])
    try:

        def up() -> bool:
            links = ["link set far up", "link set near up"]
            batch = ["ip", "-n", name, "-batch", "-"]
            return (
                subprocess.run(batch, input="\n".join(links), text=True, capture_output=True).returncode == 0
            )

        eventually("the taps are there", up)
        ends = []
        with inside(name):
            for tap in ("far", "near"):
                end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(int(KIND.hex(), 16)))
                end.bind((tap, int(KIND.hex(), 16)))
                end.settimeout(20)
                ends.append(end)
        yield Carrier(figure, *ends)
        for end in ends:
            end.close()
    finally:
        process.terminate()
        process.wait(10)
        subprocess.run(["ip", "netns", "delete", name], check=True)


def test_only_source_is_late_and_what_waits_is_not_overtaken(carrier: Carrier) -> None:
    carrier.says("at once", SOURCE)
    assert carrier.hears() == "at once"

    carrier.waits(500)
    carrier.says("probe", SOURCE)
    carrier.says("other", OTHER)
    heard = [carrier.hears(), carrier.hears()]
    while heard == ["probe", "other"]:  # the carrier had not looked at the new figure yet
        carrier.says("probe", SOURCE)
        carrier.says("other", OTHER)
        heard = [carrier.hears(), carrier.hears()]
    assert heard == ["other", "probe"]

    carrier.says("first", SOURCE)
    carrier.waits(0)
    carrier.says("second", SOURCE)
    carrier.says("mine", SOURCE, far=False)
    assert carrier.hears(far=True) == "mine", "what the host sends is never held"
    assert [carrier.hears(), carrier.hears()] == ["first", "second"]
