"""What: install zkm-host on the brokers on whose disks something is to be moved aside.

Why now: a directory is moved only with an operation id and a record on its host, so that it can go back.

Clients may notice: nothing.

Way back: remove it, its sudoers file and the run's state, where it was not there before.

Proof: the installed file has the digest of the one in this package.
"""

from __future__ import annotations

from zkmigrate.dependents.kafka import KAFKA
from zkmigrate.hosts import zkm_host
from zkmigrate.model.look import Look
from zkmigrate.model.step import Context
from zkmigrate.moves.steps.install import InstallStep, Programs


class InstallOnNamedStep(InstallStep):
    title = "Install zkm-host where a directory is named"

    def __init__(self) -> None:
        super().__init__(KAFKA, keep=True)

    def observe(self, c: Context, look: Look) -> Programs:
        hosts = c.inventory.hosts.get("brokers", ())
        return look.each(hosts, lambda host: look.file(host, zkm_host.INSTALLED_PATH))
