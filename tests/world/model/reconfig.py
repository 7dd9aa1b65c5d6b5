"""What servers with reconfigEnabled make of their config, and what members of another version mean."""

from __future__ import annotations

from functools import lru_cache

from tests.world.model.host import File, Host
from zkmigrate.zookeeper.facts.config import DYNAMIC, ZooConfig, parse


@lru_cache(maxsize=64)
def config(content: bytes) -> ZooConfig:
    """A zoo.cfg as ZooKeeper reads it; asked for with each step of the world's clock, of a few contents."""
    return parse(content.decode("iso-8859-1"))


def reconfigures(content: bytes) -> bool:
    """Whether a server with this zoo.cfg may change its members, and its files with them."""
    return config(content).values.get("reconfigEnabled", "false").lower() == "true"


def rewritten(content: bytes, path: str, version: int) -> dict[str, bytes]:
    """What a server with reconfigEnabled makes of its zoo.cfg at ``path`` when its ensemble first serves: the
    members are in a file of their own by then, the config as it was beside it."""
    lines = content.decode("iso-8859-1").splitlines(keepends=True)
    members = "".join(line for line in lines if line.startswith("server."))
    dynamic = f"{path}.dynamic.{version:x}"
    rest = "".join(line for line in lines if not line.startswith("server."))
    static = f"{rest}{DYNAMIC}={dynamic}\n"
    return {f"{path}.bak": content, dynamic: members.encode(), path: static.encode()}


def count_anew(files: dict[str, bytes], path: str, version: int) -> None:
    """A server whose zoo.cfg stands at ``path`` among its files gets members of another version."""
    old = config(files[path]).values.get(DYNAMIC)
    members = files.pop(old) if old else b""
    lines = [line for line in files[path].splitlines(keepends=True) if DYNAMIC.encode() not in line]
    files |= rewritten(b"".join(lines) + members, path, version)


def rewrite(host: Host, path: str, version: int) -> None:
    """A dest host that serves with reconfigEnabled writes its files, the first time."""
    file = host.files[path]
    if not reconfigures(file.content) or DYNAMIC in config(file.content).values:
        return
    for name, content in rewritten(file.content, path, version).items():
        host.files[name] = File(content, file.mode, file.owner, file.changed)


def write_whole(host: Host, staged: str) -> None:
    """zoo.cfg from what ARM staged under this name; dynamic files beside it are gone, as zkm-host does it."""
    path = host.spec["config_path"]
    content = next(f.content for p, f in host.files.items() if p.endswith(f"/staged/{staged}"))
    old = host.files[path]
    for name in [p for p in host.files if p.startswith(f"{path}.dynamic")]:
        del host.files[name]
    host.files[path] = File(content, old.mode, old.owner, old.changed)
