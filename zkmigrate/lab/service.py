"""Control a lab host's server by a systemd unit, or by a script if `LabSpec.service` says so.

Servers of source always have units.
"""

from __future__ import annotations

from zkmigrate.hosts import zkm_host
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.spec import LabSpec, Role

KAFKA = (Role.CONTROLLER, Role.BROKER)
"""The roles whose server is Kafka, in the order of their start."""
ACTIONS = ("start", "stop", "status", "kill")


_NAMES = {
    Role.SOURCE: "zookeeper",
    Role.DEST: "zookeeper",
    Role.GATEWAY: "zkmigrate-gateway",
    **dict.fromkeys(KAFKA, "kafka"),
}


def has_server(role: Role) -> bool:
    """Return whether hosts of this role have exactly one server.

    Mirrors have two copiers, clients have none.
    """
    return role in _NAMES


def name_of(role: Role) -> str:
    """Return the name of the server on hosts of this role. Raises LabError if such hosts have no server."""
    if role not in _NAMES:
        raise LabError(f"a {role} host runs no server")
    return _NAMES[role]


def has_script(spec: LabSpec, role: Role) -> bool:
    """Return whether a script, not a systemd unit, starts the server on hosts of this role."""
    return spec.service == "commands" and role in (Role.DEST, *KAFKA)


def script(role: Role) -> str:
    """Return the path on the host of the script that starts the server."""
    return f"/opt/{name_of(role)}/service"


def log_file(role: Role) -> str:
    """Return the path of the file with the server's output, if the script starts the server."""
    return f"/var/log/{name_of(role)}.log"


def pid_file(role: Role) -> str:
    """Return the path of the file with the server's pid, if the script starts the server."""
    return f"/run/{name_of(role)}.pid"


def commands(role: Role) -> dict[str, str]:
    """Return the script's commands by action, with the names of actions in `migration.yml`."""
    return {action: f"{script(role)} {action}" for action in ACTIONS}


def control_command(spec: LabSpec, role: Role, action: str) -> list[str]:
    """Return the command for the lab's own use that starts or stops the server on a host of this role.

    A stop returns when the process has ended. A start goes through the host's systemd: `Lab.exec` runs
    commands in a cgroup that the host cannot see, where a JVM may fail to find its own cgroup.
    """
    if not has_script(spec, role):
        return ["systemctl", action, name_of(role)]
    if action == "start":
        run = ["systemd-run", "--quiet", "--collect", "--wait", "-p", "KillMode=process"]
        return [*run, script(role), "start"]
    return ["sh", "-c", f"{script(role)} {action}; while {script(role)} status; do sleep 0.05; done"]


def status_command(role: Role) -> list[str]:
    """Return the script's command that exits with 0 while the server runs."""
    return [script(role), "status"]


def log_command(spec: LabSpec, role: Role) -> list[str]:
    """Return the command that prints the server's output since the lab was built."""
    if has_script(spec, role):
        return ["cat", log_file(role)]
    return ["journalctl", "-o", "cat", "-u", name_of(role)]


def start_time_command(spec: LabSpec, role: Role) -> list[str]:
    """Return the command that prints `@SECONDS`, the unix time of the server's last start."""
    if has_script(spec, role):
        return ["stat", "-c", "@%Y", pid_file(role)]
    show = ["systemctl", "show", "--timestamp=unix", "--property=ExecMainStartTimestamp", "--value"]
    return [*show, name_of(role)]


def script_text(role: Role, account: str, environment: str, command: str) -> str:
    """Return the text of a script that starts `command` as `account` in a session, with pid file and log.

    environment: a file of shell assignments that `command` uses. The process that becomes the server writes
    the pid file; `start` returns once the file exists.
    """
    ask_guard = f"{zkm_host.ASK_GUARD}\n    "
    return f"""#!/bin/sh
# start|stop|status|kill: the server without systemd
runs() {{ pid=$(cat {pid_file(role)} 2>/dev/null) && [ "$pid" ] && kill -0 "$pid" 2>/dev/null; }}
case ${{1:-}} in
  start)
    {ask_guard if role is Role.DEST else ""}umask 027
    ulimit -n 65536
    . {environment}
    cd /
    rm -f {pid_file(role)}
    setsid runuser -u {account} -- sh -c 'echo $$ >&3; exec 3>&-; exec "$@"' sh \\
      {command} \\
      </dev/null >>{log_file(role)} 2>&1 3>{pid_file(role)} &
    until [ -s {pid_file(role)} ]; do sleep 0.02; done ;;
  status) runs ;;
  stop) ! runs || kill "$pid" ;;
  kill) ! runs || kill -9 "$pid" ;;
  *) exit 2 ;;
esac
"""
