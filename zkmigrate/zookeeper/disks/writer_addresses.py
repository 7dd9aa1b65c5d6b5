"""The command ``writers``: list the sessions that wrote under a chroot, and their clients' addresses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from zkmigrate.clean import inline
from zkmigrate.json_stamp import stamped
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.zookeeper.clients.admin import allowed_word
from zkmigrate.zookeeper.clients.login import Credentials
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.four_letter_words import WordError, parse_cons
from zkmigrate.zookeeper.data.log_writers import Writer, WriterList, writers
from zkmigrate.zookeeper.data.session import format_session, unsigned
from zkmigrate.zookeeper.data.sums import read_sums
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.data.zoocfg import ADMIN_PORT
from zkmigrate.zookeeper.disks.location import Disks, Place, open_disk
from zkmigrate.zookeeper.disks.progress import ProgressLines

ANSWER_S = 5.0
_PLACES = 3


def print_writers(
    disks: Disks,
    data: Place,
    log: Place | None,
    servers: Sequence[Server],
    credentials: Credentials,
    say: Callable[[str], None],
    hint: Callable[[str], None],
    *,
    chroot: Chroot,
    hours: float | None,
    largest: int,
    as_json: bool,
) -> int:
    """Print the sessions that wrote under the chroot, and return 0.

    log: see `open_disk`. servers: the servers that are queried with ``cons`` for the addresses of connected
    sessions. hint: receives progress, and the failures of servers that did not answer. hours: how far to read
    back; None for all. largest: the largest accepted record in bytes. Raises the errors of `open_disk`.
    """
    limit = max(largest, MAX_RECORD)
    progress = ProgressLines(hint).of()
    with open_disk(disks, data, log) as side:
        owners = read_sums(side.data, side.logs, chroot=chroot, max_record=limit).owners
        span = None if hours is None else round(hours * 3_600_000)
        result = writers(
            side.logs,
            chroot=chroot,
            span_ms=span,
            owners=owners,
            max_record=limit,
            tell=lambda done: progress("transactions", done, None),
        )
    at = addresses(servers, credentials, hint)
    say(json.dumps(stamped(body(result, at))) if as_json else text(result, at, queried=bool(servers)))
    return 0


def addresses(
    servers: Sequence[Server], credentials: Credentials, hint: Callable[[str], None]
) -> Mapping[int, str]:
    """Return the client's address of each session (unsigned) that is now connected to one of the servers."""
    result: dict[int, str] = {}
    for server in servers:
        answer = allowed_word(server.host, server.port, ADMIN_PORT, "cons", ANSWER_S, credentials)
        if not isinstance(answer, Seen):
            hint(f"{server}: cannot read client addresses: {answer}")
            continue
        try:
            listed = parse_cons(answer.value)
            result |= {unsigned(c.session): c.address for c in listed if c.session is not None}
        except WordError as error:
            hint(f"{server}: cannot read client addresses: {error}")
    return result


def body(result: WriterList, at: Mapping[int, str]) -> dict[str, Any]:
    """Return the result as JSON values.

    Times are milliseconds since 1970; None means unknown.
    """
    return {
        **result.chroot.body(),
        "since_ms": result.since_ms or None,
        "until_ms": result.until_ms or None,
        "records": result.records,
        "under_chroot": result.under,
        "gaps": [str(gap) for gap in result.gaps],
        "writers": [_writer(one, at) for one in result.writers],
    }


def _writer(one: Writer, at: Mapping[int, str]) -> dict[str, Any]:
    return {
        "session": format_session(one.session),
        "broker": one.broker,
        "is_broker": one.is_broker,
        "address": at.get(unsigned(one.session)),
        "changes": one.changes,
        "first_ms": one.first_ms,
        "last_ms": one.last_ms,
        "ended_ms": one.ended_ms,
        "timeout_ms": one.timeout_ms,
        "types": dict(one.types.most_common()),
        "places": dict(one.places.most_common()),
        "last_path": one.last_path,
    }


def text(result: WriterList, at: Mapping[int, str], *, queried: bool) -> str:
    """Return the result as text for the operator: two lines for each writer, brokers last."""
    others = [one for one in result.writers if not one.is_broker]
    brokers = [one for one in result.writers if one.is_broker]
    span = (
        f"{_format_time(result.since_ms)} to {_format_time(result.until_ms)}" if result.records else "nothing"
    )
    lines = [
        f"{result.under} of {result.records} transactions changed {result.chroot} ({span}): "
        f"{len(brokers)} {'session' if len(brokers) == 1 else 'sessions'} of brokers, {len(others)} of others"
    ]
    for one in (*others, *brokers):
        known = f"broker {one.broker}" if one.broker is not None else "a broker, judging by its writes"
        who = known if one.is_broker else "not a broker"
        where = at.get(unsigned(one.session)) or ("not connected to the queried servers" if queried else "")
        ended = f", ended {_format_time(one.ended_ms)}" if one.ended_ms else ""
        lines += [
            f"{format_session(one.session)} {who}{f', {where}' if where else ''}: {one.changes} changes, "
            f"last {_format_time(one.last_ms)}{ended}",
            f"    {inline(one.places_text(_PLACES))}",
        ]
    lines += [f"the log has a gap, so writers may be missing: {gap}" for gap in result.gaps]
    return "\n".join(lines)


def _format_time(ms: int | None) -> str:
    return datetime.fromtimestamp((ms or 0) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
