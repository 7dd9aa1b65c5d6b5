"""Checks of ZooKeeper's settings: those with which dest will start, and those that source and dest must
share.

A setting is in zoo.cfg or in the JVM's flags (:func:`zkmigrate.zookeeper.facts.config.setting`). Sources of
keys and defaults: QuorumPeerConfig, the administrator's guide, and the classes that the comments name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from zkmigrate.keyed_digest import is_secret
from zkmigrate.move.facts.secured import without_secrets
from zkmigrate.move.preflight.check import ALWAYS, JOINED, Judged, Scope, check, unseen, why
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.rules.reform import observer_config, reformed_config
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Severity
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.zoocfg import parse_zoocfg, settings
from zkmigrate.zookeeper.facts.config import ADDRESS_SETTINGS, ZooConfig, is_one_host, setting
from zkmigrate.zookeeper.facts.members import Members

WORDS = ("srvr", "mntr", "cons", "dump")
"""The four-letter words that a move sends to every ZooKeeper server."""

_YES, _NO = frozenset({"true", "yes"}), frozenset({"false", "no", ""})

SHARED = {
    # EphemeralType, 3.5.4: without it an owner with 0xff or 0x80 on top is a session, not a TTL or container.
    "extendedTypesEnabled": "false",
    # ZooKeeperServer, 3.6: the digest of the tree in log and snapshot.
    "digest.enabled": "true",
    # ZooKeeperServer: ACLs are not checked at all.
    "skipACL": "no",
}
"""The settings that decide how data is read or who may see it, with ZooKeeper's defaults."""

LOCAL = ("localSessionsEnabled", "localSessionsUpgradingEnabled")


def dest_settings(c: Context) -> ZooConfig:
    """Return ``dest.settings`` as a config without servers."""
    return ZooConfig(c.inventory.dest.settings, {})


def on(value: str | None) -> bool:
    """Return whether a switch with this value is on.

    Only yes and true switch it on; Java's parseBoolean accepts only true.
    """
    return value is not None and value.lower() in _YES


def _same(one: str, other: str) -> bool:
    for words in (_YES, _NO):
        if one.lower() in words:
            return other.lower() in words
    return one == other


def _sides(e: Evidence, host: str) -> Judged | None:
    """Return an unknown verdict if a config or JVM flags of source or dest could not be read, else None."""
    readings: list[tuple[str, Reading[object]]] = [(f"{host}'s JVM flags", e.dest_flags[host])]
    readings += [(f"{h}'s config", r) for h, r in e.source_config.items()]
    readings += [(f"{h}'s JVM flags", r) for h, r in e.source_flags.items()]
    lost = next(((what, r) for what, r in readings if not isinstance(r, Seen)), None)
    if lost is None:
        return None
    what, reading = lost
    if reading is e.dest_flags[host]:
        return unseen(reading, "configs and JVM flags of source and dest", host)
    return Judged(None, f"{what}: {why(reading)}", "configs and JVM flags of source and dest", host)


def _of_source(e: Evidence, key: str, default: str) -> dict[str, str]:
    """Return source host → its effective value of the setting ``key``.

    Hosts whose settings could not be read are left out. default: the value if the setting is missing.
    """
    found = {}
    for host, config in e.source_config.items():
        flags = e.source_flags[host]
        if isinstance(config, Seen) and isinstance(flags, Seen):
            found[host] = setting(config.value, flags.value, key) or default
    return found


@check("dest.same-flags", "source and dest have the same settings for interpreting data",
       Scope.DEST, ALWAYS)  # fmt: skip
def same_flags(c: Context, e: Evidence) -> Iterator[Judged]:
    """P12, P19. A server that does not know TTL znodes, or that checks ACLs where source did not, reads
    the same data differently. The check compares extendedTypesEnabled, digest.enabled and skipACL.

    To do: Set the flag in dest.settings as source has it.
    """
    for host, flags in e.dest_flags.items():
        own = flags.value if isinstance(flags, Seen) else {}
        wrong = []
        for key, default in SHARED.items():
            mine = setting(dest_settings(c), own, key) or default
            others = _of_source(e, key, default)
            if not all(_same(mine, value) for value in others.values()):
                on_source = ", ".join(f"{h} {value}" for h, value in others.items())
                wrong.append(f"{key}: this host {mine}, {on_source}")
        moves = ("set the key in dest.settings as source has it",)
        if wrong and isinstance(flags, Seen):
            yield Judged(False, "; ".join(wrong), "the same as on every source host", host, moves)
        else:
            seen = Judged(True, f"{', '.join(SHARED)} as on source", "the same", host)
            yield _sides(e, host) or seen


@check("source.local-sessions", "local sessions are off on source and on dest", Scope.SOURCE, ALWAYS)
def local_sessions(c: Context, e: Evidence) -> Iterator[Judged]:
    """P10. Only the server of a local session knows it, and no log holds it. So dest cannot take the session
    over, and its client begins a new session in the window. Nobody has drilled that, so zkmigrate refuses
    it.

    To do: Do not move this ensemble with zkmigrate. On dest: remove the setting from dest.settings.
    """
    own = [key for key in LOCAL if on(c.inventory.dest.settings.get(key, "").strip())]
    for host, config in e.source_config.items():
        if not isinstance(config, Seen):
            yield unseen(config, "a readable config", host)
            continue
        found = [f"{key} here" for key in LOCAL if on(config.value.values.get(key, "").strip())]
        moves = (
            ("do not move this ensemble with zkmigrate yet",)
            if found
            else ("remove the setting from dest.settings",)
        )
        found += [f"{key} in dest.settings" for key in own]
        yield Judged(not found, ", ".join(found) or "neither key", "none of these keys", host, moves)


def _number_above(limit: int) -> Callable[[str], bool]:
    return lambda value: value.isdecimal() and int(value) > limit


def _is(*values: str) -> Callable[[str], bool]:
    return lambda value: value.lower() in values


AGAINST: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    (
        "forceSync",
        _is("no", "false"),
        "a power failure may lose the end of a log, so the log proves nothing",
    ),
    ("snapshot.trust.empty", _is("true"), "a host that lost its snapshots starts empty instead of refusing"),
    ("readonlymode.enabled", _is("true"), "a host that is cut off goes on serving"),
    ("leaderServes", _is("no", "false"), "the leader answers no client, so no check of it can pass"),
    ("observerMasterPort", lambda value: value not in ("", "0"), "observers follow a follower of source"),
    ("clientPortAddress", lambda value: value not in ("0.0.0.0", "::"), "one address for all dest hosts"),
    ("electionAlg", lambda value: value != "3", "another election than source's"),
    ("fastleader.maxNotificationInterval", _number_above(60_000), "an observer reconnects even later"),
)
"""Settings that the move does not permit: the key, a test for its wrong values, and the reason."""


@check("dest.settings", "dest has no setting that conflicts with the move", Scope.DEST, ALWAYS)
def against(c: Context, e: Evidence) -> Iterator[Judged]:
    """P18, P22. Some settings disable what the steps need: a log on the disk, a server that refuses to serve
    alone, a leader that answers. The finding names each such setting with the reason.

    To do: Remove it from dest.settings or dest's JVM flags until the move is finalized.
    """
    for host, flags in e.dest_flags.items():
        own = flags.value if isinstance(flags, Seen) else {}
        found = []
        for key, wrong, reason in AGAINST:
            value = setting(dest_settings(c), own, key)
            if value is not None and wrong(value):
                found.append(f"{key}={value}: {reason}")
        for key in ADDRESS_SETTINGS[1:]:  # AGAINST has the first, for which loopback is wrong too.
            value = c.inventory.dest.settings.get(key, "").strip()
            if value and is_one_host(value):
                found.append(f"{key}={value}: one address for all dest hosts")
        moves = ("remove the setting from dest.settings or dest's JVM flags until the move is finalized",)
        if found or isinstance(flags, Seen):
            yield Judged(not found, "; ".join(found) or "no such value", "none of these values", host, moves)
        else:
            yield unseen(flags, "the JVM's flags, readable", host)


READ = ("", "none", "gz", "snappy")
"""The values of snapshot.compression.method whose snapshots zkmigrate can read."""


@check("source.snapshots", "source's snapshots can be read", Scope.SOURCE, ALWAYS)
def snapshots(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P12. Baseline and proofs read source's newest snapshot. They read plain, gzip and snappy files,
    which are all that ZooKeeper up to 3.9 writes.

    To do: Set the snapshot compression of source to gz, snappy or none, and let it write a snapshot.
    """
    key = "snapshot.compression.method"
    for host, config in e.source_config.items():
        flags = e.source_flags[host]
        for reading in (config, flags):
            if not isinstance(reading, Seen):
                yield unseen(reading, "a config and JVM flags that can be read", host)
                break
        else:
            method = _of_source(e, key, "none")[host]
            moves = (f"set {key} to gz, snappy or none on source, and let it write a snapshot",)
            yield Judged(method in READ, f"compression {method}", "none, gz or snappy", host, moves)


@check("dest.config", "ZooKeeper accepts both configs that the move writes on dest", Scope.CLUSTER)
def config(c: Context, e: Evidence) -> Iterator[Judged]:
    """P15, P17. The check generates the observer's and the reformed config now, parses both and compares
    members, roles and limits. ZooKeeper would refuse a wrong config only in the window.

    To do: Correct dest.settings in migration.yml: tickTime, initLimit and syncLimit as source has them. If a
    server of source has the same number as one of dest's, choose other myids.
    """
    count = len(c.inventory.dest.hosts)
    needed = (
        f"tickTime, initLimit, syncLimit; source's servers and {count} observers, then {count} participants"
    )
    wrong = list(_wrong_in(c, reformed_config(c.inventory), 0, "participant"))
    members, unread = _source_members(e)
    if unread is None:
        wrong += _wrong_in(c, observer_config(c.inventory, members), len(members.lines), "observer")
    elif not wrong:
        yield unseen(unread, needed)
        return
    seen = "; ".join(dict.fromkeys(wrong)) or "members and limits are right in both configs"
    moves = ("correct dest.settings in migration.yml: tickTime, initLimit and syncLimit as source has them",)
    if wrong and all(_A_NUMBER_OF_DEST in text for text in wrong):
        moves = ("choose other myids for dest.hosts in migration.yml",)
    yield Judged(not wrong, seen, needed, moves=moves)


def _source_members(e: Evidence) -> tuple[Members, Reading[object] | None]:
    """Return source's members from the first config that could be read, and None.

    If no config could be read, return no members and the reading that explains it.
    """
    for reading in e.source_config.values():
        if isinstance(reading, Seen):
            lines = tuple(f"server.{n}={s.render()}" for n, s in reading.value.servers.items())
            return Members(lines, reading.value.version), None
    return Members(()), next(iter(e.source_config.values()), Absent("source's config"))


_A_NUMBER_OF_DEST = "a server of source has the same number as a server of dest"


def _wrong_in(c: Context, content: bytes, source: int, role: str) -> Iterator[str]:
    """Yield each mistake in a config for dest, as text.

    content: the config. source: the number of source's servers that it must contain. role: the role that
    dest's servers must have in it.
    """
    try:
        made = settings(parse_zoocfg(content.decode("iso-8859-1"), f"the config as {role}"))
    except ZkDataError as error:
        yield str(error).replace("\n", " ")
        return
    limits = {"initLimit": made.init_limit, "syncLimit": made.sync_limit}
    yield from (f"no {key} in dest.settings" for key, value in limits.items() if not value)
    for host in c.inventory.dest.hosts:
        server = made.servers.get(host.myid)
        if server is None or server.role != role:
            yield f"server.{host.myid} is no {role}"
    if len(made.servers) != source + len(c.inventory.dest.hosts):
        yield f"{len(made.servers)} servers as {role}: {_A_NUMBER_OF_DEST}"


@check("dest.present-config", "dest.settings has every setting of the zoo.cfg that is on dest now",
       Scope.DEST, severity=Severity.WARN)  # fmt: skip
def present(c: Context, e: Evidence) -> Iterator[Judged]:
    """P17. The move writes dest's whole zoo.cfg from dest.settings. A line that somebody added to zoo.cfg and
    that dest.settings does not have would be lost.

    To do: Copy the lines that should stay to dest.settings.
    """
    written = {**c.inventory.dest.settings, "dataDir": c.inventory.dest.data_dir}
    written |= {key: str(port) for key, port in c.inventory.dest.ports.settings.items()}
    written |= {"dataLogDir": c.inventory.dest.txn_dir}
    written = without_secrets(written)
    moves = ("copy the settings that should stay to dest.settings",)
    for host, reading in e.dest_config.items():
        if isinstance(reading, Absent):
            yield Judged(True, "no zoo.cfg yet", "no zoo.cfg, or the same settings", host)
        elif isinstance(reading, Seen):
            there = reading.value.values
            lost = [
                k if is_secret(k) else f"{k}={v}"
                for k, v in there.items()
                if k != "peerType" and written.get(k, "").strip() != v
            ]
            yield Judged(
                not lost, ", ".join(lost) or f"{len(there)} keys, all in dest.settings",
                "the same in dest.settings", host, moves,
            )  # fmt: skip
        else:
            yield unseen(reading, f"{c.inventory.dest.config}, readable through sudo", host)


@check(
    "dest.words", "dest's servers will answer the four-letter words that the steps send", Scope.DEST, ALWAYS
)
def dest_words(c: Context, e: Evidence) -> Iterator[Judged]:
    """P20. From 3.5.3 on a server answers only srvr unless 4lw.commands.whitelist names more words.
    Without mntr the dest hosts cannot finish by themselves.

    To do: Set 4lw.commands.whitelist in dest.settings to the words that the finding names.
    """
    key, needed = "4lw.commands.whitelist", f"{', '.join(WORDS)}, or *"
    for host, flags in e.dest_flags.items():
        listed = setting(dest_settings(c), flags.value if isinstance(flags, Seen) else {}, key)
        if listed is None and not isinstance(flags, Seen):
            yield unseen(flags, needed, host)
            continue
        allowed = {word.strip() for word in (listed or "").split(",")}
        refused = [] if "*" in allowed else [word for word in WORDS if word not in allowed]
        seen = f"{key}={listed}" if listed is not None else f"no {key}"
        moves = (f"set {key} in dest.settings: {', '.join(WORDS)}",)
        yield Judged(not refused, seen, needed, host, moves)


@check(
    "source.words", "source's servers answer the four-letter words that the steps send", Scope.SOURCE, ALWAYS
)
def source_words(c: Context, e: Evidence) -> Iterator[Judged]:
    """P20. Only these words show which client is connected where, which session owns which ephemerals, and
    the smallest timeout. If 4lw.commands.whitelist lacks mntr, cons or dump, zkmigrate asks the
    AdminServer.

    To do: Let the operator's machine reach this server's AdminServer. Or add the words to
    4lw.commands.whitelist and restart source's servers one by one.
    """
    needed = f"an answer to {', '.join(WORDS)}"
    for host in e.source.servers:
        answers: Mapping[str, Reading[object]] = {
            "srvr": e.source.servers[host],
            "mntr": e.mntrs[host],
            "cons": e.cons[host],
            "dump": e.dumps[host],
        }
        # Absent is an answer too: the server runs and does not serve, which source.quorum reports.
        lost = {word: r for word, r in answers.items() if not isinstance(r, Seen | Absent)}
        denied = [word for word, r in lost.items() if r.cause == "denied"]
        if denied:
            port = c.inventory.source.admin_port
            moves = (
                f"let the operator's machine reach this server's AdminServer at port {port}; another port of "
                "it: source.admin_port. No restart is needed where it runs",
                f"add {', '.join(denied)} to source's 4lw.commands.whitelist, restart its servers one by one",
            )
            seen = f"{', '.join(denied)} not allowed; {lost[denied[0]].why}"
            yield Judged(False, seen, needed, host, moves)
        elif lost:
            yield unseen(next(iter(lost.values())), needed, host)
        else:
            yield Judged(True, "all words answered", needed, host)


_OF_INTEREST = re.compile(
    r"zookeeper\.(?!log\.|root\.|console\.|tracelog\.|jmx\.|home|auditlog\.).*"
    r"|jute\..*|java\.security\.auth\..*"
)
"""The flags that decide how the server behaves, in contrast to flags about its logging."""


def _flags(e: Evidence, host: str, file: str) -> Judged:
    """Check whether a server runs with the flags in its file.

    The finding shows only keys, because a value may be a secret.
    """
    needed, told, runs = f"the same flags in {file}", e.env_flags[host], e.running_flags[host]
    if not isinstance(told, Seen) or not isinstance(runs, Seen):
        reading = told if isinstance(runs, Seen) else runs
        return unseen(reading, needed, host, ("let the ssh account see this process and its java_env",))
    keys = sorted({*told.value, *runs.value})
    wrong = [k for k in keys if _OF_INTEREST.fullmatch(k) and told.value.get(k) != runs.value.get(k)]
    moves = ("find out where this server's flags are set, then correct java_env in migration.yml",)
    return Judged(not wrong, ", ".join(wrong) or "the same", needed, host, moves)


@check("source.flags", "the server's JVM runs with the flags that java_env holds", Scope.SOURCE, ALWAYS,
       Severity.WARN)  # fmt: skip
def source_flags(c: Context, e: Evidence) -> Iterator[Judged]:
    """P12. JVM flags may also be set in a unit, a script or another file. If the process is visible, the
    other checks use the flags with which it runs.

    To do: Correct source.java_env in migration.yml, or put the flags into that file.
    """
    for host in e.source_flags:
        yield _flags(e, host, c.inventory.source.java_env)


@check("dest.flags", "the server's JVM runs with the flags that java_env holds", Scope.DEST, JOINED,
       Severity.WARN)  # fmt: skip
def dest_flags(c: Context, e: Evidence) -> Iterator[Judged]:
    """P12. JVM flags may also be set in a unit, a script or another file. Before the join dest's flags are
    known from the file java_env alone.

    To do: Correct dest.java_env in migration.yml, or put the flags into that file.
    """
    for host in c.inventory.dest_names:
        yield _flags(e, host, c.inventory.dest.java_env)


CHECKS = (
    source_flags, dest_flags, source_words, local_sessions, snapshots, dest_words, against, same_flags,
    config, present,
)  # fmt: skip
