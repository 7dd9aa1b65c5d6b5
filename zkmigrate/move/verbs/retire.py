"""The verb retire: leave a permanently lost broker out of a run, and journal who decided that and why."""

from __future__ import annotations

import contextlib
import getpass

from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.questions import DescribeCluster
from zkmigrate.move.facts.connections import addresses, connections_of, source_clients
from zkmigrate.move.move import dependent_of
from zkmigrate.move.rules.retire import may_retire
from zkmigrate.move.rules.server_down import servers_to_ask
from zkmigrate.runbook.engine import runs
from zkmigrate.runbook.engine.clock import RealClock
from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.engine.history import History, Next
from zkmigrate.runbook.engine.lock import LocalLock
from zkmigrate.runbook.model.finding import blocking
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Retired
from zkmigrate.runbook.runs.open_run import JournalOpener
from zkmigrate.runbook.runs.verb_context import VerbContext, existing_run_dir, load, open_site, print_json
from zkmigrate.runbook.ui import finding_lines

REFUSED = 6


def retire(setting: VerbContext, run_id: str, host: str, reason: str) -> int:
    """Check that the broker serves no partition and has left source, then journal that it is left out.

    Returns the exit code, 6 if one of these is not proved. Raises UsageError for a host that cannot be
    retired, or a run that does not allow it now.
    """
    inventory, playbook = load(setting)
    _refuse_no_broker(inventory, playbook, host)
    if not reason.strip():
        raise UsageError("--reason is empty; needed: why this host is left out, for the report")
    run_dir = existing_run_dir(setting, run_id, inventory, playbook)
    clock = RealClock(setting.interrupt)
    with contextlib.ExitStack() as stack:
        alone = LocalLock(run_dir, setting.verb)
        stack.callback(alone.close)
        stack.callback(alone.leave)
        site = stack.enter_context(open_site(setting, inventory, run_dir.name))
        opened = JournalOpener(run_dir, playbook, inventory, site.look, clock.wall).open(
            lambda: site.window_lines(playbook, {})
        )
        journal = opened.journal
        stack.callback(journal.close)
        _refuse_now(journal.history, playbook, inventory, host)
        broker = inventory.broker(host)
        retired = Retired(
            host, broker.id, tuple(sorted(addresses(broker))), getpass.getuser(), " ".join(reason.split())
        )
        servers = servers_to_ask(inventory, site.look)
        cons = connections_of(site.look, servers)
        clients = source_clients(inventory, dependent_of(playbook), site.look, cons)
        findings = may_retire(retired, site.look.ask(DescribeCluster()), clients, servers)
        refused = bool(blocking(findings))
        encoded = [encode_finding(f) for f in findings]
        if not refused:
            body = {"host": host, "id": retired.id, "addresses": list(retired.addresses)}
            journal.append(
                "retired", {**body, "by": retired.by, "reason": retired.reason, "findings": encoded}
            )
    if setting.as_json:
        print_json(setting, {"retired": not refused, "host": host, "findings": encoded})
    else:
        end = f"{host} is not retired: nothing was changed" if refused else retired.words
        setting.out.write("".join(f"{line}\n" for line in (*finding_lines.whole(findings), end)))
    return REFUSED if refused else 0


def _refuse_no_broker(inventory: Inventory, playbook: Playbook, host: str) -> None:
    if "brokers" not in playbook.retirable:
        raise UsageError(f"a run of {playbook.id} cannot continue without a host, so no host can be retired")
    if host in inventory.broker_names:
        return
    hosts = (*inventory.source_names, *inventory.dest_names)
    what = f"a {inventory.role(host)} host" if host in hosts else "no host of the inventory"
    possible = ", ".join(inventory.broker_names)
    raise UsageError(f"{host} is {what}; only a broker can be retired from a run. Possible: {possible}")


def _refuse_now(history: History, playbook: Playbook, inventory: Inventory, host: str) -> None:
    if host in history.retired:
        raise UsageError(f"{history.retired[host].words}; it cannot be retired twice")
    if not playbook.without(inventory, {*history.retired, host}).brokers:
        raise UsageError(
            f"{host} is the only broker left in the run; needed: at least one other broker to move"
        )
    if runs.state_of(history, playbook).state == "complete":
        raise UsageError(f"run {history.run} is complete, so no step is left that could omit {host}")
    at = history.next(playbook)
    if isinstance(at, Next) and at.stage.window and history.touched_in(at.stage.id):
        raise UsageError(
            f"run {history.run} is inside its window, at {at.id}; a broker can be retired before or after "
            "it. Next: resume or rollback, which end the window first"
        )
