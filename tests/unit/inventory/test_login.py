"""The sections ``client``: how zkmigrate's clients log in, with secrets only by reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.inventory.test_inventory import GOOD
from zkmigrate.errors import InventoryError
from zkmigrate.inventory.inventory import Inventory, digest, load

ZOOKEEPER = "zookeeper:\n  client:\n"
KAFKA = "  client:\n"
SASL = f"{KAFKA}    protocol: SASL_PLAINTEXT\n    mechanism: PLAIN\n    user: tool\n"
PLANTED = "hunter2-planted"


def loaded(folder: Path, more: str) -> Inventory:
    """GOOD ends in its section ``kafka``."""
    path = folder / "migration.yml"
    path.write_text(GOOD + more)
    return load(path)


def refused(folder: Path, more: str) -> str:
    with pytest.raises(InventoryError) as caught:
        loaded(folder, more)
    return "\n".join(line.partition(": ")[2] for line in str(caught.value).splitlines())


def test_files_are_relative_to_the_inventory_and_a_program_without_a_slash_is_searched(
    tmp_path: Path,
) -> None:
    tls = "tls: {ca: ca.pem, certificate: my.pem, key: my.key, key_password: {file: kept/key}}"
    sasl = "sasl: {user: tool, password: {command: [pass, show, zk/x]}}"
    digest_of = "digest: {user: super, password: {command: [./tell, zk/x]}}"
    client = loaded(tmp_path, f"{ZOOKEEPER}    {tls}\n    {sasl}\n    {digest_of}\n").zookeeper.client
    assert client.tls is not None
    assert client.tls.key_password is not None
    assert (client.tls.ca, client.tls.certificate, client.tls.key, client.tls.key_password.file) == tuple(
        str(tmp_path / name) for name in ("ca.pem", "my.pem", "my.key", "kept/key")
    )
    assert client.sasl is not None
    assert client.sasl.password.command == ("pass", "show", "zk/x")
    assert client.digest is not None
    assert client.digest.password.command == (str(tmp_path / "tell"), "zk/x")


def test_how_clients_log_in_may_change_during_a_run(tmp_path: Path) -> None:
    plain = digest(loaded(tmp_path, ""))
    assert (
        digest(loaded(tmp_path, f"{SASL}    password: {{env: ZKM_TEST_ONE}}\n{ZOOKEEPER}    tls: {{}}\n"))
        == plain
    )


@pytest.mark.parametrize(
    "value",
    [
        PLANTED, f"'{PLANTED}'", f"!{PLANTED} x", f"&{PLANTED} x", f"*{PLANTED}", f"[{PLANTED}]",
        f"{{value: {PLANTED}}}", f"{{{PLANTED}}}", f"{{file: 'a b {PLANTED}'}}", f"{{env: a-{PLANTED}}}",
        f"{{file: a, env: {PLANTED}}}", f"{{command: {PLANTED}}}", f"{{command: [{{x: {PLANTED}}}]}}",
        f"|\n      {PLANTED}", f"0x1 {PLANTED}",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "section",
    [
        f"{SASL}    password: ",
        f"{ZOOKEEPER}    sasl:\n     user: tool\n     password: ",
        f"{ZOOKEEPER}    digest:\n     user: tool\n     password: ",
        f"{ZOOKEEPER}    tls:\n     certificate: a\n     key: a\n     key_password: ",
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_shown(tmp_path: Path, section: str, value: str) -> None:
    told = refused(tmp_path, f"{section}{value}\n")
    assert PLANTED not in told
    assert "password: not a reference to a secret (needed {file: PATH}, {env: NAME} or" in told


@pytest.mark.parametrize(
    "more",
    [
        f"{KAFKA[:-1]} {PLANTED}\n",
        f"{ZOOKEEPER}    sasl: 'tool:{PLANTED}'\n",
        f"{ZOOKEEPER}    digest: tool:{PLANTED}\n",
        f"{ZOOKEEPER}    tls: {PLANTED}\n",
        f"{SASL}    pasword: {PLANTED}\n",
        f"{SASL}    password: @{PLANTED}\n",
        f'{SASL}    password: "\\q{PLANTED}"\n',
        f"{SASL}    password: !{PLANTED}!x y\n",
        f"{SASL}    password: !<{PLANTED}\n",
        f"{SASL}    password: %{PLANTED}\n",
        f"{SASL}    password: `{PLANTED}\n",
        f"{SASL}    password: x: {PLANTED}: y\n",
        f"{SASL}    password: '{PLANTED}\n",
    ],
)
def test_a_secret_at_a_wrong_place_is_not_shown_either(tmp_path: Path, more: str) -> None:
    assert PLANTED not in refused(tmp_path, more)


@pytest.mark.parametrize(
    ("client", "told"),
    [
        ("{protocol: SASL_SSL, mechanism: PLAIN, user: a}", "SASL_SSL needs password"),
        ("{protocol: SASL_SSL, mechanism: PLAIN, user: a, password: }", "SASL_SSL needs password"),
        ("{protocol: SASL_SSL, password: {env: A}}", "SASL_SSL needs mechanism, user"),
        ("{protocol: SSL, user: a}", "SSL does not use user"),
        ("{protocol: PLAINTEXT, ca: a, certificate: b, key: c}", "PLAINTEXT does not use ca, certificate"),
        ("{protocol: SSL, key: a}", "certificate and key need each other"),
        ("{protocol: SSL, key_password: {env: A}}", "key_password needs key"),
        ("{protocol: SASL_SSL, mechanism: GSSAPI}", "mechanism: not one of the values (seen 'GSSAPI'"),
        ("{protocol: SSL, ca: 'a b'}", "ca: not allowed (seen 'a b', needed a file name without"),
        ("{protocol: SSL, verify_hostname: 1}", "verify_hostname: "),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(tmp_path: Path, client: str, told: str) -> None:
    assert told in refused(tmp_path, f"{KAFKA[:-1]} {client}\n")


def test_nothing_shows_a_variable_that_was_taken_out_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKM_TEST_SHOWN", PLANTED)
    inventory = loaded(tmp_path, f"{SASL}    password: {{env: ZKM_TEST_SHOWN}}\n")
    assert PLANTED not in f"{inventory!r}{inventory}{inventory.model_dump_json()}"
