"""A session on dest that comes from a broker's host: is it the broker's, or another program's there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import pytest

from tests.world.operator import inventory
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.tenants import Tenant, Tenants, foreign_clients
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data.four_letter_words import Connection, Dump

WORLD = inventory()
SILENT = Unknown("timeout", "no answer in 3 s")
CHROOT = WORLD.kafka.chroot
BROKER1, BROKER2 = (WORLD.broker(name).address for name in ("broker1", "broker2"))
REGISTERED = {0x11: (f"{CHROOT}/brokers/ids/1", f"{CHROOT}/controller"), 0x12: (f"{CHROOT}/brokers/ids/2",)}
PLAIN, AUTHORIZED = b"broker.id=2\n", b"authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n"


class Files:
    """The brokers' files, and who was asked for one."""

    def __init__(self, content: Reading[bytes]) -> None:
        self.content = content
        self.asked: list[str] = []

    def each(self, hosts: Iterable[str], _ask: object) -> Mapping[str, object]:
        assert not list(hosts), "every host has told its clients"
        return {}

    def file(self, host: str, path: str) -> Reading[bytes]:
        assert path == WORLD.kafka.config
        self.asked.append(host)
        return self.content


def clients(
    *sessions: tuple[str, int],
    owned: Mapping[int, tuple[str, ...]] = REGISTERED,
    content: Reading[bytes] = Seen(PLAIN),  # noqa: B008
    dump: bool = True,
) -> tuple[Tenants, list[str]]:
    """Both brokers are connected to dest1, the others of these to dest2; who is found, and whose file was
    read."""
    connected = {"dest1": ((BROKER1, 0x11), (BROKER2, 0x12)), "dest2": sessions, "dest3": ()}
    cons: dict[str, Reading[tuple[Connection, ...]]] = {
        host: Seen(tuple(Connection(address, 40000, 0, 1, 1, session, 18000) for address, session in there))
        for host, there in connected.items()
    }
    told: Reading[Dump] = Seen(Dump({}, owned)) if dump else SILENT
    dumps: dict[str, Reading[Dump]] = {"dest1": SILENT, "dest2": told, "dest3": SILENT}
    files = Files(content)
    return foreign_clients(WORLD, KAFKA, cast(Look, files), cons, dumps), files.asked


def beside2(count: int, *owns: str) -> Tenant:
    return Tenant(BROKER2, ("dest2",), count, owns, "broker2")


def test_a_broker_is_known_by_its_registration_and_its_file_is_not_read_for_it() -> None:
    assert clients() == (Tenants((), ()), [])


LOCK = "/other/lock-1"
MORE: dict[str, tuple[tuple[int, ...], Mapping[int, tuple[str, ...]], bytes, tuple[Tenant, ...]]] = {
    "one that owns nothing": ((0x77,), {}, PLAIN, (beside2(1),)),
    "one that owns something": ((0x77,), {0x77: (LOCK,)}, PLAIN, (beside2(1, LOCK),)),
    "two": ((0x77, 0x78), {0x78: (LOCK,)}, PLAIN, (beside2(2, LOCK),)),
    "one that registered another broker": (
        (0x77,), {0x77: (f"{CHROOT}/brokers/ids/3",)}, PLAIN, (beside2(1, f"{CHROOT}/brokers/ids/3"),),
    ),
    "the authorizer": ((0x77,), {}, AUTHORIZED, ()),
    "the authorizer and another": ((0x77, 0x78), {}, AUTHORIZED, (beside2(1),)),
    "one that is no authorizer's": ((0x77,), {0x77: (LOCK,)}, AUTHORIZED, (beside2(1, LOCK),)),
    "an authorizer's key without a value": ((0x77,), {}, b"authorizer.class.name=\n", (beside2(1),)),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_who_else_comes_from_a_brokers_host(name: str) -> None:
    sessions, owned, content, expected = MORE[name]
    found, _ = clients(
        *((BROKER2, s) for s in sessions), owned={**REGISTERED, **owned}, content=Seen(content)
    )
    assert found == Tenants(expected, ())


def test_without_a_dump_nobody_is_known_for_a_broker() -> None:
    found, _ = clients(dump=False)
    assert found == Tenants((), tuple(f"{name}: dump: {SILENT}" for name in ("broker1", "broker2")))


def test_a_file_that_is_not_read_leaves_open_whether_it_is_the_authorizer() -> None:
    found, asked = clients((BROKER2, 0x77), content=SILENT)
    assert (found.found, asked) == ((), ["broker2"])
    [unknown] = found.unknown
    assert unknown == f"broker2: {WORLD.kafka.config}, whether it has an authorizer: {SILENT}"


def test_it_is_said_beside_whom() -> None:
    assert beside2(2, LOCK).words() == f"2 sessions in addition to those of broker2 on dest2, owns {LOCK}"
