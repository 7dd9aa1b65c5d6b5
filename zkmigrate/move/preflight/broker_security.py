"""Checks of brokers' connections to dest: login, TLS versions and certificates.

Sources: ClientX509Util of ZooKeeper, KafkaConfig.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zkmigrate.kafka.rules.listeners import listeners
from zkmigrate.move.facts.secured import CLIENT, PREFIX, Secured
from zkmigrate.move.preflight.broker import BEFORE_ROLL
from zkmigrate.move.preflight.certificates import client_auth, first_unread, until, verdicts
from zkmigrate.move.preflight.check import Judged, Scope, check, unseen, why
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.preflight.jaas import NO_SASL, refused, settings_of, table_of_clients
from zkmigrate.move.preflight.kafka_evidence import of_kafka, properties_at
from zkmigrate.move.preflight.login_settings import FIPS_FROM
from zkmigrate.move.preflight.security import modules_not_supported
from zkmigrate.move.preflight.tls_settings import NO_TLS, given_versions, spelled_out
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.data.certificates import Certificates, covers, missing_uses, not_now
from zkmigrate.zookeeper.data.jaas import Section

OLD, NEW = "TLSv1.2", "TLSv1.3"
_SASL = f"sasl.{CLIENT}"
_NEEDS_TLS = "configure zookeeper.ssl.* on the broker and restart it, or give dest a port without TLS"


@check("kafka.zookeeper-login", "dest lets the broker log in to ZooKeeper", Scope.BROKERS, BEFORE_ROLL)
def zookeeper_login(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. The user in the section Client of the broker's JAAS file must be in dest's section Server, with
    the same password. Otherwise the broker can do nothing on dest: 2.8 reconnects without end, 3.9 loses its
    session.

    To do: Give dest's JAAS files the broker's user and password.
    """
    needed = "the broker's user in the section for clients of every dest host, with the same password"
    moves = ("give dest's JAAS files the broker's user and password",)
    for broker, secured in of_kafka(e).secured.items():
        values = settings_of(secured)
        name = values.get(f"{_SASL}config") or "Client"
        if not isinstance(secured.values, Seen):
            yield unseen(secured.values, needed, broker)
        elif values.get(_SASL, "").lower() == "false" or isinstance(secured.jaas, Absent):
            yield Judged(True, f"{NO_SASL} to ZooKeeper", needed, broker)
        elif not isinstance(secured.jaas, Seen):
            yield unseen(
                secured.jaas, needed, broker, ("correct the broker's JAAS file, or start the broker",)
            )
        elif odd := list(modules_not_supported(secured.jaas.value, (name,))):
            yield Judged(False, "; ".join(odd), needed, broker, ("do not move this cluster with zkmigrate",))
        elif (login := secured.jaas.value.get(name)) is None or login.user is None:
            yield Judged(True, f"no user in section {name}: {NO_SASL} to ZooKeeper", needed, broker)
        else:
            tables = {host: table_of_clients(e.secured[host]) for host in e.dest_config}
            wrong = [
                text
                for host, table in tables.items()
                if isinstance(table, Seen)
                for text in refused(Section((), table.value), f"for clients of {host}", login, broker)
            ]
            lost = next((table for table in tables.values() if isinstance(table, Unknown)), None)
            if not wrong and lost is not None:
                yield Judged(None, f"dest's users: {why(lost)}", needed, broker)
            else:
                yield Judged(not wrong, "; ".join(wrong) or f"user {login.user}", needed, broker, moves)


@check("kafka.tls-versions", "the broker speaks a TLS version of dest's port for clients", Scope.BROKERS,
       BEFORE_ROLL)  # fmt: skip
def tls_versions(c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. By default ZooKeeper 3.9 takes only TLSv1.3 at the port for clients, older releases only TLSv1.2.
    A broker's client of ZooKeeper 3.8 or older speaks only TLSv1.2 by default. Such a broker ends at its
    start.

    To do: Set ssl.enabledProtocols=TLSv1.2,TLSv1.3 in dest.settings, or zookeeper.ssl.protocol=TLSv1.3 in the
    broker's file.
    """
    moves = (
        "set ssl.enabledProtocols=TLSv1.2,TLSv1.3 in dest.settings",
        "or set zookeeper.ssl.protocol=TLSv1.3 in server.properties and restart the broker",
    )
    for broker, secured in of_kafka(e).secured.items():
        if not isinstance(secured.values, Seen):
            yield unseen(secured.values, "server.properties and JVM flags", broker)
            continue
        if CLIENT not in secured.trust:
            closed = c.inventory.dest.ports.client is None
            seen = f"{NO_TLS} to ZooKeeper" + (", and dest has only a port with TLS" if closed else "")
            yield Judged(not closed, seen, "a version of dest's", broker, (_NEEDS_TLS,))
            continue
        mine = _of_broker(secured.values.value)
        servers = {host: _of_dest(e, host) for host in e.dest_config}
        lost = next(((host, one) for host, one in servers.items() if not isinstance(one, Seen)), None)
        wrong = [
            f"{host} {spelled_out(one.value)}"
            for host, one in servers.items()
            if isinstance(one, Seen) and not one.value & mine
        ]
        needed, seen = "a TLS version that every dest host takes", f"{spelled_out(mine)}"
        if wrong:
            yield Judged(False, f"{seen}; {', '.join(wrong)}", needed, broker, moves)
        elif lost is not None:
            yield Judged(None, f"{seen}; release of {lost[0]}: {why(lost[1])}", needed, broker, moves)
        else:
            yield Judged(True, seen, needed, broker)


def _of_broker(values: Mapping[str, str]) -> frozenset[str]:
    if values.get("ssl.enabled.protocols"):
        return given_versions(values, PREFIX[CLIENT], "enabled.protocols")
    return frozenset({OLD, NEW}) if values.get(f"{PREFIX[CLIENT]}protocol") == NEW else frozenset({OLD})


def _of_dest(e: Evidence, host: str) -> Reading[frozenset[str]]:
    values = e.secured[host].values
    if not isinstance(values, Seen):
        return values
    if given := given_versions(values.value, PREFIX[CLIENT]):
        return Seen(given)
    release = e.dest_releases[host]
    if not isinstance(release, Seen):
        return release
    return Seen(frozenset({NEW if release.value >= FIPS_FROM else OLD}))


@check("kafka.trusts-dest", "broker and dest trust each other's certificates", Scope.BROKERS, BEFORE_ROLL)
def trusts_dest(c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. A broker with zookeeper.ssl.* verifies the certificate of dest's port for clients, and its address
    unless zookeeper.ssl.endpoint.identification.algorithm is empty. Dest verifies the broker's certificate
    unless ssl.clientAuth is none.

    To do: Put dest's authority into the broker's trust store, the broker's into dest's, and dest's addresses
    into dest's certificates.
    """
    needed = "certificates that both sides verify, with dest's addresses"
    moves = ("put the missing authority into that trust store, or the address into dest's certificate",)
    for broker, secured in of_kafka(e).secured.items():
        if not isinstance(secured.values, Seen):
            yield unseen(secured.values, needed, broker)
        elif CLIENT not in secured.trust:
            yield Judged(True, f"{NO_TLS} to ZooKeeper", needed, broker)
        elif not isinstance(secured.trust[CLIENT], Seen):
            yield unseen(secured.trust[CLIENT], needed, broker, ("use a PEM or PKCS12 store",))
        else:
            wrong = list(dict.fromkeys(_between(c, e, secured, broker)))
            closed = first_unread(_stores(e, secured, broker))
            if not wrong and closed is not None:
                yield Judged(None, f"a store: {why(closed)}", needed, broker)
            else:
                yield Judged(not wrong, "; ".join(wrong) or "all verified", needed, broker, moves)


def _stores(e: Evidence, broker: Secured, name: str) -> dict[str, Reading[Certificates]]:
    """Return every store that decides whether a broker and dest trust each other."""
    found: dict[str, Reading[Certificates]] = {}
    for host in e.dest_config:
        secured = e.secured[host]
        if CLIENT in secured.keys:
            found[f"{host}'s keys"] = secured.keys[CLIENT]
        if _asks(secured):
            found[f"{host}'s trust"] = secured.trust[CLIENT]
            found[f"{name}'s keys"] = broker.keys[CLIENT]
    return found


def _asks(server: Secured) -> bool:
    """Return whether a server demands a certificate of its clients."""
    return CLIENT in server.trust and client_auth(server) == "need"


def _between(c: Context, e: Evidence, broker: Secured, name: str) -> Iterator[str]:
    times, values = (e.at, until(c, e)), settings_of(broker)
    trusted, own = broker.trust[CLIENT], broker.keys[CLIENT]
    for host in e.dest_config:
        secured, address = e.secured[host], c.inventory.dest_host(host).address
        chain, theirs = secured.keys.get(CLIENT), secured.trust.get(CLIENT)
        if chain is None:
            yield f"{host} has no TLS for clients"
        elif isinstance(chain, Seen) and isinstance(trusted, Seen):
            for reason in verdicts(chain.value, trusted.value, times):
                yield f"{name} does not trust {host}'s certificate: {reason}"
            checks = values.get("ssl.endpoint.identification.algorithm", "HTTPS") != ""
            if checks and not covers(chain.value[0], address):
                yield f"{host}'s certificate does not name {address}"
        if _asks(secured) and isinstance(own, Absent):
            yield f"{host} demands a certificate, and {name} has none: {own.what}"
        if client_auth(secured) != "none" and isinstance(own, Seen) and isinstance(theirs, Seen):
            for reason in verdicts(own.value, theirs.value, times):
                yield f"{host} does not trust {name}'s certificate: {reason}"
            yield from (
                f"{name}'s certificate does not permit {one}"
                for one in missing_uses(own.value[0], ("clientAuth",))
            )
            yield from (
                f"{name}'s certificate: {text}" for at in times if (text := not_now(own.value[0], at))
            )


@check("kafka.client", "migration.yml says how zkmigrate logs in to the broker", Scope.BROKERS, BEFORE_ROLL)
def client(c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. zkmigrate asks brokers at the port in migration.yml. If the listener there uses TLS or SASL,
    zkmigrate needs kafka.client with the same protocol.

    To do: Write kafka.client into migration.yml, or give the broker the port of a listener that fits.
    """
    given = c.inventory.kafka.client
    protocol = "PLAINTEXT" if given is None else given.protocol
    for broker in c.inventory.kafka.brokers:
        reading = properties_at(e, broker.name, c.inventory.kafka.config)
        if not isinstance(reading, Seen):
            yield unseen(reading, "server.properties, readable through sudo", broker.name)
            continue
        known = [one for one in listeners(reading.value) if one.port == broker.port]
        wrong = bool(known) and all(one.protocol != protocol for one in known)
        seen = f"port {broker.port} is {known[0].protocol}, and " if wrong else ""
        seen += f"kafka.client is {'missing' if given is None else f'for {protocol}'}" if wrong else protocol
        needed = f"kafka.client with protocol {known[0].protocol}" if wrong else "the listener's protocol"
        moves = ("write kafka.client into migration.yml, or give the broker another port",)
        yield Judged(not wrong, seen, needed, broker.name, moves)


CHECKS = (zookeeper_login, tls_versions, trusts_dest, client)
