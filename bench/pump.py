"""Pass bytes between clients and a broker without parsing them: ``python -m bench.pump OWN BROKER``.

Both arguments are ``host:port``. This is the floor for a proxy on Python's fastest event loop. The gateway's
cost above it is its own work.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

VIEW = memoryview(bytearray(1 << 18))
"""The buffer that all connections share for reading."""


class End(asyncio.BufferedProtocol):
    """One of the two connections of a client.

    other: the connection that gets the bytes that this one reads.
    """

    def __init__(self, other: End | None = None) -> None:
        self._other = other
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(0)

    def get_buffer(self, _hint: int) -> memoryview:
        return VIEW

    def buffer_updated(self, count: int) -> None:
        if self._other is not None:
            self._other._transport.write(VIEW[:count].tobytes())

    def pause_writing(self) -> None:
        if self._other is not None:
            self._other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._other is not None:
            self._other._transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        if self._other is not None:
            self._other._transport.close()


class Client(End):
    """The connection of a client.

    It keeps what it reads until its broker has accepted the other connection.
    """

    def __init__(self, broker: tuple[str, int]) -> None:
        super().__init__()
        self._broker, self._kept = broker, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._task = asyncio.get_running_loop().create_task(self._reach())

    async def _reach(self) -> None:
        loop = asyncio.get_running_loop()
        _, self._other = await loop.create_connection(lambda: End(self), *self._broker)
        self._other._transport.write(self._kept)

    def buffer_updated(self, count: int) -> None:
        if self._other is None:
            self._kept += VIEW[:count]
        super().buffer_updated(count)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def _serve(own: str, broker: str) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Client(_place(broker)), *_place(own))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(*sys.argv[1:]))
