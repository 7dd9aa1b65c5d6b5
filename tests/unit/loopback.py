"""A TCP server on loopback, for whatever a client is tried against."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def listening(
    serve: Callable[[socket.socket], None], address: str = "127.0.0.1", *, beside: bool = False
) -> Iterator[int]:
    """Its port. serve: is given one client after the other; beside: all at once, each in a thread."""

    def handle(client: socket.socket) -> None:
        with client, suppress(OSError):  # the client had enough
            serve(client)

    def accept() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = listener.accept()
                if beside:
                    threading.Thread(target=handle, args=(client,), daemon=True).start()
                else:
                    handle(client)

    with socket.create_server((address, 0), backlog=50) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
    assert not thread.is_alive(), "the server did not end"
