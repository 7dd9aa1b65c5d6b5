"""Checks of TLS settings: those that source and dest share, and the TLS versions that brokers speak.

Sources: X509Util, ClientX509Util and QuorumX509Util of ZooKeeper, KafkaConfig.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zkmigrate.move.facts.secured import PREFIX, QUORUM, tls_kinds
from zkmigrate.move.preflight.check import ALWAYS, Judged, Scope, check
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.preflight.jaas import settings_of
from zkmigrate.move.preflight.login_settings import differences, unread
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.step import Context

NO_TLS = "no TLS"
_ALWAYS = {"sslQuorum": "false", "portUnification": "false", "client.portUnification": "false"}
_NEEDED = "the same as on every source host"


def _per_kind(kind: str) -> dict[str, str]:
    prefix = PREFIX[kind]
    return {f"{prefix}clientAuth": "need", f"{prefix}hostnameVerification": "true"}


@check("dest.tls-settings", "dest's servers use TLS as source's do", Scope.DEST, ALWAYS)
def tls_settings(_c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. A dest host with TLS never joins a quorum without it, and the other way round. A dest host that
    asks clients for certificates where source does not loses those clients. One that asks for less than
    source is less secure after the move.

    To do: Set the keys that the finding names in dest.settings as source has them.
    """
    moves = ("set these keys in dest.settings as source has them",)
    for host in e.dest_config:
        kinds = {kind for one in (host, *e.source_config) for kind in tls_kinds(settings_of(e.secured[one]))}
        keys = _ALWAYS | {key: value for kind in sorted(kinds) for key, value in _per_kind(kind).items()}
        wrong = list(
            dict.fromkeys((*differences(e, host, keys), *_secure_port(e, host), *_versions(e, host)))
        )
        if wrong:
            yield Judged(False, "; ".join(wrong), _NEEDED, host, moves)
        else:
            seen = "TLS as on source" if kinds else NO_TLS
            yield unread(e, host, _NEEDED) or Judged(True, seen, _NEEDED, host)


def _secure_port(e: Evidence, host: str) -> Iterator[str]:
    own = settings_of(e.secured[host])
    mine = bool(own.get("secureClientPort"))
    if mine and "NettyServerCnxnFactory" not in own.get("serverCnxnFactory", ""):
        yield "secureClientPort without serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"
    for other in e.source_config if isinstance(e.secured[host].values, Seen) else ():
        if not isinstance(e.secured[other].values, Seen):
            continue
        if mine != bool(settings_of(e.secured[other]).get("secureClientPort")):
            yield f"secureClientPort: only {host if mine else other} has it"


def _versions(e: Evidence, host: str) -> Iterator[str]:
    """Yield source hosts with which this host has no TLS version in common. Servers' defaults agree."""
    mine = given_versions(settings_of(e.secured[host]), PREFIX[QUORUM])
    for other in e.source_config:
        theirs = given_versions(settings_of(e.secured[other]), PREFIX[QUORUM])
        if mine and theirs and not mine & theirs:
            yield f"TLS versions of the quorum: {spelled_out(mine)}, {other} {spelled_out(theirs)}"


def given_versions(
    values: Mapping[str, str], prefix: str, enabled: str = "enabledProtocols"
) -> frozenset[str]:
    """Return the TLS versions that the settings name; empty if they name none."""
    given = values.get(f"{prefix}{enabled}", "") or values.get(f"{prefix}protocol", "")
    return frozenset(word.strip() for word in given.split(",") if word.strip() not in ("", "TLS"))


def spelled_out(versions: frozenset[str]) -> str:
    return ", ".join(sorted(versions))


CHECKS = (tls_settings,)
