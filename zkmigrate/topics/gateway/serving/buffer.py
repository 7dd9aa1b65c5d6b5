"""The buffer that all connections share for reading.

Each connection copies its bytes out of the buffer before the next connection reads.
"""

from __future__ import annotations

SIZE, LITTLE, LEAST = 1 << 18, 1 << 14, 1 << 12
VIEW = memoryview(bytearray(SIZE))
FEW, FEWEST = VIEW[:LITTLE], VIEW[:LEAST]
"""Small parts of the buffer, for connections that may read only a little at a time."""
