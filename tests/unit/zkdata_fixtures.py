"""Recorded ZooKeeper directories, and small logs built byte by byte."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import cramjam

from tests.memory_files import BytesDirectory

RECORDED = Path(__file__).parent.parent / "recorded" / "zk"
VERSIONS = tuple(sorted(path.parent.name for path in RECORDED.glob("*/expected.json")))
LOG_HEADER = b"ZKLG" + struct.pack(">iq", 2, 0)
OPEN_ACL = struct.pack(">iii", 1, 31, 5) + b"world" + struct.pack(">i", 6) + b"anyone"


def recorded_files(version: str, kind: str) -> dict[str, bytes]:
    """The files of one recorded `version-2`, as they stood but for the length of the logs' padding."""
    return {
        path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes())
        for path in (RECORDED / version / kind).iterdir()
    }


def recorded(version: str, kind: str) -> BytesDirectory:
    return BytesDirectory(recorded_files(version, kind))


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">i", len(raw)) + raw


def payload(
    zxid: int, kind: int, body: bytes, session: int = 0x77, cxid: int = 1, time_ms: int = 1000
) -> bytes:
    return struct.pack(">qiqqi", session, cxid, zxid, time_ms, kind) + body


def create_payload(
    zxid: int,
    path: str,
    data: bytes = b"d",
    *,
    ephemeral: bool = False,
    session: int = 0x77,
    cversion: int = 1,
) -> bytes:
    body = (
        text(path) + struct.pack(">i", len(data)) + data + OPEN_ACL + struct.pack(">?i", ephemeral, cversion)
    )
    return payload(zxid, 1, body, session)


def record(data: bytes) -> bytes:
    return struct.pack(">qi", zlib.adler32(data), len(data)) + data + b"B"


def log_from(payloads: Iterable[bytes]) -> bytes:
    return LOG_HEADER + b"".join(record(data) for data in payloads)


def build_log(first: int, count: int, path: str = "/kafka/n") -> bytes:
    """A log of creates with consecutive zxids from `first`."""
    return log_from(create_payload(zxid, f"{path}{zxid}") for zxid in range(first, first + count))


def set_payload(zxid: int, path: str, data: bytes, version: int = 1) -> bytes:
    """A setData of one znode."""
    return payload(zxid, 5, text(path) + struct.pack(">i", len(data)) + data + struct.pack(">i", version))


def delete_payload(zxid: int, path: str) -> bytes:
    return payload(zxid, 2, text(path))


def acl_payload(zxid: int, path: str, version: int = 1, session: int = 0x77) -> bytes:
    """A setACL: it leaves no zxid in the tree."""
    return payload(zxid, 7, text(path) + OPEN_ACL + struct.pack(">i", version), session)


def close_payload(zxid: int, session: int, paths: Sequence[str] | None = None, cxid: int = 0) -> bytes:
    """A closeSession. paths None: as 3.4 and 3.5 log it."""
    named = b"" if paths is None else struct.pack(">i", len(paths)) + b"".join(map(text, paths))
    return payload(zxid, -11, named, session, cxid)


def multi_payload(zxid: int, *operations: bytes, session: int = 0x77) -> bytes:
    """operations: payloads, of which the type and the body count."""
    parts = b"".join(one[28:32] + struct.pack(">i", len(one) - 32) + one[32:] for one in operations)
    return payload(zxid, 14, struct.pack(">i", len(operations)) + parts, session)


def snapshot_of(nodes: Mapping[str, bytes]) -> bytes:
    """A sealed snapshot of the root and these znodes, parents first, all open to everybody."""
    listed = b"".join(
        text(path) + struct.pack(">i", len(data)) + data + struct.pack(">q", -1) + bytes(60)
        for path, data in {"": b"", **nodes}.items()
    )
    body = struct.pack(">4siqii", b"ZKSN", 2, -1, 0, 0) + listed + text("/")
    return body + struct.pack(">q", zlib.adler32(body)) + text("/")


def pack_snappy(data: bytes, block: int = 32 << 10) -> bytes:
    """As snappy-java's SnappyOutputStream writes it."""
    parts = [bytes(cramjam.snappy.compress_raw(data[at : at + block])) for at in range(0, len(data), block)]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(p)) + p for p in parts)
