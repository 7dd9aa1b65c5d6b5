"""A paramiko transport that sends nothing on a channel after it has closed that channel.

When a command ends while its input is still being sent, the host closes the channel, and paramiko's own
thread answers at once. Another thread may have built data or EOF just before. That message then goes out
after the answer (paramiko issue 1115). OpenSSH receives a packet for a channel that does not exist and ends
the connection, with everything that runs on it. This is likely on a slow machine. Here the answer waits until
such a message has been sent.
"""

from __future__ import annotations

from typing import Any

import paramiko


class OrderedTransport(paramiko.Transport):
    """A transport whose channels are :class:`OrderedChannel`."""

    def open_channel(self, *args: Any, **kwargs: Any) -> paramiko.Channel:
        channel = super().open_channel(*args, **kwargs)
        channel.__class__ = OrderedChannel  # paramiko names the class of its channels nowhere else
        return channel


class OrderedChannel(paramiko.Channel):
    """A channel that delays its close until pending data and EOF have been sent.

    As everywhere in this package, one thread at a time sends data and EOF; any thread may close the channel.
    sending: whether data or EOF has been built and is not sent yet. late: whether the channel must be closed
    once that message is sent. ``lock`` guards ``sending`` and ``late``.
    """

    sending = False
    late = False

    def shutdown(self, how: int) -> None:
        """End one direction or both, like the method of ``paramiko.Channel``."""
        if how in (0, 2):
            super().shutdown(0)
        if how in (1, 2):
            with self.lock:
                message = self._send_eof()  # type: ignore[attr-defined]
                self.sending = message is not None
            self._out([message])

    def _wait_for_send_window(self, size: int) -> int:
        # With the lock held; paramiko makes the message of data next.
        size = int(super()._wait_for_send_window(size))  # type: ignore[misc]
        self.sending = size > 0
        return size

    def _send(self, s: bytes, m: paramiko.Message) -> int:
        try:
            return int(super()._send(s, m))  # type: ignore[misc]
        finally:
            self._out([])

    def _close_internal(self) -> tuple[paramiko.Message | None, paramiko.Message | None]:
        # With the lock held.
        if self.sending:
            self.late = True
            return None, None
        first, second = super()._close_internal()  # type: ignore[misc]
        return first, second

    def _out(self, messages: list[paramiko.Message | None]) -> None:
        """Send these messages, then carry out a close that waited for them to be sent."""
        try:
            self._to_host(messages)
        finally:
            with self.lock:
                self.sending = False
                closing = self._close_internal() if self.late else (None, None)
            self._to_host(list(closing))

    def _to_host(self, messages: list[paramiko.Message | None]) -> None:
        for message in messages:
            if message is not None:
                self.transport._send_user_message(message)  # type: ignore[union-attr]
