"""The buffer that all connections share for reading: each copies its bytes out before the next one reads."""

from __future__ import annotations

SIZE, LITTLE = 1 << 18, 1 << 14
VIEW = memoryview(bytearray(SIZE))
FEW = VIEW[:LITTLE]
"""The part of the buffer for connections that may read only a little at a time."""
