"""Files that never end and numbers without a meaning: every verb refuses them at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from zkmigrate.cli import flags
from zkmigrate.cli.main import cli
from zkmigrate.cluster.reassign import section
from zkmigrate.errors import ZkmigrateError
from zkmigrate.runbook.engine import planfile
from zkmigrate.zookeeper.disks import manifest

MIRROR = ("mirror", "plan", "--source", "127.0.0.1:1", "--target", "127.0.0.1:2", "--topic", "t")


@pytest.mark.parametrize("endless", ["pipe", "/dev/zero"])
@pytest.mark.parametrize(
    "words",
    [
        ("placement", "rebuild", "--cluster", "FILE"),
        ("placement", "rebuild", "--inventory", "FILE"),
        ("preflight", "-i", "FILE"),
        ("analyze", "placement", "--what-if", "FILE", "--out", "out"),
        ("gateway", "serve", "--config", "FILE"),
        (*MIRROR, "--source-config", "FILE"),
        (*MIRROR, "--source-config", "tls.properties"),
        (*MIRROR, "--source-config", "keys.properties"),
    ],
    ids=lambda words: " ".join(words[:2] + words[-2:]),
)
def test_an_input_without_an_end_is_refused(
    endless: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for name, key in (("tls", "truststore"), ("keys", "keystore")):
        Path(f"{name}.properties").write_text(
            f"security.protocol=SSL\nssl.{key}.location={endless}\nssl.{key}.type=PEM\n"
        )
    done = CliRunner().invoke(cli, [endless if word == "FILE" else word for word in words])
    assert done.exit_code == 2, done.output
    assert "pipe or a device" in " ".join(done.output.split()), done.output


@pytest.mark.parametrize("endless", ["pipe", "/dev/zero"])
@pytest.mark.parametrize(
    "read",
    [
        planfile.read,
        lambda path: manifest.load(path.parent),
        lambda path: section._read(Path("migration.yml"), "plan", str(path)),
    ],
    ids=["plan", "manifest", "reassignment"],
)
def test_a_reader_refuses_an_input_without_an_end(
    endless: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / manifest.MANIFEST
    if endless == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(endless)
    with pytest.raises(ZkmigrateError, match="pipe or a device"):
        read(path)


def decimals(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    """Return every option of every verb that takes a number with a fraction, by its verb."""
    found: list[tuple[tuple[str, ...], str]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += decimals(command, (*path, name))
        found += [
            ((*path, name), option.opts[0])
            for option in command.params
            if isinstance(option.type, click.types.FloatParamType)
        ]
    return found


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e308", "1e-308", "-1"])
@pytest.mark.parametrize(("verb", "option"), decimals(cli))
def test_a_number_without_a_meaning_is_refused(verb: tuple[str, ...], option: str, value: str) -> None:
    smallest = value == "1e-308"
    done = CliRunner().invoke(cli, [*verb, option, value])
    assert done.exit_code == 2, done.output
    if not (smallest and option in ("--tolerance", "--storage-threshold", "--timeout")):
        assert f"Invalid value for '{option}'" in done.output, done.output


def test_every_number_is_of_the_one_kind() -> None:
    context = click.Context(cli)
    for verb, name in decimals(cli):
        command: click.Command | None = cli
        for word in verb:
            assert isinstance(command, click.Group)
            command = command.get_command(context, word)
        assert command is not None
        kinds = [type(one.type) for one in command.params if name in one.opts]
        assert kinds == [type(flags.decimal(0, 1))], (verb, name)


@pytest.mark.parametrize("share", ["1/1000000000", "1/1001", "0/3", "4/3", "1/" + "9" * 5000, "x", "1/0"])
def test_a_share_of_too_many_copiers_is_refused(share: str) -> None:
    done = CliRunner().invoke(cli, ["mirror", "run", *MIRROR[2:], "--share", share])
    assert done.exit_code == 2
    assert "Invalid value for '--share'" in done.output


@pytest.mark.parametrize(
    "words", [("--rate", "9" * 400 + "G"), ("--rate", "0.01"), ("--since", "1e308"), ("--since", "nan")]
)
def test_collect_refuses_a_number_without_a_meaning(words: tuple[str, str], tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["collect", "--out", str(tmp_path / "x"), "zk1:/data", *words])
    assert done.exit_code == 2, done.output
    assert re.search(rf"{words[0]} .*\. Needed: ", done.output), done.output
