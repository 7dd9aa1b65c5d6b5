"""Delete znodes that have not changed since they were read, and create them again, with kazoo."""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError

from zkmigrate.zookeeper.changes import Kept, mark
from zkmigrate.zookeeper.clients.ensemble import ANSWER_S, NOT_ITS_OWN, named, to_kazoo
from zkmigrate.zookeeper.data.txn import Acl

_STAYS = {
    BadVersionError: "was changed after it was read, so it was not deleted",
    NotEmptyError: "has a child that was not read, so it was not deleted",
    NoAuthError: "may not be deleted by this client, because of an ACL",
}


def delete(ensemble: str, client: KazooClient, nodes: Sequence[Kept]) -> tuple[int, str]:
    """Delete znodes in one transaction. nodes: children before their parents.

    ensemble: the ensemble's name for messages. Returns 0 and a text that says how many znodes were deleted.
    Returns 1 and the reason if none was deleted: a znode was changed, is protected by an ACL, or has a child
    that is not in ``nodes``. Raises HostError if the outcome is unknown.
    """
    while True:
        with named(ensemble, nodes[0][0]):
            try:
                found = _found(client, nodes)
            except NoAuthError:
                return 1, f"{nodes[0][0]} {_STAYS[NoAuthError]}"
            if isinstance(found, str):
                return 1, found
            if not found:
                return 0, "the znodes no longer exist"
            multi = client.transaction()
            for path, version in found:
                multi.delete(path, version=version)
            results = multi.commit_async().get(timeout=ANSWER_S)
        wrong = [
            (path, result)
            for (path, _), result in zip(found, results, strict=False)
            if isinstance(result, Exception) and not isinstance(result, NOT_ITS_OWN)
        ]
        if not wrong:
            return 0, f"{len(found)} of {len(nodes)} znodes were deleted, the others no longer existed"
        path, error = wrong[0]
        if not isinstance(error, NoNodeError):  # otherwise somebody deleted it a moment ago: look again
            return 1, f"{path} {_STAYS.get(type(error), f'could not be deleted: {type(error).__name__}')}"


def _found(client: KazooClient, nodes: Sequence[Kept]) -> list[tuple[str, int]] | str:
    """Return path and version of each znode that still exists.

    If a znode was changed after it was read, return a text instead that says so.
    """
    found = []
    sent = [(path, wanted, client.exists_async(path)) for path, _, _, wanted in nodes]
    for path, wanted, answer in sent:
        stat = answer.get(timeout=ANSWER_S)
        if stat is not None and mark(stat) != wanted:
            return f"{path} was changed or created again after it was read, so it was not deleted"
        found += [] if stat is None else [(path, stat.version)]
    return found


def create(ensemble: str, client: KazooClient, nodes: Sequence[Kept]) -> tuple[int, str]:
    """Create znodes again, the last one first. Existing znodes are not changed.

    Returns 0 and a text that says how many znodes were created, or 1 and the reason why a znode could not be
    created. Raises HostError if the outcome is unknown.
    """
    sent = [
        (path, client.create_async(path, data, acl=to_kazoo(Acl(*one) for one in acl)))
        for path, data, acl, _ in reversed(nodes)
    ]
    made = 0
    for path, answer in sent:
        with named(ensemble, path):
            try:
                answer.get(timeout=ANSWER_S)
                made += 1
            except NodeExistsError:
                continue
            except NoNodeError:
                return 1, f"{path} could not be created, because its parent no longer exists"
            except NoAuthError:
                return 1, f"no ACL lets this client create {path}"
    return 0, f"{made} znodes were created; {len(nodes) - made} already existed and were not changed"
