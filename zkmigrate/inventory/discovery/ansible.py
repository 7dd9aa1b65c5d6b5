"""Read hosts from an Ansible inventory with Ansible's own ``ansible-inventory --list``.

The answer is one JSON object: group → {"hosts": […], "children": […]}, and ``_meta.hostvars`` → host →
variables (Ansible's script inventory format).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zkmigrate.errors import UsageError

PROGRAM = "ansible-inventory"
AUTO = "auto"
ROLES = ("source", "dest", "brokers")
_ANSWER_S = 120.0


@dataclass(frozen=True)
class AnsibleHost:
    """A host of an Ansible inventory.

    address: ``ansible_host``, else the name. An empty user or key, or a port of None, means not given.
    """

    name: str
    address: str
    user: str = ""
    port: int | None = None
    key: str = ""


def parse_map(text: str) -> dict[str, str]:
    """Parse ``source=GROUP,dest=GROUP,brokers=GROUP``, each at most once. Raises UsageError."""
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        role, equals, group = part.strip().partition("=")
        if role not in ROLES or not equals or not group or role in found:
            raise UsageError(
                f"--map: {part!r} is not one of {', '.join(f'{r}=GROUP' for r in ROLES)}, each once. Next: "
                "pass --map source=zk_old,dest=zk_new,brokers=kafka"
            )
        found[role] = group
    return found


def run_inventory(inventory: str) -> Any:
    """Return the JSON of ``ansible-inventory --list``.

    inventory: a file or directory, or ``auto`` for Ansible's default. Raises UsageError if the program is
    missing or fails.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise UsageError(
            f"{PROGRAM} is not on this machine's PATH. Next: install ansible-core, or name the hosts "
            "with --source, --dest and --bootstrap"
        )
    argv = [program, "--list", *(() if inventory == AUTO else ("-i", inventory))]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{PROGRAM} --list did not end within {_ANSWER_S:g} s. Next: name an inventory file instead"
        ) from None
    if done.returncode:
        error = (done.stderr.strip() or "no error text").splitlines()[-1][:300]
        raise UsageError(f"{PROGRAM} --list failed (exit {done.returncode}): {error}")
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise UsageError(f"{PROGRAM} --list printed no JSON: {error}") from error


def hosts(body: Any, mapping: Mapping[str, str]) -> dict[str, tuple[AnsibleHost, ...]]:
    """Return the hosts of each role's group and of that group's children, in order, without duplicates.

    body: the JSON of :func:`run_inventory`. mapping: role → group. Raises UsageError.
    """
    if not isinstance(body, dict):
        raise UsageError(f"{PROGRAM} --list printed a {type(body).__name__}, not an object of groups")
    variables = _mapping(_mapping(body.get("_meta")).get("hostvars"))
    found: dict[str, tuple[AnsibleHost, ...]] = {}
    for role, group in mapping.items():
        names = dict.fromkeys(_members(body, group, set()))
        if not names:
            groups = sorted(name for name in body if name not in ("_meta", "all"))
            raise UsageError(
                f"--map {role}={group}: the Ansible inventory has no host in this group (its groups: "
                f"{', '.join(groups[:20]) or 'none'}). Next: use one of these groups"
            )
        found[role] = tuple(_host(name, _mapping(variables.get(name))) for name in names)
    return found


def _members(body: Mapping[str, Any], group: str, seen: set[str]) -> list[str]:
    if group in seen:
        return []
    seen.add(group)
    entry = body.get(group)
    if isinstance(entry, list):  # the old short form: a group is its hosts
        return [str(name) for name in entry]
    names = _listed(entry, group, "hosts")
    for child in _listed(entry, group, "children"):
        names += _members(body, child, seen)
    return names


def _listed(entry: Any, group: str, key: str) -> list[str]:
    value = _mapping(entry).get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise UsageError(
            f"{PROGRAM} --list: {key} of the group {group} is {value!r:.60}, not a list of names"
        )
    return [str(name) for name in value]


def _host(name: str, variables: Mapping[str, Any]) -> AnsibleHost:
    def text(*keys: str) -> str:
        return next((str(variables[key]) for key in keys if variables.get(key) is not None), "")

    port = text("ansible_port", "ansible_ssh_port")
    return AnsibleHost(
        name,
        text("ansible_host", "ansible_ssh_host") or name,
        text("ansible_user", "ansible_ssh_user"),
        int(port) if port.isdecimal() else None,
        text("ansible_ssh_private_key_file", "ansible_private_key_file"),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
