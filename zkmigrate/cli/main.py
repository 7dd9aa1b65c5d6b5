"""Define the command line: verbs, options and exit codes. :mod:`zkmigrate.runbook.runs` does the work.

Each verb imports heavy modules only when it runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zkmigrate.clean import clean_streams
from zkmigrate.cli import flags, removed
from zkmigrate.errors import LostJournalError, ZkmigrateError
from zkmigrate.json_stamp import stamped
from zkmigrate.runbook.engine.clock import Interrupt

if TYPE_CHECKING:
    from zkmigrate.runbook.runs.run_options import RunOptions
    from zkmigrate.runbook.runs.verb_context import VerbContext

_READER_GONE = 128 + signal.SIGPIPE
"""The exit code that a shell shows for a program that SIGPIPE ended."""
_TELL_EVENTS = ("run", "resume", "rollback")
_ELSEWHERE = (
    "analyze", "collect", "gateway", "init", "mirror", "placement", "prove", "replay", "writers", "zxid",
)  # fmt: skip
"""Verbs and groups of verbs in their own modules of this package; ``command`` of a module creates them."""

_MOVE = {
    "init": "Write a first migration.yml from what the hosts show.",
    "preflight": "Check hosts, ensembles and brokers, before or after a move.",
    "plan": "Print every change that is known now.",
    "run": "Begin a run.",
    "status": "Show where a run stands and what it does now.",
    "hold": "Make a run wait at the next possible place.",
    "release": "Continue a held run.",
    "resume": "Continue an interrupted run.",
    "rollback": "Walk a run back to the start of a step, or to its beginning.",
    "retire": "Exclude a permanently lost broker from a run.",
    "throttle": "Set, show or clear the rates of a run that moves partitions.",
    "report": "Write a page about a run: timeline, gaps, proofs.",
    "runbook": "Write the steps as a page of commands.",
}
_AREAS: Mapping[str, Mapping[str, str]] = {
    "topics": {
        "mirror": "Copy topics to another Kafka cluster at equal offsets.",
        "gateway": "Stand between clients and two clusters: hide epochs, hold, route.",
    },
    "disks": {
        "prove": "Prove from disks that dest holds what source holds.",
        "zxid": "Show the newest transaction of a disk or a subtree.",
        "writers": "Show which sessions wrote under a chroot.",
        "replay": "List what dest wrote after the cut and source lacks.",
        "collect": "Copy logs and snapshots of servers into a folder.",
        "analyze": "Analyze logs and snapshots with Spark.",
    },
}
"""Verbs that are listed by the help of their area. They work with or without its name before them."""

_OTHER = {
    "placement": "Plan which brokers hold which replicas.",
    "topics": "Copy topics to a second cluster, and switch clients to it.",
    "disks": "Prove and analyze what ZooKeeper's files hold.",
    "lab": "Start real ZooKeeper and Kafka hosts on this machine.",
    "completion": "Print the completion script for a shell.",
    "help": "Explain a finding by its id, or show a verb's options.",
}


class Area(click.Group):
    """A named group of verbs, which has its own page of help. verbs: the group of all verbs."""

    def __init__(self, name: str, verbs: click.Group) -> None:
        super().__init__(name, help=_OTHER[name], short_help=_OTHER[name])
        self.verbs = verbs
        self.lines = _AREAS[name]

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.verbs.get_command(ctx, cmd_name) if cmd_name in self.lines else None

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.lines.items()))


class Verbs(click.Group):
    """The group of all verbs. The module of ``lab`` is imported only when one of its commands runs."""

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, (*_MOVE, *_OTHER)))
        for title, verbs in (("Move", _MOVE), ("Other areas (zkmigrate AREA --help)", _OTHER)):
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(widest), line) for verb, line in verbs.items()])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*sorted((*super().list_commands(ctx), *_ELSEWHERE, *_AREAS)), "lab"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "lab":  # for the list of verbs
            return click.Group("lab", help="Real ZooKeeper and Kafka hosts on this machine.")
        if cmd_name in _AREAS:
            return Area(cmd_name, self)
        if cmd_name in _ELSEWHERE:
            made: click.Command = importlib.import_module(f"zkmigrate.cli.{cmd_name}").command(_do)
            return made
        return super().get_command(ctx, cmd_name)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line after cleaning the output streams and taking over Ctrl-C.

        A lab handles Ctrl-C itself.
        """
        clean_streams()
        given = extra.get("args", args[0] if args else None)
        words = sys.argv[1:] if given is None else list(given)
        here = threading.current_thread() is threading.main_thread()
        if words[:1] == ["lab"] or not here:  # a lab handles signals itself, to stop its hosts first
            return super().main(*args, **extra)
        stop = Interrupt(at_once=True)
        with stop.listening(), stop.answered(_say_stopping):
            return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if ctx.invoked_subcommand == "lab":
                raise
            sys.stdout.flush()
            sys.stderr.write("zkmigrate: interrupted (exit code 130)\n")
            sys.stderr.flush()
            os._exit(130)  # do not wait for threads that wait for a silent host

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args:
            removed.refuse("", args[0])
        if args and args[0] == "lab":
            try:
                group: click.Command = importlib.import_module("zkmigrate.lab.cli").lab
            except ModuleNotFoundError as error:
                if error.name != "zkmigrate.lab":
                    raise
                raise click.UsageError(
                    "The installed package does not have the lab. Run it from a checkout of the repository: "
                    "make setup, then .venv/bin/zkmigrate lab."
                ) from None
            return "lab", group, args[1:]
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="zkmigrate")
def cli() -> None:
    """Move a Kafka cluster from one ZooKeeper ensemble to another, step by step, with a way back.

    \b
    Exit codes:
      0   done                           7   the run turned back by itself
      2   wrong usage or inventory       8   an operator is needed
      3   preflight failed               9   the lease ended
      4   plan stale or applied          10  a claim or proof failed
      5   locked                         11  a claim or proof is unknown
      6   a gate is closed               130 interrupted or stopped
      141 the reader of the output is gone
      12  status: clients are shut out, and nobody works on the run
    """


@cli.command()
@flags.common
@click.option(
    "--stage",
    default="",
    metavar="STAGE",
    help="Run the checks of this stage instead. after: after a move, dest is whole, the brokers use it and "
    "source has no clients.",
)
def preflight(stage: str, **options: Any) -> None:
    """Check hosts, ensembles and brokers before a move, or after it. Changes nothing."""
    _say_first("preflight", options)
    from zkmigrate.runbook.runs import preflight as looks

    _do(lambda: looks.preflight(_setting(options), stage))


@cli.command()
@flags.common
@flags.which_run("Use the window's length that this run's rehearsal measured.")
@click.option("--out", type=flags.FILE, help="Also write the plan to this file, for run --plan.")
@click.option("--force", is_flag=True, help="Let --out replace an existing file.")
@click.option("--show", type=flags.FILE, help="Print the plan in this file, and whether it still holds.")
@click.option("--offline", is_flag=True, help="With --show: ask no host.")
def plan(
    run_id: str, out: Path | None, force: bool, show: Path | None, offline: bool, **options: Any
) -> None:
    """Print every change, command and file diff that is known now. Changes nothing.

    \b
    Examples:
      zkmigrate plan
      zkmigrate plan --out tonight.plan     then: zkmigrate run --plan tonight.plan
      zkmigrate plan --show tonight.plan    print it again, and whether it still holds
    """
    _say_first("plan", options)
    from zkmigrate.runbook.runs import plan_verb

    if show is not None and (out is not None or run_id or force):
        raise click.UsageError("--show prints an existing plan; it takes only -i, --offline and --json")
    if force and out is None:
        raise click.UsageError("--force needs --out FILE")
    if offline and show is None:
        raise click.UsageError("--offline needs --show FILE: a new plan needs the hosts")
    if show is not None:
        _do(lambda: plan_verb.show_saved(_setting(options), show, offline=offline))
    else:
        _do(lambda: plan_verb.show_plan(_setting(options), run_id, out, force=force))


@cli.command()
@flags.common
@flags.which_run("The run to continue by hand; its rehearsal gives the figures.")
@click.option(
    "--format",
    type=click.Choice(["md"]),
    default="md",
    show_default=True,
    expose_value=False,
    help="Markdown only.",
)
@click.option(
    "--out", type=flags.FILE, help="Write this file, and zkm-host beside it. Default: print the page."
)
@click.option("--go-no-go", is_flag=True, help="Write only the page to sign before the cut-over.")
def runbook(run_id: str, out: Path | None, go_no_go: bool, **options: Any) -> None:
    """Write every change and its undo as a page of commands, for when the tool is down. Changes nothing."""
    _say_first("runbook", options)
    from zkmigrate.runbook.runs import runbook_verb

    _do(lambda: runbook_verb.show_runbook(_setting(options), run_id, out, go_no_go=go_no_go))


@cli.command()
@flags.common
@flags.walking
@removed.options("run")
@click.option("--plan", type=flags.FILE, help="Begin only if this plan (of plan --out) still holds.")
def run(**options: Any) -> None:
    """Begin a run, or restart one that has turned back.

    \b
    Examples:
      zkmigrate run --until rehearse        join dest and rehearse; no broker restarts
      zkmigrate run --plan tonight.plan     only if that plan still holds
      zkmigrate run --log-file night.log    with each command to a host in a file
    """
    _say_first("run", options)
    from zkmigrate.runbook.runs import run_verbs

    _do(lambda: run_verbs.run(_setting(options), _wishes(options)))


@cli.command()
@flags.common
@flags.walking
@removed.options("resume")
@click.option(
    "--journal-lost",
    type=click.Choice(["forward", "back"]),
    default=None,
    help="The journal is lost or damaged: read the position from the hosts, then walk this way.",
)
def resume(**options: Any) -> None:
    """Continue an interrupted run in its direction."""
    _say_first("resume", options)
    from zkmigrate.runbook.runs import run_verbs

    _do(lambda: run_verbs.resume(_setting(options), _wishes(options)))


@cli.command()
@flags.common
@flags.run_id
@flags.yes
@flags.steal
@flags.metrics
@flags.named(
    "--to", "steps", "STEP", "Stop at the start of this stage or stage.step. Default: the run's beginning."
)
def rollback(**options: Any) -> None:
    """Walk a run back to the start of a step, or to its beginning."""
    _say_first("rollback", options)
    from zkmigrate.runbook.runs import run_verbs

    _do(lambda: run_verbs.rollback(_setting(options), _wishes(options)))


@cli.command()
@flags.common
@flags.run_id
@click.argument("host")
@click.option(
    "--reason", required=True, metavar="TEXT", help="Why. Every later screen and the report show it."
)
def retire(host: str, run_id: str, reason: str, **options: Any) -> None:
    """Exclude a permanently lost broker from a run. Changes no host.

    First proves that the broker serves nothing and is not a client of source. You cannot undo this.
    """
    _say_first("retire", options)
    from zkmigrate.move.verbs import retire as retiring

    _do(lambda: retiring.retire(_setting(options), run_id, host, reason))


@cli.command()
@flags.common
@flags.run_id
@click.option("--offline", is_flag=True, help="Read only the run's files; ask no host.")
@click.option("--watch", "again", is_flag=True, help="Show it anew every 2 s, at a terminal, until Ctrl-C.")
@flags.named(
    "--wait",
    "steps or end",
    "STEP",
    "First wait until this stage or stage.step is done; 'end': until the run's process ends.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=flags.decimal(0, 366 * 86_400),
    metavar="S",
    help="With --wait: wait at most S seconds.",
)
@flags.named(
    "--findings", "steps or all", "STEP", "Also show every finding of this stage, stage.step or 'all'."
)
def status(
    run_id: str, offline: bool, again: bool, wait: str, timeout_s: float | None, findings: str, **options: Any
) -> None:
    """Show where a run stands and what it does now. Changes nothing.

    \b
    Examples:
      zkmigrate status                      of the open run, else of the newest
      zkmigrate status --watch              the same, anew every 2 s; Ctrl-C ends it (130)
      zkmigrate status --wait roll          return when the roll is done

    Exit code 12: clients are, or may be, shut out by a window, and nobody works on the run.

    Exit codes with --wait: 0 STEP was reached; 1 --timeout passed, or the run's process ended with 0 before
    STEP; 8 the process left no exit code. Otherwise the exit code of the process.
    """
    _say_first("status", options)
    from zkmigrate.runbook.runs import run_status

    if timeout_s is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    if again and (wait or options["as_json"] or not sys.stdout.isatty()):
        raise click.UsageError("--watch needs a terminal, and goes with neither --wait nor --json")
    asked: dict[str, Any] = {"offline": offline, "wait": wait, "timeout_s": timeout_s, "findings": findings}
    if again:
        from zkmigrate.runbook.runs import status_watch

        _do(lambda: status_watch.watch(_setting(options), run_id, offline=offline, findings=findings))
        return
    _do(lambda: run_status.status(_setting(options), run_id, **asked))


@cli.command()
@flags.common
@flags.run_id
@flags.named(
    "--at",
    "places",
    "STEP|N|TIME",
    "Hold before this stage or stage.step, or after this step of the cut-over (check). Or after N brokers of "
    "the roll or N moves. Or at the next place from this time on, as in --until. Default: the next place.",
)
@click.option("--why", default="", metavar="TEXT", help="Screen, status and journal show it.")
def hold(run_id: str, at: str, why: str, **options: Any) -> None:
    """Make a run wait, from a second terminal, or before run or resume. Asks no host.

    The run holds until `zkmigrate release` or an answer at its own terminal. Inside the window it holds at
    most until the deadline. Then it turns back; once all hosts are sealed, it goes on. For a run that has not
    begun, give hold and run the same --run-id.
    """
    from zkmigrate.runbook.runs import hold_verbs

    _do(lambda: hold_verbs.hold(_setting(options), run_id, at, why))


@cli.command()
@flags.common
@flags.run_id
def release(run_id: str, **options: Any) -> None:
    """Continue a held run and print the next step. Asks no host."""
    from zkmigrate.runbook.runs import hold_verbs

    _do(lambda: hold_verbs.release(_setting(options), run_id))


@cli.group()
def throttle() -> None:
    """Set, show or clear the rates at which a run copies replicas. Asks no host.

    A set rate replaces the one that follows the load, within its floor and ceiling. It lasts until it is
    cleared, also after a restart. Name a playbook that moves partitions by --playbook.
    """


_brokers = click.option(
    "--broker",
    "brokers",
    type=click.IntRange(0, 2**31 - 1),
    multiple=True,
    metavar="ID",
    help="Only this broker. Repeatable. Default: all.",
)


@throttle.command("set")
@flags.common
@flags.run_id
@_brokers
@click.argument("rate")
def throttle_set(rate: str, run_id: str, brokers: tuple[int, ...], **options: Any) -> None:
    """Set RATE, bytes per second, such as 10M. A broker's own rate wins over the one for all."""
    from zkmigrate.cluster.placing import throttle as verbs

    _do(lambda: verbs.set_rate(_setting(options), run_id, rate, brokers))


@throttle.command("show")
@flags.common
@flags.run_id
def throttle_show(run_id: str, **options: Any) -> None:
    """Print the rates that are set. Exit code 8: their file cannot be read."""
    from zkmigrate.cluster.placing import throttle as verbs

    _do(lambda: verbs.show(_setting(options), run_id))


@throttle.command("clear")
@flags.common
@flags.run_id
@_brokers
def throttle_clear(run_id: str, brokers: tuple[int, ...], **options: Any) -> None:
    """Let the run choose the rates again."""
    from zkmigrate.cluster.placing import throttle as verbs

    _do(lambda: verbs.clear(_setting(options), run_id, brokers))


@cli.command()
@flags.common
@flags.which_run("Default: the open run of the inventory, else its newest.")
@click.option(
    "--format",
    "as_format",
    type=click.Choice(["html", "md", "json"]),
    default="html",
    show_default=True,
    help="HTML page, Markdown or JSON (as --json).",
)
@click.option(
    "--out",
    type=flags.FILE,
    help="Write to this file; -: standard output. Default: html to report.html in the run's directory, md "
    "and json to standard output.",
)
@click.option(
    "--load",
    type=flags.FILE,
    help="Directory of the lab's client recordings (producer.jsonl, tenant.jsonl).",
)
def report(
    run_id: str, as_format: str, out: Path | None, load: Path | None, as_json: bool, **options: Any
) -> None:
    """Write what a run did: timeline, availability, gaps, proofs, decisions, digests. Asks no host."""
    from zkmigrate.report import verb
    from zkmigrate.runbook.engine import runs

    given = click.get_current_context().get_parameter_source("playbook") is not ParameterSource.DEFAULT
    request = verb.ReportRequest(
        inventory=options["inventory"],
        playbook=options["playbook"] if given else "",
        runs=runs.base(os.environ),
        run_id=run_id,
        format="json" if as_json else as_format,
        out=out,
        load=load,
    )
    _do(lambda: verb.report(request, sys.stdout))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell script that completes verbs, options, runs and steps.

    \b
    bash: zkmigrate completion bash > ~/.local/share/bash-completion/completions/zkmigrate
    zsh:  zkmigrate completion zsh > ~/.zfunc/_zkmigrate
          and in ~/.zshrc before compinit: fpath=(~/.zfunc $fpath)
    fish: zkmigrate completion fish > ~/.config/fish/completions/zkmigrate.fish
    """
    from zkmigrate.cli import completion

    click.echo(completion.script(cli, shell))


@cli.command("help")
@click.argument(
    "what", metavar="[FINDING-ID|VERB|findings]", default="", shell_complete=flags.completed("findings")
)
def help_(what: str) -> None:
    """Explain a finding by its id, print all findings, or show the options of a verb."""
    root = click.get_current_context().find_root()
    if not what:
        click.echo(root.get_help())
    elif what in cli.list_commands(root):
        verb = cli.resolve_command(root, [what])[1]
        click.echo(verb.get_help(click.Context(verb, info_name=what, parent=root)) if verb else "")
    else:
        _do(lambda: _explain(what))


def _explain(id: str) -> int:
    from zkmigrate.cli import findings

    if id == "findings":
        click.echo_via_pager(findings.page())
        return 0
    found = findings.entry(id)
    click.echo("\n".join((found.meaning.id, *(f"  {line}" for line in found.lines()))))
    return 0


def _say_first(verb: str, options: dict[str, Any]) -> None:
    """Print a first line on a terminal, because imports and silent hosts take time."""
    if sys.stderr.isatty() and not options["as_json"]:
        click.echo(f"zkmigrate {verb} begins; Ctrl-C stops it", err=True)


def _say_stopping() -> None:
    sys.stderr.write("zkmigrate: stopping; press Ctrl-C again to end at once\n")
    sys.stderr.flush()


def _setting(options: dict[str, Any]) -> VerbContext:
    from zkmigrate.runbook.engine import runs
    from zkmigrate.runbook.runs import verb_context

    override = click.get_current_context().obj
    return verb_context.VerbContext(
        inventory=options["inventory"],
        playbook=options["playbook"],
        as_json=options["as_json"],
        runs=runs.base(os.environ),
        site=override or partial(_real_site, options["playbook"]),
        interactive=sys.stdin.isatty() and sys.stdout.isatty(),
        verb=click.get_current_context().command.name or "",
    )


def _real_site(playbook: str, inventory: Any, run_id: str) -> Any:
    from zkmigrate.runbook.runs import playbook_files
    from zkmigrate.runbook.site.wiring import Site  # paramiko and the clients are slow to import

    return Site(inventory, run_id, playbook_files.load(playbook).clusters)


def _wishes(options: dict[str, Any]) -> RunOptions:
    from zkmigrate.runbook.runs.run_options import RunOptions

    names = ("yes", "run_id", "until", "skip", "to", "plan", "steal", "journal_lost", "metrics")
    return RunOptions(**{name: options[name] for name in names if options.get(name) is not None})


def _do(verb: Callable[[], int]) -> None:
    """Run a verb and exit with its code. A known failure is shown as its message, without a traceback."""
    try:
        code = verb()
    except LostJournalError as error:
        code = _refused(error.told(_inventory_options()), error.exit_code)
    except ZkmigrateError as error:
        code = _refused(str(error), error.exit_code)
    except OSError as error:  # an error of this machine; errors of hosts are ZkmigrateError
        walks = click.get_current_context().command.name in _TELL_EVENTS
        if isinstance(error, BrokenPipeError) and not walks:
            # The reader, such as head, has closed the pipe. Discard the output that is still buffered.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = _READER_GONE
        else:
            code = _refused(f"{error}. Next: fix it on this machine, then run the same command again", 8)
    click.get_current_context().exit(code)


def _inventory_options() -> str:
    """Return the options of this call that name inventory and playbook, quoted for a shell."""
    from zkmigrate.runbook.runs.verb_context import inventory_options

    given = click.get_current_context().params
    return inventory_options(_setting(given)) if "inventory" in given and "playbook" in given else ""


def _refused(message: str, code: int) -> int:
    """Print why a verb failed, and return its code.

    With ``--json`` the reason is also printed as JSON on standard output: for a verb that prints events, as
    the event RunEnded.
    """
    context = click.get_current_context()
    click.echo(f"zkmigrate: {message}", err=True)
    if context.params.get("as_json"):
        body: dict[str, Any] = {"code": code, "error": message}
        if context.command.name in _TELL_EVENTS:
            body = {"at": round(time.time(), 3), "event": "RunEnded"}
            body |= {"code": code, "message": message, "findings": []}
        with contextlib.suppress(OSError):  # the reader is gone
            click.echo(json.dumps(stamped(body), ensure_ascii=False))
    return code


main = cli

if __name__ == "__main__":
    main()
