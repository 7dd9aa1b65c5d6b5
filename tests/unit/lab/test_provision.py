"""Fetching: where the cache is, what is built once, and how each failure is told."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from zkmigrate.lab import provision
from zkmigrate.lab.provision import ProvisionError

Program = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("ZKMIGRATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Puts a sh program of a given name first in the search path; apt says nothing unless told to."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def put(name: str, body: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)

    put("apt-get", "")
    put("apt-config", "")
    return put


# Stands in for mmdebstrap: the target is the argument after the suite.
MMDEBSTRAP = """
echo run >>"$0.runs"
while [ "$1" != bookworm ]; do shift; done
mkdir -p "$2/etc/ssh" "$2/var/log/apt" && cd "$2/etc"
echo key >ssh/ssh_host_rsa_key; echo key >ssh/ssh_host_rsa_key.pub; echo conf >ssh/sshd_config
echo 0123 >machine-id; echo builder >hostname; echo nameserver >resolv.conf
echo "I: installing packages..."
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ZKMIGRATE_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"ZKMIGRATE_CACHE": "", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/zkmigrate"),
        ({"XDG_CACHE_HOME": "b", "HOME": "/c"}, "/c/.cache/zkmigrate"),
        ({"XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/zkmigrate"),
    ],
)
def test_cache_dir_from_environment(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ZKMIGRATE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert provision.cache_dir() == Path(expected)


def test_rootfs_is_cleaned_of_what_a_host_has_for_itself(program: Program) -> None:
    program("mmdebstrap", MMDEBSTRAP)
    said: list[str] = []
    rootfs = provision.ensure_rootfs(said.append)
    assert [path.name for path in (rootfs / "etc/ssh").iterdir()] == ["sshd_config"]
    assert (rootfs / "etc/machine-id").read_bytes() == b""
    assert not (rootfs / "etc/hostname").exists()
    assert not (rootfs / "etc/resolv.conf").exists()
    assert any("installing packages" in line for line in said)


def test_rootfs_of_another_package_list_is_another(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program("mmdebstrap", MMDEBSTRAP)
    first = provision.ensure_rootfs()
    monkeypatch.setattr(provision, "ROOTFS_PACKAGES", (*provision.ROOTFS_PACKAGES, "less"))
    assert provision.ensure_rootfs() != first


def test_each_release_of_debian_is_a_suite_with_its_own_java(program: Program, tmp_path: Path) -> None:
    program("mmdebstrap", 'echo "$*" >"$0.asked"' + MMDEBSTRAP.replace("bookworm", "trixie"))
    provision.ensure_rootfs(debian=13)
    asked = (tmp_path / "bin/mmdebstrap.asked").read_text()
    assert "openjdk-21-jre-headless" in asked
    assert "openjdk-17" not in asked


def test_what_a_killed_build_left_is_cleared(program: Program) -> None:
    program("mmdebstrap", MMDEBSTRAP)
    rootfs = provision.ensure_rootfs()
    half = rootfs.rename(rootfs.with_name(f"{rootfs.name}.part"))
    (half / "etc/half-written").write_text("")
    assert not (provision.ensure_rootfs() / "etc/half-written").exists()
    assert not half.exists()


def test_two_builders_build_once_and_the_second_says_it_waits(program: Program, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program("mmdebstrap", f"{MMDEBSTRAP}\nread -r _ <{gate}")
    waiting, building = threading.Event(), threading.Event()
    found: list[Path] = []

    def first(line: str) -> None:
        if "installing" in line:
            building.set()

    def second(line: str) -> None:
        if "waiting" in line:
            waiting.set()

    one = threading.Thread(target=lambda: found.append(provision.ensure_rootfs(first)), daemon=True)
    two = threading.Thread(target=lambda: found.append(provision.ensure_rootfs(second)), daemon=True)
    one.start()
    assert building.wait(30)
    two.start()
    assert waiting.wait(30)
    gate.write_text("go on\n")
    one.join(30)
    two.join(30)
    assert len(found) == 2
    assert found[0] == found[1]
    assert (tmp_path / "bin/mmdebstrap.runs").read_text() == "run\n"


def test_failed_build_is_told_and_leaves_nothing_that_looks_whole(program: Program) -> None:
    program("mmdebstrap", "echo 'E: no such mirror'; exit 25")
    with pytest.raises(ProvisionError) as failure:
        provision.ensure_rootfs()
    text = str(failure.value)
    assert "mmdebstrap --variant=minbase" in text
    assert "exit code: 25" in text
    assert "E: no such mirror" in text
    assert "to do: check that `apt-get update` works" in text
    program("mmdebstrap", MMDEBSTRAP)
    assert (provision.ensure_rootfs() / "etc/ssh/sshd_config").exists()


def test_build_without_end_is_ended(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(provision, "_ROOTFS_SECONDS", 0.2)
    os.mkfifo(tmp_path / "never")
    program("mmdebstrap", f"exec cat {tmp_path / 'never'}")
    with pytest.raises(ProvisionError, match=r"not finished within 0\.2 s"):
        provision.ensure_rootfs()


# Stands in for Maven: puts one jar named like the profile and one of a dependency in the output folder.
MVN = """
echo run >>"$0.runs"
for word; do case $word in
    --activate-profiles=*) name=${word#*=} ;;
    -DoutputDirectory=*) folder=${word#*=} ;;
esac; done
mkdir -p "$folder" && touch "$folder/$name.jar" "$folder/slf4j-api.jar" "$folder/LICENSE"
"""


def test_classpath_is_the_jars_of_the_profile_fetched_once(program: Program, tmp_path: Path) -> None:
    program("mvn", MVN)
    jars = provision.zookeeper_classpath("3.8.4")
    assert [jar.name for jar in jars] == ["slf4j-api.jar", "zookeeper-3.8.4.jar"]
    assert all(jar.is_file() for jar in jars)
    assert provision.zookeeper_classpath("3.8.4") == jars
    assert (tmp_path / "bin/mvn.runs").read_text() == "run\n"
    assert provision.kafka_classpath("2.8.2")[0].parent != jars[0].parent


def test_the_policy_is_built_once_and_anew_when_its_source_changes(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(
        "mvn",
        """
for word; do case $word in -Dbuild.to=*) folder=${word#*=} ;; esac; done
mkdir -p "$folder" && touch "$folder/zkmigrate-policy.jar"
echo run >>"$0.runs"
""",
    )
    jar = provision.policy_jar()
    assert jar.is_file()
    assert provision.policy_jar() == jar
    assert (tmp_path / "bin/mvn.runs").read_text() == "run\n"
    changed = tmp_path / "policy"
    shutil.copytree(provision.POLICY, changed)
    with next(changed.glob("**/*.java")).open("a") as source:
        source.write("// more\n")
    monkeypatch.setattr(provision, "POLICY", changed)
    assert provision.policy_jar() != jar


def test_unknown_version_names_the_possible_ones() -> None:
    with pytest.raises(
        ProvisionError, match=r"no zookeeper 3\.7\.0 in pom\.xml; possible: 3\.4\.14, 3\.5\.8, 3\.5\.10"
    ):
        provision.zookeeper_classpath("3.7.0")
    with pytest.raises(ProvisionError, match=r"cannot fetch kafka-0\.8; possible: zookeeper-3\.4\.14, "):
        provision.fetch(["kafka-0.8"])
