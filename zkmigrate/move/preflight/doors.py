"""Checks of the ways by which zkmigrate and the dest hosts ask servers that need TLS or a login."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zkmigrate.move.facts.secured import is_on
from zkmigrate.move.preflight.check import ALWAYS, Judged, Scope, check, unseen
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.preflight.jaas import settings_of
from zkmigrate.move.preflight.security import clients_use_sasl
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.data.zoocfg import ADMIN_PORT
from zkmigrate.zookeeper.facts.config import ANY_ADDRESS


@check("dest.admin-server", "the dest host's AdminServer answers where clients need TLS", Scope.DEST, ALWAYS)
def admin_server(c: Context, e: Evidence) -> Iterator[Judged]:
    """P20. zkm-host has no certificate. Where dest has no port without TLS, the dest hosts ask each other's
    AdminServer, also to finish the window alone. So the AdminServer must run, without TLS, on all addresses,
    at the port that dest.settings names.

    To do: Remove the setting that the finding names from dest.settings and dest's JVM flags.
    """
    dest = c.inventory.dest
    needed = f"AdminServer at port {dest.admin_port}, without TLS, on all addresses"
    moves = ("remove the setting from dest.settings and dest's JVM flags, or set it as needed",)
    for host in e.dest_config:
        values = e.secured[host].values
        if dest.ports.client is not None:
            yield Judged(True, f"port {dest.ports.client} answers without TLS", needed, host)
        elif not isinstance(values, Seen):
            yield unseen(values, needed, host)
        else:
            wrong = list(_closed(values.value, dest.admin_port))
            yield Judged(not wrong, "; ".join(wrong) or f"port {dest.admin_port}", needed, host, moves)


def _closed(values: Mapping[str, str], port: int) -> Iterator[str]:
    if values.get("admin.enableServer", "true").lower() == "false":
        yield "admin.enableServer=false"
    if (given := values.get("admin.serverPort", str(ADMIN_PORT))) != str(port):
        yield f"admin.serverPort={given} in the JVM's flags, not in dest.settings"
    address = values.get("admin.serverAddress", ANY_ADDRESS[0])
    if address not in ANY_ADDRESS:
        yield f"admin.serverAddress={address}"
    if (url := values.get("admin.commandURL", "/commands")) != "/commands":
        yield f"admin.commandURL={url}"
    yield from (f"{key}=true" for key in ("admin.forceHttps", "admin.needClientAuth") if is_on(values, key))


@check("operator.zookeeper-client", "migration.yml says how zkmigrate logs in to ZooKeeper", Scope.CLUSTER,
       ALWAYS)  # fmt: skip
def zookeeper_client(c: Context, e: Evidence) -> Iterator[Judged]:
    """P04. Where ZooKeeper has a port with TLS, zkmigrate uses it, and needs zookeeper.client.tls to ask
    anything. Where clients log in with SASL, znodes may belong to them. Without a login zkmigrate cannot read
    those znodes, and a proof would lack them.

    To do: Write the section zookeeper.client into migration.yml, with tls, sasl or digest as the finding
    says.
    """
    inventory, client = c.inventory, c.inventory.zookeeper.client
    sides = {"source": inventory.source.ports, "dest": inventory.dest.ports}
    wrong = [
        f"zookeeper.client.tls is missing, and zkmigrate uses {side}'s port {ports.secure}, with TLS"
        for side, ports in sides.items()
        if ports.secure is not None and client.tls is None
    ]
    sasl = [host for host, one in e.secured.items() if clients_use_sasl(settings_of(one))]
    forced = [host for host in sasl if _forces(settings_of(e.secured[host]))]
    if forced and client.sasl is None:
        wrong.append(
            f"zookeeper.client.sasl is missing, and {', '.join(forced)} serve only who has logged in"
        )
    elif sasl and client.sasl is None and client.digest is None:
        wrong.append(f"zookeeper.client has no sasl and no digest, and clients of {', '.join(sasl)} use SASL")
    needed = "a section zookeeper.client that fits the servers"
    moves = ("write the section zookeeper.client into migration.yml",)
    of_source = [e.secured[host].values for host in e.source_config]
    lost = next((values for values in of_source if not isinstance(values, Seen)), None)
    if not wrong and lost is not None:
        yield unseen(lost, needed)
    else:
        yield Judged(not wrong, "; ".join(wrong) or "it does", needed, moves=moves)


def _forces(values: Mapping[str, str]) -> bool:
    return is_on(values, "sessionRequireClientSASLAuth") or is_on(values, "enforce.auth.enabled")


CHECKS = (admin_server, zookeeper_client)
