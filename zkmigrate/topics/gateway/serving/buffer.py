"""The buffer that all connections share for reading: each copies its bytes out before the next one reads."""

from __future__ import annotations

SIZE, LITTLE, LEAST = 1 << 18, 1 << 14, 1 << 12
VIEW = memoryview(bytearray(SIZE))
FEW, FEWEST = VIEW[:LITTLE], VIEW[:LEAST]
"""Parts of the buffer for connections that may read only a little at a time."""
