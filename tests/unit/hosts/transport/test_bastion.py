"""Going through other hosts to a host, and what an ssh_config says of both, against real sshds."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.unit import sshd as daemon
from tests.unit.sshd import Sshd
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Limits, Purpose, Transport
from zkmigrate.inventory.inventory import Inventory

WHENCE = ["sh", "-c", "echo $SSH_CONNECTION"]
PURPOSES: tuple[Purpose, ...] = ("looks", "steps", "watch")


@pytest.fixture(scope="module")
def jump(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A bastion with a host key, a port and limits of its own."""
    with daemon.running(tmp_path_factory.mktemp("jump"), "MaxStartups 8:100:8") as running:
        yield running


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with daemon.running(tmp_path_factory.mktemp("sshd"), "MaxStartups 100") as running:
        yield running


def behind(
    jump: Sshd, sshd: Sshd, tmp_path: Path, *, pins: str = "", hosts: int = 0, **ssh: Any
) -> Inventory:
    """An inventory whose hosts are those of ``sshd``; the bastion takes the same key."""
    made = daemon.inventory(sshd, hosts=hosts)
    key = (sshd.folder / "user_key.pub").read_text()
    (jump.folder / "authorized_keys").write_text(key)
    known = tmp_path / "known_hosts"
    known.write_text(Path(made.ssh.known_hosts).read_text() + (pins or pinned(jump)))
    known.chmod(0o600)
    update = {"known_hosts": str(known), **ssh}
    return made.model_copy(update={"ssh": made.ssh.model_copy(update=update)})


def pinned(jump: Sshd, address: str = "127.0.0.2") -> str:
    return f"[{address}]:{jump.port} {jump.host_key}\n"


def logins(jump: Sshd) -> int:
    """How often somebody logged in to the bastion."""
    return (jump.folder / "sshd.log").read_text().count("Accepted publickey")


def ssh_config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "ssh_config"
    path.write_text(text)
    return str(path)


def test_each_purpose_has_one_login_at_the_bastion_for_all_hosts(
    jump: Sshd, sshd: Sshd, tmp_path: Path
) -> None:
    """The bastion lets no more than eight log in at once, and the hosts are thirteen."""
    inventory = behind(jump, sshd, tmp_path, hosts=12, bastion=f"127.0.0.2:{jump.port}")
    before = logins(jump)
    with Transport(inventory, Limits(attempts=1)) as transport, ThreadPoolExecutor(13) as pool:
        for purpose in PURPOSES:
            hosts = pool.map(
                lambda host, purpose=purpose: transport.connection(host, purpose), inventory.source_names
            )
            assert [c.run(["true"], b"", 10, 1000).rc for c in hosts] == [0] * 13
    assert logins(jump) - before == len(PURPOSES)


def test_a_way_may_have_several_hops(jump: Sshd, sshd: Sshd, tmp_path: Path) -> None:
    way = f"127.0.0.2:{jump.port},{daemon.user()}@127.0.0.2:{sshd.port}"
    before = logins(jump)
    with Transport(behind(jump, sshd, tmp_path, bastion=way)) as transport:
        assert transport.exec("s1", WHENCE).text.split()[2] == "127.0.0.1"
        assert transport.exec("bastion", WHENCE).text.split()[2:] == ["127.0.0.2", str(sshd.port)]
    assert logins(jump) - before == 1


def test_a_bastion_that_is_not_pinned_or_shows_another_key_is_refused(
    jump: Sshd, sshd: Sshd, tmp_path: Path
) -> None:
    way = f"127.0.0.2:{jump.port}"
    for pins, said in (
        (pinned(jump, "127.0.0.9"), "shows the key"),
        (f"[{way[:9]}]:{jump.port} ", "changed"),
    ):
        other = sshd.host_key if said == "changed" else ""
        inventory = behind(jump, sshd, tmp_path, pins=pins + other + "\n" * bool(other), bastion=way)
        error = daemon.refused(inventory, said)
        assert (error.cause, error.host) == ("denied", f"bastion {way}")


def test_a_host_that_the_bastion_cannot_reach_is_named_with_it(
    jump: Sshd, sshd: Sshd, tmp_path: Path
) -> None:
    inventory = behind(jump, sshd, tmp_path, bastion=f"127.0.0.2:{jump.port}", port=free_port())
    error = daemon.refused(inventory, "cannot connect to")
    assert (error.host, error.cause) == ("s1", "unreachable")
    assert f"bastion 127.0.0.2:{jump.port}" in str(error)


def test_a_bastion_that_forwards_nothing_says_so(sshd: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "jump"
    folder.mkdir()
    with daemon.running(folder, "AllowTcpForwarding no") as jump:
        inventory = behind(jump, sshd, tmp_path, bastion=f"127.0.0.2:{jump.port}")
        error = daemon.refused(inventory, "AllowTcpForw")
    assert error.cause == "denied"
    assert error.host.startswith("bastion ")


def test_hosts_are_reached_again_after_the_bastion_dropped_its_connection(
    jump: Sshd, sshd: Sshd, tmp_path: Path
) -> None:
    inventory = behind(jump, sshd, tmp_path, bastion=f"127.0.0.2:{jump.port}")
    with Transport(inventory) as transport:
        assert transport.exec("s1", ["true"]).rc == 0
        with pytest.raises(TransportError):
            transport.exec("bastion", ["sh", "-c", "kill -9 $PPID; sleep 1"])
        transport.connection("s1").close()
        assert transport.exec("s1", ["true"]).rc == 0


def test_ssh_config_says_host_port_user_key_and_way(jump: Sshd, sshd: Sshd, tmp_path: Path) -> None:
    """The inventory's own port, user and key are wrong here; what it says stands where the file is silent."""
    key, pins = sshd.folder / "user_key", tmp_path / "more_hosts"
    pins.write_text(pinned(jump))
    pins.chmod(0o600)
    text = (
        f"Host s1\n HostName 127.0.0.1\n Port {sshd.port}\n ProxyJump gate\n"
        f"Host gate\n HostName 127.0.0.2\n Port {jump.port}\n UserKnownHostsFile {pins}\n"
        f"Host s1 gate\n User {daemon.user()}\n IdentityFile {key}\n StrictHostKeyChecking no\n"
    )
    nothing = "# no key of the bastion\n"
    inventory = behind(
        jump, sshd, tmp_path, pins=nothing, user="nobody-here", port=free_port(),
        key=str(daemon.make_key(tmp_path / "stranger")), config=ssh_config(tmp_path, text),
    )  # fmt: skip
    before = logins(jump)
    with Transport(inventory) as transport:
        assert transport.exec("s1", WHENCE).text.split()[2] == "127.0.0.1"
        assert transport.user("s1") == daemon.user()
        assert transport.user("d1") == "nobody-here"
    assert logins(jump) - before == 1


def test_ssh_config_does_not_switch_the_check_of_host_keys_off(
    jump: Sshd, sshd: Sshd, tmp_path: Path
) -> None:
    text = "Host *\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
    inventory = behind(
        jump, sshd, tmp_path, pins="# no key of the bastion\n", bastion=f"127.0.0.2:{jump.port}",
        config=ssh_config(tmp_path, text),
    )  # fmt: skip
    assert daemon.refused(inventory, "shows the key").cause == "denied"


def test_a_host_is_found_in_ssh_config_by_its_address_too(sshd: Sshd, tmp_path: Path) -> None:
    config = ssh_config(tmp_path, f"Host 127.0.0.*\n Port {sshd.port}\n")
    inventory = daemon.with_ssh(daemon.inventory(sshd), port=free_port(), config=config)
    with Transport(inventory) as transport:
        assert transport.exec("s1", ["true"]).rc == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Host *\n ProxyCommand nc %h %p\n", "ProxyCommand nc.*ProxyJump"),
        ("Host s1\n Nonsense yes\n", "ssh refuses it.*"),
        ("Host a\n ProxyJump b\nHost b\n ProxyJump a\nHost s1\n HostName x\n ProxyJump a\n", "is a loop"),
        ("Host s1\n HostName x\n User 'Robert; id'\n", "not a plain account name|ssh refuses it"),
    ],
)
def test_what_ssh_config_says_and_zkmigrate_cannot_do_is_refused(
    sshd: Sshd, tmp_path: Path, text: str, said: str
) -> None:
    inventory = daemon.with_ssh(daemon.inventory(sshd), config=ssh_config(tmp_path, text))
    assert daemon.refused(inventory, said).cause == "denied"


def test_an_ssh_config_that_is_not_there_is_named(sshd: Sshd, tmp_path: Path) -> None:
    inventory = daemon.with_ssh(daemon.inventory(sshd), config=str(tmp_path / "none"))
    daemon.refused(inventory, r"ssh\.config \S*none is not a file")
