"""Define how zkmigrate's own clients log in to Kafka and ZooKeeper: the ``client`` sections of the inventory.

A secret stands in the inventory only by reference, and no message shows a value that may be a secret.
:mod:`zkmigrate.secret` reads secrets, when a client needs them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, StringConstraints, model_validator

from zkmigrate.inventory.marked_yaml import Document, Mistake
from zkmigrate.inventory.types import Frozen, LocalPath

Account = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=256)]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
Word = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=4096)]

REFERENCE = "{file: PATH}, {env: NAME} or {command: [PROGRAM, ARGUMENT, …]}"
_SECRETS = ("password", "key_password")
_SHOWN = ("protocol", "mechanism", "user", "ca", "certificate", "key", "verify_hostname")
"""The keys of a ``client`` section with values that a message may show."""
_SEEN = re.compile(r"seen ('.*?'|\".*?\"), ", re.DOTALL)
_HIDDEN: dict[str, str] = {}


class Secret(Frozen):
    """A reference to a secret.

    file: a file that only its owner can read. env: a variable of the environment. command: a program whose
    output is the secret; the first word is its name or path.
    """

    file: LocalPath | None = None
    env: Variable | None = None
    command: Annotated[tuple[Word, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_reference(self) -> Self:
        if sum(one is not None for one in (self.file, self.env, self.command)) != 1:
            raise ValueError("not exactly one reference")
        return self


class Tls(Frozen):
    """The TLS settings of a client.

    ca: the certificates of trusted authorities; without it those of the system. certificate, key: the
    client's own; the certificate's file has the whole chain. verify_hostname: whether a server's certificate
    must name the address to which the client connects. All files are in PEM format.
    """

    ca: LocalPath | None = None
    certificate: LocalPath | None = None
    key: LocalPath | None = None
    key_password: Secret | None = None
    verify_hostname: bool = True

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key need each other")
        if self.key_password is not None and self.key is None:
            raise ValueError("key_password needs key")
        return self


class KafkaClient(Tls):
    """How clients log in to a Kafka cluster. The keys have the meaning of Kafka's client properties."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    user: Account | None = None
    password: Secret | None = None

    @property
    def tls(self) -> bool:
        """Whether the connections use TLS."""
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """Whether the client logs in with user and password."""
        return self.protocol.startswith("SASL")

    @model_validator(mode="after")
    def _fits_protocol(self) -> Self:
        login = {"mechanism": self.mechanism, "user": self.user, "password": self.password}
        files = {"ca": self.ca, "certificate": self.certificate}
        missing = [key for key, value in login.items() if value is None] if self.sasl else []
        unused = [key for key, value in files.items() if value is not None and not self.tls]
        unused += [key for key, value in login.items() if value is not None and not self.sasl]
        if missing:
            raise ValueError(f"{self.protocol} needs {', '.join(missing)}")
        if unused:
            raise ValueError(f"{self.protocol} does not use {', '.join(unused)}")
        return self


class Login(Frozen):
    """A user and the reference to the password."""

    user: Account
    password: Secret


class ZooKeeperClient(Frozen):
    """How clients log in to ZooKeeper.

    tls: the client port speaks TLS. sasl: log in with DIGEST-MD5. digest: also add this identity of the
    ``digest`` scheme. Each is None if clients do not use it.
    """

    tls: Tls | None = None
    sasl: Login | None = None
    digest: Login | None = None


class ZooKeeper(Frozen):
    """The section ``zookeeper``: how zkmigrate's clients log in to source and dest."""

    client: ZooKeeperClient = ZooKeeperClient()


Section = TypeVar("Section", bound=BaseModel | None)


def with_local_paths(section: Section, local: Callable[[str], str]) -> Section:
    """Return a section with absolute paths. local: makes a path of the file absolute."""
    if section is None:
        return section
    found: dict[str, Any] = {}
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            found[name] = with_local_paths(value, local)
        elif isinstance(value, str) and name in ("file", "ca", "certificate", "key"):
            found[name] = local(value)
        elif name == "command" and value and ("/" in value[0]):
            found[name] = (local(value[0]), *value[1:])
    return section.model_copy(update=found)


def hide_variables(inventory: BaseModel) -> None:
    """Take the variables that hold secrets out of the environment, so that no child process inherits them."""
    for part, _ in parts_of(inventory):
        if isinstance(part, Secret) and part.env is not None and part.env in os.environ:
            _HIDDEN[part.env] = os.environ.pop(part.env)


def hidden_variable(name: str) -> str | None:
    """Return a variable that :func:`hide_variables` removed, or None if the environment did not have it."""
    return _HIDDEN.get(name)


def parts_of(value: object, key: str = "") -> Iterator[tuple[BaseModel, str]]:
    """Yield every section in a section of the inventory, and itself, with its key in the file."""
    if isinstance(value, BaseModel):
        yield value, key
        for name, below in value.__dict__.items():
            yield from parts_of(below, f"{key}.{name}" if key else name)
    elif isinstance(value, tuple):
        for at, below in enumerate(value):
            yield from parts_of(below, f"{key}[{at}]")


def without_secret(mistake: Mistake, document: Document) -> Mistake:
    """Return the mistake without the value that was seen, if that may be a secret."""
    path = mistake.path
    if "client" not in path:
        return mistake
    below = path.index("client")
    if at := next((at for at, key in enumerate(path) if at > below and key in _SECRETS), 0):
        place = path[: at + 1]
        return Mistake(document.mark(place), place, f"not a reference to a secret (needed {REFERENCE})")
    if path[-1] in _SHOWN:
        return mistake
    return Mistake(mistake.mark, path, _SEEN.sub("", mistake.reason))
