"""Read and check the gateway's configuration file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from zkmigrate import input_file
from zkmigrate.errors import InventoryError
from zkmigrate.inventory import marked_yaml
from zkmigrate.inventory.inventory import local_path
from zkmigrate.inventory.login import REFERENCE, Tls, hide_variables, with_local_paths
from zkmigrate.topics.gateway.rules.plan import OTHERS, Plan, Port, Reading, Who
from zkmigrate.topics.gateway.serving.certificates import Certificates, read

_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
_Node = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,8})$")]
_Host = Annotated[
    str, StringConstraints(pattern=r"^[0-9A-Za-z]([0-9A-Za-z.:-]*[0-9A-Za-z])?$", max_length=253)
]
_Broker = Annotated[
    str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z.-]*:[1-9][0-9]{0,4}$", max_length=260)
]
_Folder = Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._/@%+-]*$", max_length=80)]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=255)]
_SECRETS = frozenset({"key_password"})
_Port = Annotated[int, Field(ge=1, le=65535)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ListenerTls(Tls):
    """The TLS settings of a listener.

    ca: the authorities of clients' certificates. With it, a client without a certificate is refused.
    """

    @model_validator(mode="after")
    def _serves(self) -> Self:
        if self.certificate is None:
            raise ValueError("needed: certificate and key, because clients check the gateway")
        if not self.verify_hostname:
            raise ValueError("verify_hostname is not for listeners: clients have no names to verify")
        return self


class Listener(_Strict):
    """A set of ports that clients connect to.

    advertise: the host that clients connect to. read_only: the name of the cluster that serves the listener,
    if its clients may only read. mirrored_groups: the groups whose offsets a mirror commits on that cluster.
    tls: the certificate that clients see; without it the ports speak plain text.
    ports: port numbers by cluster and node id.
    """

    advertise: _Host
    read_only: _Name | None = None
    mirrored_groups: list[_Text] = []
    tls: ListenerTls | None = None
    ports: dict[_Name, dict[_Node, _Port]]


class Application(_Strict):
    """An application in the configuration file.

    route: the cluster that serves the application first. The other keys select the clients of the
    application.
    """

    route: _Name
    listener: _Name | None = None
    client_ids: list[_Text] = []
    principals: list[_Text] = []


class Config(_Strict):
    """The content of the configuration file.

    state: the folder of the record and the socket. listen: the address on which all ports listen. clusters:
    the address of each broker, by cluster and node id. route: the cluster that first serves the clients which
    belong to no application. tls: how to reach the brokers of a cluster with TLS; a cluster without a section
    is reached in plain text. frame_bytes: the largest request in bytes.
    """

    state: _Folder
    listen: _Host = "0.0.0.0"
    clusters: dict[_Name, dict[_Node, _Broker]] = Field(min_length=1)
    listeners: dict[_Name, Listener] = Field(min_length=1)
    apps: dict[_Name, Application] = {}
    route: _Name
    tls: dict[_Name, Tls] = {}
    frame_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 30)] = 104_857_600
    connections: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    connections_per_address: Annotated[int, Field(ge=1, le=100_000)] = 2_500

    @property
    def routes(self) -> dict[str, str]:
        """The first cluster of each application by name."""
        return {name: app.route for name, app in self.apps.items()} | {OTHERS: self.route}

    def certificates(self) -> Certificates:
        """Read all certificates and keys from their files. Raises SecretError."""
        listeners = {name: one.tls for name, one in self.listeners.items() if one.tls is not None}
        return read(listeners, self.tls)

    def plan(self) -> Plan:
        """Return the configuration in the form that the gateway uses."""
        return Plan(
            {
                name: {int(node): broker for node, broker in nodes.items()}
                for name, nodes in self.clusters.items()
            },
            {
                Port(name, cluster, int(node)): port
                for name, listener in self.listeners.items()
                for cluster, ports in listener.ports.items()
                for node, port in ports.items()
            },
            {name: listener.advertise for name, listener in self.listeners.items()},
            {
                name: Who(app.listener or "", tuple(app.client_ids), tuple(app.principals))
                for name, app in self.apps.items()
            },
            {
                name: Reading(listener.read_only, tuple(listener.mirrored_groups))
                for name, listener in self.listeners.items()
                if listener.read_only
            },
        )


def load(path: Path) -> Config:
    """Read and check the configuration file. Raises InventoryError with one line for each mistake."""
    try:
        text = input_file.content(path, marked_yaml.MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InventoryError(f"{path}: the file cannot be read: {error}") from None
    document = marked_yaml.parse(text)
    mistakes = list(document.mistakes)
    config: Config | None = None
    if not mistakes and not isinstance(document.value, dict):
        mistakes.append(marked_yaml.Mistake(document.mark(()), (), "the file is not a mapping"))
    if not mistakes:
        try:
            config = Config.model_validate(document.value)
        except ValidationError as error:
            mistakes += (_mistake(one, document) for one in error.errors(include_url=False))
    if config is not None:
        mistakes += (marked_yaml.Mistake(document.mark(place), place, why) for place, why in _crossed(config))
    if mistakes or config is None:
        raise InventoryError(
            "\n".join(
                f"{path}:{one.mark.line}: {marked_yaml.dotted(one.path)}: {one.reason}"
                for one in sorted(mistakes, key=lambda one: one.mark)
            )
        )
    return _with_local_paths(config, path)


def _with_local_paths(config: Config, path: Path) -> Config:
    """Return the configuration with absolute paths. path: the file, whose folder relative paths begin at."""
    for one in (*(listener.tls for listener in config.listeners.values()), *config.tls.values()):
        if one is not None:
            hide_variables(one)
    local = partial(local_path, path)
    listeners = {
        name: one.model_copy(update={"tls": with_local_paths(one.tls, local)})
        for name, one in config.listeners.items()
    }
    tls = {name: with_local_paths(one, local) for name, one in config.tls.items()}
    return config.model_copy(update={"listeners": listeners, "tls": tls})


def _mistake(error: Any, document: marked_yaml.Document) -> marked_yaml.Mistake:
    place = tuple(part for part in error["loc"] if part != "[key]")
    reason = {"extra_forbidden": "this key is unknown", "missing": "this key is missing"}.get(error["type"])
    if any(key in _SECRETS for key in place):
        reason = f"this is not a reference to a secret; needed: {REFERENCE}"
    if error["type"] == "value_error":
        reason = error["msg"].removeprefix("Value error, ")
    seen = "" if reason else f" (seen {str(error['input'])[:40]!r})"
    return marked_yaml.Mistake(document.mark(place), place, (reason or error["msg"]) + seen)


def _crossed(config: Config) -> Iterator[tuple[marked_yaml.Path, str]]:
    """Yield the mistakes that concern more than one key, each as its position in the file and a text."""
    for name, nodes in config.clusters.items():
        if not nodes:
            yield ("clusters", name), "the cluster has no node"
    brokers = Counter(one for nodes in config.clusters.values() for one in nodes.values())
    for name, nodes in config.clusters.items():
        for node, broker in nodes.items():
            if brokers[broker] > 1:
                yield (
                    ("clusters", name, node),
                    f"{broker} is the address of {brokers[broker]} nodes; needed: one address for each node",
                )
    ports = Counter(
        port for one in config.listeners.values() for nodes in one.ports.values() for port in nodes.values()
    )
    for name, listener in config.listeners.items():
        for cluster in listener.ports.keys() - config.clusters.keys():
            yield ("listeners", name, "ports", cluster), "no cluster has this name"
        yield from _reading(config, name, listener)
        for cluster, nodes in config.clusters.items():
            if listener.read_only not in (None, cluster):
                continue
            own = listener.ports.get(cluster, {})
            if own.keys() != nodes.keys():
                seen, needed = ", ".join(sorted(own)) or "none", ", ".join(sorted(nodes))
                yield (
                    ("listeners", name, "ports", cluster),
                    f"the listener has ports for nodes {seen}; needed: ports for {needed}",
                )
            for node, port in own.items():
                if ports[port] > 1:
                    yield (
                        ("listeners", name, "ports", cluster, node),
                        f"port {port} is used for {ports[port]} nodes; needed: a port for each node",
                    )
    for name, app in config.apps.items():
        if name == OTHERS:
            yield ("apps", name), f"{OTHERS} is reserved for all other clients"
        if app.listener and app.listener not in config.listeners:
            yield ("apps", name, "listener"), "no listener has this name"
        if not (app.listener or app.client_ids or app.principals):
            yield (
                ("apps", name),
                "the application names no client; needed: listener, client_ids or principals",
            )
        if app.route not in config.clusters:
            yield ("apps", name, "route"), "no cluster has this name"
    for name in config.tls.keys() - config.clusters.keys():
        yield ("tls", name), "no cluster has this name"
    if config.route not in config.clusters:
        yield ("route",), "no cluster has this name"


def _reading(config: Config, name: str, listener: Listener) -> Iterator[tuple[marked_yaml.Path, str]]:
    """Yield the mistakes of a read-only listener, each as its position in the file and a text."""
    if listener.read_only is None:
        if listener.mirrored_groups:
            yield ("listeners", name, "mirrored_groups"), "this key needs the key read_only"
        return
    if listener.read_only not in config.clusters:
        yield ("listeners", name, "read_only"), "no cluster has this name"
    for cluster in listener.ports.keys() & config.clusters.keys() - {listener.read_only}:
        yield (
            ("listeners", name, "ports", cluster),
            f"the listener is read-only, with ports for cluster {listener.read_only} only",
        )
    if name in (*config.apps, OTHERS):
        yield (
            ("listeners", name),
            "an application has this name too; needed: another name, because the listener has its own counts",
        )
    for app, told in config.apps.items():
        if told.listener == name:
            yield (
                ("apps", app, "listener"),
                "this listener is read-only and ignores routes; needed: a listener that is not read-only",
            )
