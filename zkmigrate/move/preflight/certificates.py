"""Check certificates: each server's own, and whether all servers trust each other's.

After the cut-over each dest host connects to each other one, and each accepts connections: so every
certificate is used in both roles, and is verified by every other host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from zkmigrate.move.facts.secured import CLIENT, QUORUM, Secured
from zkmigrate.move.preflight.check import ALWAYS, Judged, Scope, check, unseen
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.preflight.jaas import settings_of
from zkmigrate.move.preflight.login_settings import FIPS, FIPS_FROM
from zkmigrate.move.preflight.tls_settings import NO_TLS
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Severity
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.data.certificates import (
    Certificates,
    covers,
    missing_uses,
    names,
    not_now,
    subject,
    why_not_trusted,
)

AHEAD_S = 7 * 86400
"""The seconds for which certificates must still be valid if policy.window is not set."""
_WORD = {QUORUM: "quorum", CLIENT: "port for clients"}


def until(c: Context, e: Evidence) -> float:
    """Return the time at which certificates must still be valid, in seconds since the epoch."""
    window = c.inventory.policy.window
    return e.at + AHEAD_S if window is None else max(e.at, datetime.fromisoformat(window.end).timestamp())


@check("dest.certificate", "the dest host's certificate is valid until the move is over, in both roles",
       Scope.DEST, ALWAYS)  # fmt: skip
def certificate(c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. Peers refuse a certificate whose time is over, or whose extensions do not permit its use. In the
    quorum each server is client and server. The certificate must be valid until the end of policy.window,
    or for 7 days. zkmigrate reads PEM and PKCS12 stores, not JKS.

    To do: Give this host a new certificate, or a store that can be read.
    """
    needed = "a certificate that is valid until the move is over, for clientAuth and serverAuth"
    moves = (
        "give this host a new certificate",
        "convert a JKS store to PKCS12 with `keytool -importkeystore`",
    )
    for host in e.dest_config:
        secured = e.secured[host]
        if not isinstance(secured.values, Seen):
            yield unseen(secured.values, needed, host)
        elif not secured.keys:
            yield Judged(True, NO_TLS, needed, host)
        elif (lost := first_unread(secured.keys) or first_unread(_used(secured))) is not None:
            yield unseen(lost, needed, host, moves)
        else:
            wrong = [
                f"{_WORD[kind]}: {text}"
                for kind, reading in secured.keys.items()
                if isinstance(reading, Seen)
                for text in _mistakes(reading.value, kind, (e.at, until(c, e)))
            ]
            own = {
                subject(reading.value[0]) for reading in secured.keys.values() if isinstance(reading, Seen)
            }
            yield Judged(not wrong, "; ".join(wrong) or ", ".join(sorted(own)), needed, host, moves[:1])


def client_auth(server: Secured) -> str:
    """Return whether a server asks its clients for a certificate: need, want or none, as ssl.clientAuth."""
    return settings_of(server).get("ssl.clientAuth", "need").lower()


def _used(server: Secured) -> dict[str, Reading[Certificates]]:
    """Return the trust stores that a server uses: without ssl.clientAuth it needs none for clients."""
    open_to_all = client_auth(server) == "none"
    return {
        kind: reading
        for kind, reading in server.trust.items()
        if not (kind == CLIENT and open_to_all and isinstance(reading, Absent))
    }


def first_unread(stores: Mapping[str, Reading[Certificates]]) -> Reading[Certificates] | None:
    return next((reading for reading in stores.values() if not isinstance(reading, Seen)), None)


def _mistakes(chain: Certificates, kind: str, times: tuple[float, ...]) -> Iterator[str]:
    own = chain[0]
    yield from dict.fromkeys(text for at in times if (text := not_now(own, at)))
    roles = ("clientAuth", "serverAuth") if kind == QUORUM else ("serverAuth",)
    if forbidden := missing_uses(own, roles):
        yield f"it does not permit {', '.join(forbidden)}"


@check("dest.certificate-names", "the dest host's certificate names its address", Scope.DEST, ALWAYS,
       Severity.WARN)  # fmt: skip
def certificate_names(c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. Peers compare the address with the certificate on both sides: the one that connects, and the one
    that accepts. So NAT between the hosts breaks it. Where a side checks names, a wrong name blocks. In FIPS
    mode, ZooKeeper 3.9 checks no names between servers; then the check only warns.

    To do: Give this host a certificate whose subjectAltName has its address.
    """
    moves = ("give this host a certificate whose subjectAltName has its address",)
    for host in e.dest_config:
        secured, address = e.secured[host], c.inventory.dest_host(host).address
        needed = f"a subjectAltName with {address}"
        if not isinstance(secured.values, Seen):
            yield unseen(secured.values, needed, host)
            continue
        wrong: list[str] = []
        read = 0
        for kind, reading in secured.keys.items():
            if isinstance(reading, Seen):
                read += 1
                if not covers(reading.value[0], address):
                    given = ", ".join(names(reading.value[0])) or "nothing"
                    wrong.append(f"{_WORD[kind]}: it names {given}")
        blocks = any(text.startswith(_WORD[QUORUM]) for text in wrong) and _checks_names(e, host)
        if wrong:
            yield Judged(False, "; ".join(wrong), needed, host, moves, blocks=blocks)
        elif read < len(secured.keys):
            yield Judged(None, "the certificate cannot be read, as dest.certificate reports", needed, host)
        else:
            yield Judged(True, address if read else NO_TLS, needed, host)


def _checks_names(e: Evidence, host: str) -> bool:
    """Return whether a peer of this host's quorum checks names; unknown counts as yes."""
    peers = [*e.source_config, *(one for one in e.dest_config if one != host)]
    return any(_checks(e, one) for one in peers)


def _checks(e: Evidence, host: str) -> bool:
    values = settings_of(e.secured[host])
    if values.get("ssl.quorum.hostnameVerification", "").lower() == "false":
        return False
    server = e.source.servers.get(host)
    numbers = e.dest_releases.get(host)
    if numbers is None and isinstance(server, Seen):
        numbers = Seen(server.value.version.numbers)
    new = isinstance(numbers, Seen) and numbers.value >= FIPS_FROM
    return values.get(FIPS, "true" if new else "false").lower() != "true"


@check("dest.trust", "the servers of dest and source trust each other's certificates", Scope.DEST, ALWAYS)
def trust(c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. A join proves only that this host and source trust each other. After the cut-over each dest host
    verifies each other one's certificate. The check verifies every chain with every trust store, in both
    directions, now and at the end of the move.

    To do: Put the authority that the finding names into the trust store of the host that it names.
    """
    needed = "chains that every other host's trust store verifies"
    moves = ("put the missing authority into that trust store, and restart the server if it is source's",)
    for host in e.dest_config:
        secured = e.secured[host]
        if not isinstance(secured.values, Seen):
            yield unseen(secured.values, needed, host)
        elif QUORUM not in secured.trust:
            yield Judged(True, f"{NO_TLS} between servers", needed, host)
        elif (lost := _unread_store(secured)) is not None:
            yield unseen(lost, needed, host, ("make the stores readable, as dest.certificate says",))
        else:
            wrong = list(dict.fromkeys(_untrusted(c, e, host)))
            closed = [one for one in e.source_config if _unread_store(e.secured[one]) is not None]
            seen = (
                f"not verified with {', '.join(closed)}, as source.stores reports"
                if closed
                else "all verified"
            )
            yield Judged(not wrong, "; ".join(wrong) or seen, needed, host, moves)


def _untrusted(c: Context, e: Evidence, host: str) -> Iterator[str]:
    own = e.secured[host]
    for other, secured in e.secured.items():
        if other == host:
            continue
        pairs = [(secured.keys.get(QUORUM), own.trust.get(QUORUM), other, host)]
        if other in e.source_config:
            pairs.append((own.keys.get(QUORUM), secured.trust.get(QUORUM), host, other))
        for chain, trusted, of, by in pairs:
            if isinstance(chain, Seen) and isinstance(trusted, Seen):
                for reason in verdicts(chain.value, trusted.value, (e.at, until(c, e))):
                    yield f"{by} does not trust {of}'s certificate: {reason}"


def verdicts(chain: Certificates, trusted: Certificates, times: tuple[float, ...]) -> tuple[str, ...]:
    """Return the reasons why a chain is not trusted at these times. dest.certificate judges its own dates."""
    due = [at for at in times if not not_now(chain[0], at)] or [chain[0].not_valid_after_utc.timestamp()]
    return tuple(dict.fromkeys(text for at in due if (text := why_not_trusted(chain, trusted, at))))


def _unread_store(secured: Secured) -> Reading[Certificates] | None:
    stores = [secured.keys.get(QUORUM), secured.trust.get(QUORUM)]
    return next((one for one in stores if one is not None and not isinstance(one, Seen)), None)


@check("source.stores", "the certificates of the source host can be read", Scope.SOURCE, ALWAYS,
       Severity.WARN)  # fmt: skip
def stores(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. zkmigrate reads source with the ssh account's own rights, which seldom may read private keys. Then
    it cannot verify source's certificates. The check only warns, because the join itself proves that source
    and dest trust each other, before any client notices.

    To do: Let the ssh account read the stores, or look at dest's log if a dest host does not join.
    """
    needed = "key store and trust store of the quorum, readable"
    moves = ("let the ssh account read it", "or look at dest's log if a dest host does not join")
    for host in e.source_config:
        secured = e.secured[host]
        if not isinstance(secured.values, Seen):
            yield unseen(secured.values, needed, host)
        elif QUORUM not in secured.trust:
            yield Judged(True, f"{NO_TLS} between servers", needed, host)
        elif (lost := _unread_store(secured)) is not None:
            yield unseen(lost, needed, host, moves)
        else:
            yield Judged(True, "both read", needed, host)


CHECKS = (certificate, certificate_names, trust, stores)
