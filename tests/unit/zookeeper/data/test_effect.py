"""What a transaction does: every reader that follows the tree against a plain one, over random logs."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.memory_files import BytesDirectory
from tests.unit.zkdata_fixtures import OPEN_ACL, create_payload, log_from, payload, set_payload, text
from zkmigrate.spark.sources.columns import table
from zkmigrate.spark.sources.operations import Stretch
from zkmigrate.spark.sources.stretches import record_starts
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.contents import contents
from zkmigrate.zookeeper.data.delta import delta
from zkmigrate.zookeeper.data.effect import (
    CONTAINER_OWNER,
    TTL_OWNER,
    Owned,
    is_session,
    operations,
    owner_of,
    path_changes,
)
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.sums import read_sums
from zkmigrate.zookeeper.data.tree import load_tree
from zkmigrate.zookeeper.data.txn import (
    CreateContainerTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteTxn,
    SetACLTxn,
    SetDataTxn,
    decode_txn,
)
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE
from zkmigrate.zookeeper.facts.ownership import Ownership, apply_records

ROOT = "/k"
PATHS = ("/k", "/k/a", "/k/b", "/k/a/x", "/k/a/y", "/kk", "/o", "/o/a")
SESSIONS_SEEN = (0x11, 0x22, 0x33)
CREATES = {"plain": 1, "ephemeral": 15, "container": 19, "ttl": 21}


@dataclass
class Server:
    """A server as plain as can be: what is there and whose, and the log that it writes."""

    log: list[bytes] = field(default_factory=list)
    there: dict[str, int] = field(default_factory=dict)
    """path → ephemeralOwner"""
    touched: set[int] = field(default_factory=set)
    """Zxids that changed something at or under ROOT, or deleted what is above it."""

    def able(self, name: str) -> list[str]:
        """The paths at which this may be asked for."""
        if name in CREATES:
            parents = {"", *(path for path, owner in self.there.items() if owner in (0, CONTAINER_OWNER))}
            return [p for p in PATHS if p not in self.there and p.rpartition("/")[0] in parents]
        if name == "delete":
            return [p for p in self.there if not any(other.startswith(p + "/") for other in self.there)]
        return list(self.there)

    def done(self, name: str, path: str, session: int) -> tuple[int, bytes]:
        """An operation, as it is logged."""
        if name in CREATES:
            owners = {"plain": 0, "ephemeral": session, "container": CONTAINER_OWNER, "ttl": TTL_OWNER + 7}
            self.there[path] = owners[name]
            body = create_payload(0, path, ephemeral=name == "ephemeral", cversion=-1)[32:]
            if name in ("container", "ttl"):  # these have no flag for ephemerals
                body = body[:-5] + body[-4:]
            return CREATES[name], body + (struct.pack(">q", 7) if name == "ttl" else b"")
        if name == "delete":
            del self.there[path]
            return 2, text(path)
        if name == "set":
            return 5, set_payload(0, path, b"new")[32:]
        if name == "acl":
            return 7, text(path) + OPEN_ACL + struct.pack(">i", 1)
        return 13, text(path) + struct.pack(">i", 0)

    def write(self, kind: int, body: bytes, session: int, paths: list[str]) -> None:
        zxid = len(self.log) + 1
        self.log.append(payload(zxid, kind, body, session))
        if any(path == ROOT or path.startswith(ROOT + "/") for path in paths):
            self.touched.add(zxid)

    def close(self, session: int, named: bool) -> None:
        paths = [path for path, owner in self.there.items() if owner == session]
        for path in paths:
            del self.there[path]
        body = struct.pack(">i", len(paths)) + b"".join(map(text, paths)) if named else b""
        self.write(-11, body, session, paths)

    @property
    def owners(self) -> dict[int, tuple[str, ...]]:
        return {
            session: tuple(sorted(paths))
            for session in SESSIONS_SEEN
            if (paths := [p for p, owner in self.there.items() if owner == session and Chroot(ROOT).holds(p)])
        }


# A name, and a number that picks one of the paths at which it may be asked for.
one = st.tuples(st.sampled_from([*CREATES, "set", "check", "delete"]), st.integers(0, 7))
alone = st.tuples(st.sampled_from([*CREATES, "set", "acl", "delete"]), st.integers(0, 7))
sessions = st.sampled_from(SESSIONS_SEEN)
steps: st.SearchStrategy[tuple[str, int, list[tuple[str, int]]]] = st.one_of(
    st.tuples(st.just("single"), sessions, st.lists(alone, min_size=1, max_size=1)),
    st.tuples(st.just("single"), sessions, st.lists(alone, min_size=1, max_size=1)),
    st.tuples(st.sampled_from(["multi", "multi", "failed"]), sessions, st.lists(one, min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["named", "unnamed", "open", "error"]), sessions, st.just([])),
)
Asked = list[tuple[str, int, list[tuple[str, int]]]]


def served(asked: Asked) -> Server:
    """What a server makes of these requests; those that it would refuse are left out."""
    server = Server()
    server.write(*server.done("plain", ROOT, 1), 1, [ROOT])
    for kind, session, parts in asked:
        if kind in ("named", "unnamed"):
            server.close(session, kind == "named")
        elif kind in ("open", "error"):
            server.write(-10 if kind == "open" else -1, struct.pack(">i", 6000), session, [])
        else:
            _request(server, kind, session, parts)
    return server


def _request(server: Server, kind: str, session: int, parts: list[tuple[str, int]]) -> None:
    before = dict(server.there)
    done, changed = [], []
    for name, number in parts:
        if able := server.able(name):
            path = able[number % len(able)]
            done.append(server.done(name, path, session))
            changed += [path] if name != "check" else []
    if not done:
        return
    if kind == "single":
        server.write(*done[0], session, changed)
        return
    packed = [struct.pack(">ii", number, len(body)) + body for number, body in done]
    if kind == "failed":
        server.there, changed = before, []
        packed.append(struct.pack(">iii", -1, 4, -110))
    server.write(14, struct.pack(">i", len(packed)) + b"".join(packed), session, changed)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=5, max_size=40))
def test_every_reader_comes_to_what_a_plain_server_comes_to(asked: Asked) -> None:
    server = served(asked)
    logs = BytesDirectory({"log.1": log_from(server.log)})
    inside = {path: owner for path, owner in server.there.items() if Chroot(ROOT).holds(path)}
    tree = load_tree(logs, chroot=Chroot(ROOT))
    assert {path: node.ephemeral_owner for path, node in tree.nodes.items()} == inside
    assert tree.owners == read_sums(logs, chroot=Chroot(ROOT)).owners == server.owners
    owned = Owned(Chroot(ROOT))
    for made in server.log:
        owned.take(decode_txn(made))
    assert owned.owners == server.owners
    state = apply_records(Ownership(Chroot(ROOT), 0, 0), walk(logs))
    assert state.owners == server.owners
    assert state.newest == max(server.touched)
    missing = delta(logs, chroot=Chroot(ROOT), after=0, upto=None, owners={}).missing
    assert {found.zxid for found in missing if found.type != "createSession"} == server.touched
    held: dict[str, bool] = {}
    for content in contents(logs, logs, root=ROOT, upto=len(server.log)):
        held[content.path] = content.there
    assert {path for path, there in held.items() if there} == inside.keys()


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=5, max_size=40))
def test_the_columns_say_of_the_same_log_what_operations_say(asked: Asked) -> None:
    server = served(asked)
    log = log_from(server.log)
    rows = table(Stretch("s", "log.1", 0, log, record_starts(log, FILE_HEADER_SIZE)[0])).to_pylist()
    in_columns = [
        (row["zxid"], row["type"], row["path"], row["ephemeral_owner"])
        for row in rows
        if not row["failed"] and row["path"] is not None and row["type"] != "check"
    ]
    said: list[tuple[int, str, str, int | None]] = []
    for txn in map(decode_txn, server.log):
        for kind, body in operations(txn):
            match body:
                case CreateTxn() | CreateContainerTxn() | CreateTTLTxn():
                    owner = owner_of(body, txn.header.session)
                    said.append((txn.header.zxid, kind.name, body.path, owner))
                case DeleteTxn() | SetDataTxn() | SetACLTxn():
                    said.append((txn.header.zxid, kind.name, body.path, None))
    assert in_columns == said
    changed = [(c.type.name, c.path) for made in server.log for c in path_changes(decode_txn(made))]
    assert changed == [(kind, path) for _, kind, path, _ in said]


def test_an_ephemeral_has_the_session_that_made_it_last() -> None:
    """As over a fuzzy snapshot: the znode is there already, of a session that made it later."""
    owned = Owned.from_owners({0x22: ["/e"]}, Chroot("/"))
    owned.take(decode_txn(create_payload(1, "/e", ephemeral=True, session=0x11)))
    assert owned.owners == {0x11: ("/e",)}
    owned.drop("/e")
    assert owned.owners == {}


def test_an_ephemeral_of_others_is_not_kept() -> None:
    owned = Owned(Chroot("/k"))
    owned.take(decode_txn(create_payload(1, "/kk", ephemeral=True)))
    assert owned.owners == {}


@pytest.mark.parametrize(
    ("owner", "session"),
    [
        (0, False), (1, True), ((1 << 63) - 1, True), (CONTAINER_OWNER, False), (CONTAINER_OWNER + 1, True),
        (TTL_OWNER - 1, True), (TTL_OWNER, False), (TTL_OWNER | 1000, False), (-1, False),
    ],
)  # fmt: skip
def test_which_owners_are_sessions(owner: int, session: bool) -> None:
    """By the bytes that EphemeralType looks at: ff on top marks a TTL, 80 and zeros a container."""
    assert is_session(owner) is session
    raw = owner.to_bytes(8, "big", signed=True)
    assert session is (owner != 0 and raw[0] != 0xFF and raw != b"\x80" + bytes(7))


def test_a_ttl_is_marked_by_its_high_byte() -> None:
    made = CreateTTLTxn("/t", b"", (), -1, 1000)
    assert owner_of(made, 5).to_bytes(8, "big", signed=True) == b"\xff\0\0" + (1000).to_bytes(5, "big")


@pytest.mark.parametrize(
    ("path", "chroot", "part"),
    [
        ("/zookeeper/quota", Chroot("/"), False), ("/zookeeper", Chroot("/zookeeper"), True),
        ("/zookeeperx", Chroot("/"), True), ("/", Chroot("/"), True), ("/kk", Chroot("/k"), False),
        ("/k/a", Chroot("/k"), True), ("/k", Chroot("/k"), True), ("/a", Chroot("/", ("a", "b")), True),
        ("/b/c/d", Chroot("/", ("a", "b")), True), ("/c", Chroot("/", ("a", "b")), False),
        ("/aa", Chroot("/", ("a", "b")), False), ("/", Chroot("/", ("a", "b")), False),
        ("/zookeeper", Chroot("/", ("a", "b")), False),
    ],
)  # fmt: skip
def test_which_znodes_are_part_of_a_chroot(path: str, chroot: Chroot, part: bool) -> None:
    assert chroot.holds(path) is part
