"""Log the lab's own clients in to ZooKeeper: TLS, SASL with DIGEST-MD5, and the scheme digest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from zkmigrate.inventory import login
from zkmigrate.zookeeper.clients.login import Connection, Credentials, log_in_with


class _Persistent(Connection):
    """A connection that is made again after it was lost during the login.

    So kazoo never takes that for a refused password, which would end the client. A wrong password is
    therefore tried for ever where servers only close the connection (3.5).
    """

    def _lost(self, error: Exception) -> NoReturn:
        raise error


def _user(name: str, file: str) -> login.Login | None:
    """Return a user with the file of the password; None without a user."""
    return login.Login(user=name, password=login.Secret(file=file)) if name else None


@dataclass(frozen=True)
class Login:
    """How a client logs in; an empty text stands for what it does not use.

    ca, certificate, key: PEM files for TLS. sasl_user, digest_user: the user of DIGEST-MD5, and that of the
    scheme digest. sasl_password, digest_password: the files with their passwords.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    sasl_user: str = ""
    sasl_password: str = ""
    digest_user: str = ""
    digest_password: str = ""

    def credentials(self) -> Credentials:
        """Return the same for the product's clients."""
        tls = login.Tls(ca=self.ca, certificate=self.certificate, key=self.key) if self.ca else None
        sasl = _user(self.sasl_user, self.sasl_password)
        digest = _user(self.digest_user, self.digest_password)
        return Credentials(login.ZooKeeperClient(tls=tls, sasl=sasl, digest=digest))

    @property
    def acl(self) -> Any:
        """The ACL, in kazoo's form, of what the client creates: with a digest user only its identities."""
        return CREATOR_ALL_ACL if self.digest_user else OPEN_ACL_UNSAFE

    def client(self, hosts: str, **options: Any) -> KazooClient:
        """Return a client that logs in at each connection. It is not started."""
        if self.ca:
            options |= {"use_ssl": True, "check_hostname": True}
            options |= {"ca": self.ca, "certfile": self.certificate, "keyfile": self.key}
        credentials = self.credentials()
        if self.digest_user:
            options["auth_data"] = [("digest", credentials.digest())]
        made = KazooClient(hosts=hosts, **options)
        log_in_with(made, credentials, _Persistent)
        return made


OPEN = Login()
"""The login of a client that needs none."""
