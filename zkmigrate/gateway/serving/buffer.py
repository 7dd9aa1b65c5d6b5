"""The one buffer into which all connections read: nothing stands in it once a connection was told."""

from __future__ import annotations

SIZE, LITTLE = 1 << 18, 1 << 14
VIEW = memoryview(bytearray(SIZE))
FEW = VIEW[:LITTLE]
"""For connections that are to read little at a time."""
