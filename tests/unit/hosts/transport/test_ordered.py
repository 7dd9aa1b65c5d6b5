"""The order in which a channel sends data, its end and its close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paramiko
import pytest
from paramiko.common import cMSG_CHANNEL_CLOSE, cMSG_CHANNEL_DATA, cMSG_CHANNEL_EOF

from zkmigrate.hosts.transport.ordered import OrderedChannel

DATA, EOF, CLOSE = (int.from_bytes(one) for one in (cMSG_CHANNEL_DATA, cMSG_CHANNEL_EOF, cMSG_CHANNEL_CLOSE))


class Host:
    """A transport to a host that closes the channel just before a message goes out. sent: their types."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.closes: Callable[[], None] | None = None

    def _send_user_message(self, message: paramiko.Message) -> None:
        if (closes := self.closes) is not None:
            self.closes = None
            closes()
        self.sent.append(message.asbytes()[0])

    def _unlink_channel(self, _id: int) -> None: ...

    def get_log_channel(self) -> str:
        return "test"

    def _sanitize_packet_size(self, size: int) -> int:
        return size


@pytest.mark.parametrize(
    ("send", "order"),
    [
        (lambda channel: channel.send(b"input"), [DATA, EOF, CLOSE]),
        (lambda channel: channel.shutdown_write(), [EOF, CLOSE]),
    ],
    ids=["data", "eof"],
)
def test_what_was_made_before_the_host_closes_goes_out_before_the_answer(
    send: Callable[[Any], None], order: list[int]
) -> None:
    """OpenSSH ends the whole connection for a packet of a channel that is closed."""
    host, channel = Host(), OrderedChannel(1)
    channel._set_transport(host)  # type: ignore[attr-defined]
    channel._set_remote_channel(1, 1 << 16, 1 << 15)  # type: ignore[attr-defined]
    host.closes = lambda: channel._handle_close(None)  # type: ignore[attr-defined]
    send(channel)
    assert host.sent == order
    assert channel.closed
