"""What a model source does with the changes of a replay: each transaction once, bound to what it finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.memory_files import BytesDirectory
from tests.world.model.disk import Transaction, Tree, replay
from tests.world.model.ensemble import Ensemble
from zkmigrate.errors import HostError
from zkmigrate.move.facts.replay_disks import Reader
from zkmigrate.zookeeper.changes import BeginReplay, EndReplay, Replaying
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.replay import Again, Count, Create, Delete, Mark, Request, SetData, marker_of
from zkmigrate.zookeeper.data.zxid import parse_zxid

OPERATOR = 0x100000000000002
"""The session of whoever replays."""


def alter(
    source: Ensemble,
    disks: Mapping[str, Mapping[str, bytes]],
    chroot: Chroot,
    change: Replaying,
    lost_behind: int = 0,
) -> tuple[int, str]:
    """Carry one change out; exit code and output. disks: of the dest hosts. HostError behind so many
    transactions as ``lost_behind`` says."""
    path = marker_of(chroot)
    node = source.tree().znodes.get(path)
    if isinstance(change, EndReplay):
        if node is not None:
            source.commit("delete", OPERATOR, path)
        return 0, "the mark is removed"
    files = BytesDirectory(disks[change.disk])
    reader, cut = Reader(chroot, lambda _host: (files, files)), parse_zxid(change.cut)
    if isinstance(change, BeginReplay):
        if node is None:
            mark = Mark(cut, reader.begin(change.disk, cut), change.consent)
            source.commit("create", OPERATOR, path, mark.encode())
        return 0, "the mark is there"
    if node is None:
        return 1, f"{path} is not there"
    mark = Mark.decode(node.data, node.version, node.czxid)
    upto = parse_zxid(change.upto)
    transactions = reader.read(change.disk, cut, mark.done, upto) if mark.done < upto else []
    if mark.done < upto and (not transactions or transactions[-1][1] != change.fingerprint):
        return 1, "that is not what was planned"
    for number, (again, fingerprint) in enumerate(transactions):
        if lost_behind and number == lost_behind:
            raise HostError("source was lost")
        if why := _unfit(source.tree(), again):
            return 1, why
        for request in again.requests:
            _request(source, request)
        source.commit("set", OPERATOR, path, Mark(again.zxid, fingerprint, mark.consent).encode())
    return 0, "done"


def _unfit(tree: Tree, again: Again) -> str:
    """Why source refuses a transaction, empty where it takes it. Model transactions have one request each."""
    for request in again.requests:
        there = tree.znodes.get(request.path)
        match request:
            case Create() | Count():
                fits = there is None
            case Delete() | SetData():
                fits = there is not None and there.version == request.version
            case _:
                fits = False
        if not fits:
            return f"{type(request).__name__} {request.path}: source is not as dest was there"
    return ""


def _request(source: Ensemble, request: Request) -> None:
    match request:
        case Create():
            source.commit("create", OPERATOR, request.path, request.data or b"")
        case Count():
            source.commit("create", OPERATOR, request.path)
            source.commit("delete", OPERATOR, request.path)
        case Delete():
            source.commit("delete", OPERATOR, request.path)
        case SetData():
            source.commit("set", OPERATOR, request.path, request.data or b"")


def unlike(source: Ensemble, dest: Iterable[Transaction], chroot: Chroot) -> str:
    """The first znode below the chroot that stays and is not the same on both; empty where none is."""
    ours, theirs = _staying(source.tree(), chroot), _staying(replay(dest), chroot)
    return next((path for path in sorted(ours | theirs) if ours.get(path) != theirs.get(path)), "")


def _staying(tree: Tree, chroot: Chroot) -> dict[str, tuple[bytes, int, int]]:
    return {
        path: (node.data, node.version, node.cversion)
        for path, node in tree.znodes.items()
        if chroot.holds(path) and path not in (chroot.path, marker_of(chroot)) and not node.owner
    }
