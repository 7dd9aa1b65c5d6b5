"""Checks of JAAS files: the users and passwords with which servers and clients log in.

Joining proves one direction only: after the cut-over the dest hosts log in to each other, in both roles.
Passwords are compared as keyed digests (:mod:`zkmigrate.keyed_digest`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from zkmigrate.move.facts.secured import Secured
from zkmigrate.move.preflight.check import ALWAYS, Judged, Scope, check, unseen, why
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.preflight.security import (
    clients_use_sasl,
    quorum_sections,
    quorum_uses_sasl,
    section_names,
)
from zkmigrate.runbook.model.fact import Absent, NotHeard, Reading, Seen, Unknown
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.data.jaas import Section

NO_SASL = "no SASL"
_EMPTY = Section((), {})
_READ = "let the ssh account read it"


def settings_of(secured: Secured) -> Mapping[str, str]:
    """Return the settings of a host; empty if they could not be read."""
    return secured.values.value if isinstance(secured.values, Seen) else {}


def sections_of(secured: Secured) -> Mapping[str, Section]:
    """Return the sections of a host's JAAS file; empty if it could not be read."""
    return secured.jaas.value if isinstance(secured.jaas, Seen) else {}


@check("source.jaas", "the JAAS file of the source host can be read", Scope.SOURCE, ALWAYS)
def source_jaas(_c: Context, e: Evidence) -> Iterator[Judged]:
    """Clients log in to dest with the users of source's JAAS files. Without those files nobody knows whether
    dest has the same users and passwords. zkmigrate reads source with the ssh account's own rights.

    To do: Let the ssh account read the file. Or compare the files of source and dest yourself, and accept
    source.jaas for this host.
    """
    moves = (_READ, "or compare the files of source and dest yourself, and accept source.jaas for this host")
    for host in e.source_config:
        secured = e.secured[host]
        names = section_names(settings_of(secured))
        needed = f"readable sections {', '.join(names)}" if names else "a readable config"
        if not isinstance(secured.values, Seen):
            yield unseen(secured.values, needed, host)
        elif not names:
            yield Judged(True, NO_SASL, "no SASL, or a JAAS file that can be read", host)
        elif not isinstance(secured.jaas, Seen):
            yield _unread(secured.jaas, needed, host, moves)
        else:
            lost = [name for name in names if name not in secured.jaas.value]
            seen = f"no section {', '.join(lost)}" if lost else f"sections {', '.join(names)}"
            yield Judged(not lost, seen, needed, host, ("find out how this server logs in", *moves[1:]))


def _unread(reading: Absent | Unknown, needed: str, host: str, moves: tuple[str, ...]) -> Judged:
    """Return that the file cannot be read. It is unknown, and nobody can accept it, if the host is silent."""
    silent = isinstance(reading, Unknown) and reading.cause in get_args(NotHeard)
    return unseen(reading, needed, host) if silent else Judged(False, why(reading), needed, host, moves)


@check("dest.jaas", "dest's JAAS files let every server and every client of source log in", Scope.DEST,
       ALWAYS)  # fmt: skip
def dest_jaas(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. A dest host that joined has proved only that it can log in to source. After the cut-over each dest
    host logs in to each other one. So the user of every host's QuorumLearner must be in every other host's
    QuorumServer, with the same password. Each user of source's section Server must be in dest's, with the
    same password: otherwise brokers lose their sessions.

    To do: Give all dest hosts the sections, users and passwords that the finding names, as on source.
    """
    moves = ("correct this host's JAAS file: the sections, users and passwords that source has",)
    for host, secured in _dest(e).items():
        names = section_names(settings_of(secured))
        needed = f"sections {', '.join(names)}, with the users and passwords of source and of all dest hosts"
        if not isinstance(secured.values, Seen):
            yield unseen(secured.values, needed, host)
        elif not names:
            yield Judged(True, NO_SASL, "no SASL, or the users and passwords of source", host)
        elif isinstance(secured.jaas, Absent):
            seen = "its JVM flags name no JAAS file (-Djava.security.auth.login.config)"
            yield Judged(False, seen, needed, host, (f"name the file in the JVM flags of {host}", *moves))
        elif not isinstance(secured.jaas, Seen):
            yield unseen(secured.jaas, needed, host, moves)
        else:
            yield _compared(e, host, names, needed, moves)


def _dest(e: Evidence) -> dict[str, Secured]:
    return {host: e.secured[host] for host in e.dest_config}


def _compared(e: Evidence, host: str, names: tuple[str, ...], needed: str, moves: tuple[str, ...]) -> Judged:
    secured, sections = e.secured[host], sections_of(e.secured[host])
    lost = [name for name in names if name not in sections]
    if lost:
        return Judged(False, f"no section {', '.join(lost)}", needed, host, moves)
    wrong = dict.fromkeys([*_quorum_mistakes(e, host), *_client_mistakes(e, host)])
    if wrong:
        return Judged(False, "; ".join(wrong), needed, host, moves)
    unclear = [f"{key} in section {name}" for name in names for key in sections[name].expanded]
    if unclear:
        seen = f"Java takes a value from a system property: {', '.join(unclear)}"
        return Judged(None, seen, needed, host, ("write the value itself into the JAAS file",))
    unread = [one for one in e.source_config if not isinstance(e.secured[one].jaas, Seen)]
    users = [*sections[names[0]].users] if clients_use_sasl(settings_of(secured)) else []
    seen = f"sections {', '.join(names)}" + (f"; users of clients: {', '.join(users)}" if users else "")
    seen += f"; not compared with {', '.join(unread)}, which source.jaas reports" if unread else ""
    return Judged(True, seen, needed, host)


def _quorum_mistakes(e: Evidence, host: str) -> Iterator[str]:
    """Yield why servers could not log in to this host, or this host not to source."""
    own = settings_of(e.secured[host])
    if not quorum_uses_sasl(own):
        return
    server, learner = quorum_sections(own)
    sections = sections_of(e.secured[host])
    if sections[learner].user is None or sections[learner].password is None:
        yield f"section {learner} has no username or no password"
    for other, secured in e.secured.items():
        if other == host or not quorum_uses_sasl(settings_of(secured)):
            continue
        theirs, (table, login) = sections_of(secured), quorum_sections(settings_of(secured))
        yield from refused(sections[server], server, theirs.get(login, _EMPTY), other)
        if other in e.source_config and table in theirs:
            yield from refused(theirs[table], f"{table} of {other}", sections[learner], host)


def refused(table: Section, where: str, login: Section, who: str) -> Iterator[str]:
    """Yield why a server with this table refuses this login. where, who: names of both for the text."""
    if login.user is None or login.password is None:
        return
    if login.user not in table.users:
        yield f"section {where} lacks the user {login.user!r}, with whom {who} logs in"
    elif table.users[login.user] != login.password:
        yield f"section {where} has another password for {login.user!r} than {who}"


def _client_mistakes(e: Evidence, host: str) -> Iterator[str]:
    """Yield which clients could not log in to this host."""
    own = settings_of(e.secured[host])
    if not clients_use_sasl(own):
        return
    name = section_names(own)[0]
    users = sections_of(e.secured[host])[name].users
    read = [one for one in e.source_config if isinstance(e.secured[one].jaas, Seen)]
    # Without source's files the dest hosts can at least be compared with each other.
    for other in read or [one for one in e.dest_config if one != host]:
        theirs = settings_of(e.secured[other])
        table = sections_of(e.secured[other]).get(
            section_names(theirs)[0] if clients_use_sasl(theirs) else ""
        )
        for user, password in table.users.items() if table else ():
            if user not in users:
                yield f"section {name} lacks the user {user!r} of {other}"
            elif users[user] != password:
                yield f"section {name} has another password for {user!r} than {other}"


def table_of_clients(secured: Secured) -> Reading[Mapping[str, str]]:
    """Return the users with whom clients can log in to a server, with the digests of their passwords."""
    if not isinstance(secured.values, Seen):
        return secured.values
    if not isinstance(secured.jaas, Seen):
        return secured.jaas
    if not clients_use_sasl(secured.values.value):
        return Absent("no SASL of clients")
    return Seen(secured.jaas.value.get(section_names(secured.values.value)[0], _EMPTY).users)


CHECKS = (source_jaas, dest_jaas)
