"""Send the requests of `zookeeper.data.replay` to a live ensemble, each transaction exactly once.

Each transaction is sent exactly once even if the replay is interrupted and started again. A marker znode
under the chroot records the last replayed transaction. The marker is updated in the same multi as the
transaction's requests, and the update expects the marker's own version. So a transaction and its mark succeed
or fail together, and after a failed multi all multis in flight fail too. Only a setACL is not allowed in a
multi: it is sent alone, with nothing in flight. When a replay starts again, it first checks whether the
setACL already had its effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.serialization import Delete as DeleteRequest
from kazoo.protocol.serialization import SetData as SetDataRequest

from zkmigrate.errors import ZkmigrateError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.facts.replay_disks import Reader, reader
from zkmigrate.runbook.model.change import ClusterChange
from zkmigrate.runbook.model.look import Look
from zkmigrate.token_bucket import TokenBucket
from zkmigrate.zookeeper.changes import BeginReplay, EndReplay, ReplayTransactions
from zkmigrate.zookeeper.clients.ensemble import (
    ANSWER_S,
    NOT_ITS_OWN,
    connect,
    from_kazoo,
    named,
    to_kazoo,
)
from zkmigrate.zookeeper.clients.login import Credentials, credentials_of
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.replay import (
    Again,
    Count,
    Create,
    Delete,
    Mark,
    Request,
    SetAcl,
    SetData,
    marker_of,
)
from zkmigrate.zookeeper.data.zxid import format_zxid, parse_zxid

_IN_FLIGHT = 32
_BYTES_IN_FLIGHT = 4 << 20
_RATE = 200.0
"""Transactions per second; the limit spares the other clients of the ensemble."""

_named = partial(named, "source")


class RefusedError(ZkmigrateError):
    """Raised if the ensemble is not in the state that the replay needs.

    The marker shows how far the replay has come.
    """

    exit_code = 6


@dataclass
class Ensemble:
    """A session on the ensemble to which transactions are replayed. Open one with `ensemble`."""

    client: Any
    chroot: Chroot

    def mark(self) -> Mark | None:
        """Return the mark of the replay, or None if the ensemble holds no marker znode.

        Raises RefusedError if the znode with the marker's name is not a marker, and HostError if the ensemble
        does not answer.
        """
        path = marker_of(self.chroot)
        with _named(path):
            try:
                data, stat = self.client.get_async(path).get(timeout=ANSWER_S)
            except NoNodeError:
                return None
        try:
            return Mark.decode(data, stat.version, stat.czxid)
        except ValueError as error:
            raise RefusedError(
                f"{path}: {error}. Next: find the znode's owner, and delete the znode"
            ) from None

    def begin(self, mark: Mark) -> None:
        """Create the marker. Raises RefusedError if it exists already or the chroot does not exist."""
        path = marker_of(self.chroot)
        with _named(path):
            try:
                self.client.create_async(path, mark.encode()).get(timeout=ANSWER_S)
            except NodeExistsError:
                raise RefusedError(f"{path} exists: another replay has begun") from None
            except NoNodeError:
                raise RefusedError(f"{self.chroot} does not exist on source") from None

    def end(self, mark: Mark) -> None:
        """Delete the marker. Raises RefusedError if it has changed."""
        path = marker_of(self.chroot)
        with _named(path):
            try:
                self.client.delete_async(path, version=mark.version).get(timeout=ANSWER_S)
            except (NoNodeError, BadVersionError) as error:
                raise RefusedError(f"{path} was changed by another client: {type(error).__name__}") from None

    def replay(self, transactions: Iterable[tuple[Again, str]], mark: Mark, pace: TokenBucket) -> Mark:
        """Replay the transactions after ``mark.done`` and return the new mark.

        transactions: each transaction with the fingerprint of all requests up to and including it. pace:
        limits the transactions per second. Raises RefusedError at the first transaction that does not fit the
        ensemble's state; no request of that transaction is then carried out. Raises HostError if the
        connection to the ensemble is lost; then only `mark` shows how far the replay has come.
        """
        in_flight = _InFlight(self.client, marker_of(self.chroot), mark)
        for again, fingerprint in transactions:
            pace.take(1)
            if any(isinstance(request, SetAcl) for request in again.requests):
                in_flight.settle()
                self._set_acls(again)
            in_flight.send(again, fingerprint)
        in_flight.settle()
        return in_flight.mark

    def _set_acls(self, again: Again) -> None:
        for request in again.requests:
            if not isinstance(request, SetAcl):
                continue
            with _named(f"{format_zxid(again.zxid)} {request.path}"):
                acls, stat = self.client.get_acls_async(request.path).get(timeout=ANSWER_S)
                if stat.aversion == request.aversion + 1 and from_kazoo(acls) == request.acl:
                    continue  # done before a restart
                try:
                    self.client.set_acls_async(
                        request.path, to_kazoo(request.acl), version=request.aversion
                    ).get(timeout=ANSWER_S)
                except (BadVersionError, NoNodeError) as error:
                    raise RefusedError(_unfit(again, request, error)) from None


@dataclass
class _InFlight:
    """The transactions that were sent but not answered yet, oldest first.

    mark: the mark after the newest transaction that was sent.
    """

    client: Any
    marker: str
    mark: Mark
    _sent: deque[tuple[Again, int, Any]] = field(default_factory=deque)
    _bytes: int = 0

    def send(self, again: Again, fingerprint: str) -> None:
        after = replace(self.mark, done=again.zxid, fingerprint=fingerprint, version=self.mark.version + 1)
        operations = [op for request in again.requests for op in _operations(request)]
        operations.append(SetDataRequest(self.marker, after.encode(), self.mark.version))
        size = sum(len(getattr(op, "data", None) or b"") for op in operations)
        while self._sent and (len(self._sent) >= _IN_FLIGHT or self._bytes + size > _BYTES_IN_FLIGHT):
            self._take_answer()
        multi = TransactionRequest(self.client)
        multi.operations.extend(operations)
        with _named(format_zxid(again.zxid)):
            self._sent.append((again, size, multi.commit_async()))
        self._bytes += size
        self.mark = after

    def settle(self) -> None:
        """Wait for all answers."""
        while self._sent:
            self._take_answer()

    def _take_answer(self) -> None:
        again, size, answer = self._sent.popleft()
        self._bytes -= size
        with _named(format_zxid(again.zxid)):
            results = answer.get(timeout=ANSWER_S)
        if any(isinstance(result, Exception) for result in results):
            raise RefusedError(self._why(again, results))

    def _why(self, again: Again, results: Sequence[object]) -> str:
        """Return why a multi failed, naming the request that caused the failure.

        The errors of the multi's other requests are only consequences of that failure.
        """
        owners = [request for request in again.requests for _ in _operations(request)]
        for request, result in zip(owners, results, strict=False):
            if isinstance(result, Exception) and not isinstance(result, NOT_ITS_OWN):
                return _unfit(again, request, result)
        where = f"{format_zxid(again.zxid)}: {self.marker}"
        return f"{where} was changed by another client. Needed: one replay at a time"


def _unfit(again: Again, request: Request, error: Exception) -> str:
    kind = type(request).__name__
    return (
        f"{format_zxid(again.zxid)}: {kind} {request.path}: {type(error).__name__}. Source differs from what "
        "dest was then; nothing of this transaction was done. Needed: no other writer under the chroot"
    )


def _operations(request: Request) -> list[Any]:
    """Return the operations that a request adds to a multi, or an empty list for a setACL."""
    match request:
        case Create():
            return [CreateRequest(request.path, request.data, to_kazoo(request.acl), 0)]
        case Count():
            made = CreateRequest(request.path, None, to_kazoo(request.acl), 0)
            return [made, DeleteRequest(request.path, 0)]
        case Delete():
            return [DeleteRequest(request.path, request.version)]
        case SetData():
            return [SetDataRequest(request.path, request.data, request.version)]
        case _:
            return []


@contextmanager
def ensemble(servers: Sequence[Server], credentials: Credentials, chroot: Chroot) -> Iterator[Ensemble]:
    """Open a session with one of the servers for the duration of the block.

    Raises HostError if no server accepts the session.
    """
    with connect("source", servers, credentials) as client:
        yield Ensemble(client, chroot)


@dataclass(frozen=True)
class Alter:
    """Sends changes to the ensemble of these servers. Each change uses a new session.

    credentials: how to log in. reader: reads dest's transactions.
    """

    servers: Sequence[Server]
    credentials: Credentials
    reader: Reader

    def __call__(self, change: ClusterChange) -> tuple[int, str]:
        """Send one change as :func:`alter` does."""
        return alter(self.servers, self.credentials, self.reader, change)

    def close(self) -> None:
        """Do nothing: no connection is kept open."""


def alterer(inventory: Inventory, look: Look) -> Alter:
    """Return an object that sends changes to source. look: reads dest's disks."""
    servers = [Server(host.address, inventory.source.ports.door) for host in inventory.source.hosts]
    return Alter(servers, credentials_of(inventory), reader(inventory, look))


def alter(
    servers: Sequence[Server], credentials: Credentials, reader: Reader, change: ClusterChange
) -> tuple[int, str]:
    """Send one change to the ensemble of these servers and return an exit code and a text.

    The code is 0 with the result as text, or 1 with the reason why the change was not, or not completely,
    carried out. credentials: how to log in. reader: reads dest's transactions. Raises HostError if the result
    is not known.
    """
    if not isinstance(change, BeginReplay | ReplayTransactions | EndReplay):
        return 1, f"nothing was sent: {change.describe()} is not a change of an ensemble"
    try:
        with ensemble(servers, credentials, Chroot(change.chroot)) as source:
            return 0, _altered(source, reader, change)
    except (RefusedError, ZkDataError) as error:
        return 1, str(error)


def _altered(source: Ensemble, reader: Reader, change: BeginReplay | ReplayTransactions | EndReplay) -> str:
    mark = source.mark()
    if isinstance(change, EndReplay):
        if mark is not None:
            source.end(mark)
        return "the mark is removed"
    cut = parse_zxid(change.cut)
    if isinstance(change, BeginReplay):
        if mark is None:
            source.begin(Mark(cut, reader.begin(change.disk, cut), change.consent))
        return "the mark is there"
    if mark is None:
        raise RefusedError(f"{marker_of(source.chroot)} does not exist: no replay has begun")
    upto = parse_zxid(change.upto)
    if mark.done >= upto:
        return f"{mark.version} transactions are replayed"
    transactions = reader.read(change.disk, cut, mark.done, upto)
    if not transactions or transactions[-1][1] != change.fingerprint:
        raise RefusedError(
            f"the disk of {change.disk} does not hold the planned transactions up to "
            f"{change.upto}; nothing was sent"
        )
    return f"{source.replay(transactions, mark, TokenBucket(_RATE, 1)).version} transactions are replayed"
