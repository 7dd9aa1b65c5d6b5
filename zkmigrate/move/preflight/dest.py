"""Checks of dest: empty before it joins, large enough for source's data, and equal to source afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zkmigrate.hosts.facts.status import HostFacts
from zkmigrate.move.facts.connections import addresses
from zkmigrate.move.preflight.check import ALWAYS, JOINED, Judged, Scope, check, unseen, why
from zkmigrate.move.preflight.drilled import DRILLED, NEEDED
from zkmigrate.move.preflight.evidence import Evidence, buffer_of
from zkmigrate.move.preflight.security import security_of
from zkmigrate.move.preflight.settings import dest_settings
from zkmigrate.move.preflight.source import newest_members, slowness, tells_of_fsync
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Severity
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.facts.config import ZooConfig
from zkmigrate.zookeeper.facts.members import REJOIN

ROOM_FACTOR = 3
"""The required free space, as a multiple of source's snapshot and logs.

It must hold the data, the image, and the data that is written meanwhile.
"""

LISTED = 5

RIGHT_HOST = "see whether this is the right host; if not, correct dest.hosts in migration.yml"


@check("dest.empty", "the dest host's data directories are empty", Scope.DEST)
def empty(c: Context, e: Evidence) -> Iterator[Judged]:
    """P13. If foreign data is present, an observer refuses to follow source, or its data silently differs
    from source's. A single epoch file has the same effect.

    To do: Find out who owns the data. If nobody needs it, move it away.
    """
    directories = " and ".join(dict.fromkeys((c.inventory.dest.data_dir, c.inventory.dest.txn_dir)))
    for host, reading in e.dest_data.items():
        if not isinstance(reading, Seen):
            yield unseen(reading, f"{directories}, readable through sudo", host)
            continue
        names = (*reading.value.epochs, *reading.value.data)
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        yield Judged(
            not names,
            (", ".join(names[:LISTED]) + more) or "no data, no epoch files",
            "no data and no acceptedEpoch or currentEpoch",
            host,
            (
                f"if this host never belonged to an ensemble: empty version-2 in {directories}",
                "correct dest.data_dir in migration.yml",
            ),
        )


@check("dest.leftovers", "no dynamic config files are left on the dest host", Scope.DEST)
def leftovers(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P13. ZooKeeper reads a leftover zoo.cfg.dynamic or zoo.cfg.dynamic.next at its next start, whatever
    zoo.cfg says. With reconfigEnabled it also overwrites zoo.cfg.bak.

    To do: Remove these files from the dest host.
    """
    for host, reading in e.dest_data.items():
        if isinstance(reading, Seen):
            found = reading.value.leftovers
            yield Judged(not found, ", ".join(found) or "none", "none", host, ("remove these files",))
        else:
            yield unseen(reading, "the config directory, readable through sudo", host)


@check("dest.myid", "the dest host's myid is its own, above every myid of source", Scope.DEST)
def myid(c: Context, e: Evidence) -> Iterator[Judged]:
    """P14. ZooKeeper does not report a myid that two servers use, but the second server breaks the election
    connections of the first. The check takes source's ids from source's own configs too.

    To do: If source uses this myid, choose another one in migration.yml. If the host has another myid file
    and is not in use, remove that file.
    """
    configs = [r.value for r in e.source_config.values() if isinstance(r, Seen)]
    taken = {number for config in configs for number in config.servers}
    taken |= {int(r.value) for r in e.source_myid.values() if isinstance(r, Seen) and r.value.isdecimal()}
    unread = [(name, r) for name, r in e.source_config.items() if not isinstance(r, Seen)]
    for host in c.inventory.dest.hosts:
        highest = max(taken, default=0)
        needed = f"above {highest} and at most 254"
        moves: tuple[str, ...] = ("choose another myid in migration.yml",)
        state = e.dest_data[host.name]
        if host.myid in taken or not highest < host.myid <= 254:
            yield Judged(False, f"myid {host.myid}; source uses {sorted(taken)}", needed, host.name, moves)
        elif unread:
            yield unseen(unread[0][1], f"{unread[0][0]}'s config, for its server ids", host.name)
        elif not isinstance(state, Seen):
            yield unseen(state, "the myid file, readable through sudo", host.name)
        else:
            there = state.value.myid
            seen = f"myid {host.myid}; myid file: {there or 'none'}"
            needed = f"{needed}; no myid file, or the same number in it"
            moves = (
                f"if the host is in use as server {there}: take another host",
                "otherwise remove its myid file",
            )
            yield Judged(there in (None, str(host.myid)), seen, needed, host.name, moves)


@check(
    "dest.jute-maxbuffer", "the dest host accepts the largest znode that source holds or allows", Scope.DEST
)
def jute_maxbuffer(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P12. One znode above dest's jute.maxbuffer, of any tenant, makes the observer reconnect hundreds of
    times a second. So dest's value must reach source's limit and the largest znode that exists.

    To do: Set -Djute.maxbuffer in dest's JVM flags to the value that the finding asks for.
    """
    limits = {host: _buffer(reading) for host, reading in e.source_flags.items()}
    unread = [f"{host}: {limit}" for host, limit in limits.items() if not isinstance(limit, int)]
    allowed = max((limit for limit in limits.values() if isinstance(limit, int)), default=0)
    source_limit = f"source allows {allowed}" if allowed else "what source allows is not known"
    largest = e.largest
    needed_bytes = max(allowed, largest.value.size) if isinstance(largest, Seen) else allowed
    for host, reading in e.dest_flags.items():
        if not isinstance(reading, Seen):
            yield unseen(reading, "the JVM's flags, readable", host)
            continue
        limit = _buffer(reading)
        known = (
            f"largest znode {largest.value.size} bytes ({largest.value.where})"
            if isinstance(largest, Seen)
            else why(largest)
        )
        own = f"{limit} bytes" if isinstance(limit, int) else limit
        seen = f"{own}; {source_limit}; {known}"
        moves = (f"set -Djute.maxbuffer={needed_bytes} in dest's JVM flags",)
        if isinstance(limit, int) and limit < needed_bytes:
            yield Judged(False, seen, f"at least {needed_bytes}", host, moves)
        elif not isinstance(limit, int) or unread or not isinstance(largest, Seen):
            yield Judged(None, "; ".join((seen, *unread)), "limits and largest znode, all known", host)
        else:
            yield Judged(True, seen, f"at least {needed_bytes}", host)


def _buffer(reading: Reading[Mapping[str, str]]) -> int | str:
    """Return jute.maxbuffer in bytes, or the reason why it is not known."""
    if not isinstance(reading, Seen):
        return why(reading)
    limit = buffer_of(reading.value)
    return f"jute.maxbuffer={reading.value['jute.maxbuffer']} is not a number" if limit is None else limit


@check("dest.sync-enabled", "the dest host writes a log while it observes", Scope.DEST, ALWAYS)
def sync_enabled(c: Context, e: Evidence) -> Iterator[Judged]:
    """P16. With syncEnabled=false an observer's newest zxid is not on its disk.

    To do: Remove syncEnabled=false from dest.settings and from dest's JVM flags.
    """
    key = "syncEnabled"
    setting = c.inventory.dest.settings.get(key, "true").strip()
    for host, reading in e.dest_flags.items():
        if not isinstance(reading, Seen):
            yield unseen(reading, "the JVM's flags, readable", host)
            continue
        flag = reading.value.get("zookeeper.observer.syncEnabled", "true").strip()
        held = setting.lower() == flag.lower() == "true"
        yield Judged(held, f"setting {setting}, JVM flag {flag}", "true", host, ("remove syncEnabled=false",))


@check("dest.security", "dest has no SASL or TLS that a move does not support", Scope.DEST, ALWAYS)
def security(c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. A move supports SASL with DIGEST-MD5, TLS, and ACLs of the schemes sasl, x509, digest. Kerberos,
    lists of revoked certificates and other providers have never been tried, so zkmigrate refuses them by
    name.

    To do: Remove the keys that the finding names from dest.settings, dest's JVM flags or its JAAS file.
    """
    move = "remove what the finding names from dest.settings, dest's JVM flags or its JAAS file"
    for host in e.dest_flags:
        yield security_of(host, e.secured[host], move, c.inventory.dest.settings)


@check("dest.session-bounds", "dest grants every session timeout that source grants", Scope.CLUSTER, ALWAYS)
def session_bounds(c: Context, e: Evidence) -> Iterator[Judged]:
    """P11. Where dest's bounds are narrower than source's, a client's timeout changes when it reconnects
    to dest.

    To do: Give dest source's tickTime, minSessionTimeout and maxSessionTimeout in dest.settings.
    """
    dest = dest_settings(c).session_bounds_ms
    moves = ("give dest source's tickTime, minSessionTimeout and maxSessionTimeout in dest.settings",)
    for host, reading in e.source_config.items():
        source = reading.value.session_bounds_ms if isinstance(reading, Seen) else None
        if source is None or dest is None:
            bounds = "dest.settings: not numbers" if dest is None else f"{host}: {_bounds_unknown(reading)}"
            unread = dest is not None and not isinstance(reading, Seen)
            yield Judged(None, bounds, "bounds of source and dest", moves=() if unread else moves)
            return
        seen = f"dest {dest[0]} to {dest[1]} ms, {host} {source[0]} to {source[1]} ms"
        if dest[0] > source[0] or dest[1] < source[1]:
            yield Judged(False, seen, f"{source[0]} to {source[1]} ms or wider", moves=moves)
            return
    yield Judged(True, f"dest {dest[0]} to {dest[1]} ms" if dest else "", "as wide as source's")


def _bounds_unknown(reading: Reading[ZooConfig]) -> str:
    return "tickTime or a bound is not a number" if isinstance(reading, Seen) else why(reading)


@check(
    "dest.disk", "the dest host has space for the data, its image and new writes", Scope.DEST,
    ALWAYS,
)  # fmt: skip
def disk(c: Context, e: Evidence) -> Iterator[Judged]:
    """P18. With a full disk in the window a host can go neither forward nor back. Before the join the
    room must hold source's data, an image of it and what clients write meanwhile. A missing directory may
    mean the wrong host.

    To do: Free room on the dest host or use a larger disk. Where the directory is missing, see whether
    this is the right host.
    """
    factor = ROOM_FACTOR if not e.joined else ROOM_FACTOR - 1
    size = e.source_bytes
    for host in c.inventory.dest_names:
        facts = e.facts[host]
        if not isinstance(facts, Seen) or not isinstance(size, Seen):
            yield unseen(size if isinstance(facts, Seen) else facts, "free space and source's size", host)
            continue
        needed = factor * size.value
        free = {
            path: facts.value.disk_free.get(path)
            for path in (c.inventory.dest.data_dir, c.inventory.dest.txn_dir)
        }
        missing = [path for path, amount in free.items() if amount is None]
        seen = ", ".join(
            f"{path} {'absent' if n is None else f'{n >> 20} MiB free'}" for path, n in free.items()
        )
        enough = all(amount is not None and amount >= needed for amount in free.values())
        moves: tuple[str, ...] = ("make the directory, owned by dest.user",) if missing else ("make room",)
        if len(missing) == len(free) and (bare := _never_made(c, e, host, facts.value)):
            seen, moves = f"{seen}; {bare}", (RIGHT_HOST, *moves)
        yield Judged(enough, seen, f"{needed >> 20} MiB free ({factor} × source's data)", host, moves)


def _never_made(c: Context, e: Evidence, host: str, facts: HostFacts) -> str:
    """Return why this host seems not to be prepared as a dest host.

    The text is empty if the host has a zoo.cfg or the service.
    """
    script = e.own.start_scripts.get(host)
    started = facts.unit.get("LoadState") != "not-found" if script is None else not isinstance(script, Absent)
    if started or not isinstance(e.dest_config[host], Absent):
        return ""
    clients = {tenant.address for tenant in e.tenants.found}
    known = " ".join(sorted(addresses(c.inventory.dest_host(host)) & clients))
    client = f"; {known} is a client of source" if known else ""
    return f"it also has no zoo.cfg and no such service: is it the right host?{client}"


@check("dest.observing", "the dest host observes source and serves", Scope.DEST, JOINED)
def observing(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P15. The roll sends brokers to dest, and the cut-over begins, only while every dest host follows
    source.

    To do: See in this server's log why it does not follow source.
    """
    for host, mode in e.dest.modes().items():
        server = e.dest.servers[host]
        if isinstance(server, Unknown):
            yield unseen(server, "observer", host)
        else:
            yield Judged(mode == "observer", f"it is {mode}", "observer", host, ("look at its log",))


@check("dest.members", "the dest host has source's current members", Scope.DEST, JOINED)
def members(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P05. Somebody reconfigured source after the join. The observers follow source only until their
    connection is interrupted. After that neither the observers nor the brokers connected to them can use
    source again.

    To do: Roll the join back and join again: zkmigrate rollback --to join, then zkmigrate run.
    """
    newest = newest_members(e)
    needed = f"version {newest:#x}, as in source's files"
    for host, reading in e.dest_config.items():
        if isinstance(reading, Seen):
            version = reading.value.version
            yield Judged(version == newest, f"it observes version {version:#x}", needed, host, (REJOIN,))
        else:
            yield unseen(reading, needed, host)


@check(
    "dest.cluster-id",
    "the chroot, as seen through the dest host, holds this {system} cluster",
    Scope.DEST,
    JOINED,
)
def cluster_id(c: Context, e: Evidence) -> Iterator[Judged]:
    """P31. Under a wrong or empty chroot a {one} makes a new cluster instead of joining its own. The
    check costs one client session of the operator on each dest host.

    To do: Correct the chroot or the cluster's id in migration.yml, or wait until dest has caught up.
    """
    wanted = e.dependent.identity(c.inventory)
    for host, reading in e.identities.items():
        words = e.dependent.words
        moves = (
            f"correct {words.kind}.chroot in migration.yml",
            "if the chroot is right: wait until dest has caught up",
        )
        if isinstance(reading, Unknown):
            yield unseen(reading, wanted, host)
        elif isinstance(reading, Absent):
            yield Judged(False, f"the chroot has no {reading.what}", wanted, host, moves)
        else:
            held = reading.value == wanted
            yield Judged(held, f"it holds {reading.value}", wanted, host, (words.wrong_section,))


@check(
    "dest.version", "a move from source's version to the dest host's has been drilled", Scope.DEST, JOINED,
    severity=Severity.WARN,
)  # fmt: skip
def version(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P03. Nobody has drilled a move from source's version to this version. It may work, but the rehearsal
    was then its first trial.

    To do: Rehearse with particular care.
    """
    known = {(drill.source, drill.dest) for drill in DRILLED}
    sources = sorted({r.value.version.number for r in e.source.servers.values() if isinstance(r, Seen)})
    for host, reading in e.dest.servers.items():
        if not sources:
            yield Judged(None, "no source server reports its version", NEEDED, host)
        elif isinstance(reading, Seen):
            own = reading.value.version.number
            held = all((number, own) in known for number in sources)
            seen = f"{', '.join(sources)} to {own}"
            yield Judged(held, seen, NEEDED, host, ("study the findings of the rehearsal closely",))
        else:
            yield unseen(reading, NEEDED, host)


SYNC_BYTES_PER_S = 20 << 20
"""The assumed speed of a snapshot to a dest host's disk and memory, in bytes per second.

It is a fifth of a gigabit link, to be safe.
"""

SYNC_FACTOR = 2


@check("dest.init-limit", "a dest host can receive all of source's data within initLimit", Scope.CLUSTER,
       severity=Severity.WARN)  # fmt: skip
def init_limit(c: Context, e: Evidence) -> Iterator[Judged]:
    """P09. A leader waits initLimit ticks for a learner to take the snapshot. Then it drops the learner,
    which begins anew (ZOOKEEPER-2678). The check assumes a speed of 20 MiB/s and requires twice the
    resulting time.

    To do: Raise initLimit in dest.settings, and on source's servers one by one.
    """
    moves = ("raise initLimit in dest.settings, and on source's servers one by one",)
    size = e.source_bytes
    if not isinstance(size, Seen):
        yield unseen(size, "source's size")
        return
    takes = size.value / SYNC_BYTES_PER_S
    reckoned = f"{size.value >> 20} MiB at {SYNC_BYTES_PER_S >> 20} MiB/s, twice"
    needed = f"{SYNC_FACTOR * takes:.1f} s or more ({reckoned})"
    own: Reading[ZooConfig] = Seen(dest_settings(c))
    limits = {"dest": _sync_ms(own)} | {host: _sync_ms(r) for host, r in e.source_config.items()}
    unread = [host for host, ms in limits.items() if ms is None]
    known_ms = {host: ms for host, ms in limits.items() if ms is not None}
    seen = ", ".join(f"{host} {ms / 1000:g} s" for host, ms in known_ms.items())
    if any(ms / 1000 < SYNC_FACTOR * takes for ms in known_ms.values()):
        yield Judged(False, seen, needed, moves=moves)
    elif unread:
        yield Judged(None, f"{seen}; not known of {', '.join(unread)}", needed)
    else:
        yield Judged(True, seen, needed)


def _sync_ms(config: Reading[ZooConfig]) -> int | None:
    """Return initLimit in milliseconds, or None if the config cannot be read or initLimit is not a number."""
    return config.value.init_ms if isinstance(config, Seen) else None


@check(
    "dest.latency",
    "dest's servers and their disks answer quickly enough",
    Scope.DEST,
    JOINED,
    severity=Severity.WARN,
)
def latency(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P18. After the reform every write waits for a majority of these disks. The check works as
    source.latency does. ZooKeeper 3.5 does not report fsync times in mntr; there the check reads the
    newest lines of the unit's journal.

    To do: See whether the disk of the logs is shared or slow. Look for 'fsync-ing the write ahead log' in
    dest's own log.
    """
    for host, reading in e.dest.servers.items():
        judged = slowness(host, reading, e.mntrs[host])
        if not judged.held or tells_of_fsync(e.mntrs[host]):
            yield judged
            continue
        around = e.around[host]
        slow, lines = (around.value.slow_fsyncs if isinstance(around, Seen) else None) or (0, 0)
        seen = f"{judged.seen}, {slow} slow fsyncs in {lines} lines of its journal"
        held = slow == 0 if lines else None
        moves = ("look for 'fsync-ing the write ahead log' in its own log",) if not lines else judged.moves
        yield Judged(held, seen, judged.needed, host, moves)


CHECKS = (
    empty, leftovers, myid, jute_maxbuffer, sync_enabled, security, session_bounds, disk, init_limit,
    observing, members, cluster_id, version, latency,
)  # fmt: skip
