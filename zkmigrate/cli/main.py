"""The command line: verbs, options, exit codes. What they do is in :mod:`zkmigrate.runs`.

Nothing heavy is imported before a verb needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zkmigrate.clean import clean_streams
from zkmigrate.cli import flags
from zkmigrate.engine.clock import Interrupt
from zkmigrate.errors import ZkmigrateError

if TYPE_CHECKING:
    from zkmigrate.runs.run_verbs import RunOptions
    from zkmigrate.runs.verb_context import VerbContext

_TELL_EVENTS = ("run", "resume", "rollback")
_ELSEWHERE = {
    "analyze": "zkmigrate.cli.analyze",
    "collect": "zkmigrate.cli.collect",
    "init": "zkmigrate.cli.init",
    "prove": "zkmigrate.cli.prove",
    "replay": "zkmigrate.cli.replay",
    "writers": "zkmigrate.cli.writers",
    "zxid": "zkmigrate.cli.zxid",
}
"""Verbs, and groups of verbs, whose options are in a module of their own: its ``command`` makes them."""


_GROUPS = {
    "Look (changes nothing)": {
        "init": "Write a first migration.yml from what the hosts show.",
        "preflight": "Check everything that could go wrong.",
        "plan": "Print every change that is known now.",
        "status": "Show where a run stands and what it does now.",
        "report": "Write one page about a run: timeline, gaps, proofs.",
        "watch": "Look for days after the move: dest whole, nobody on source.",
    },
    "Move": {
        "run": "Begin a run.",
        "resume": "Continue a run that was interrupted.",
        "rollback": "Walk a run back, to the start of a step or of everything.",
        "hold": "Make a run wait at its next place.",
        "release": "Continue a run that waits.",
        "retire": "Leave a broker that is gone for good out of a run.",
        "clean-up": "After finalize: delete from dest what other tenants left there.",
    },
    "By hand": {
        "runbook": "Write the steps as a page to follow without the tool.",
        "replay": "List what dest did behind the open door.",
    },
    "Proofs": {
        "prove": "Prove from disks that dest holds what source holds.",
        "zxid": "Show the newest transaction of a disk or a subtree.",
    },
    "Analysis": {
        "analyze": "Answer questions from logs and snapshots, with Spark.",
        "collect": "Copy logs and snapshots of servers into a folder.",
        "writers": "Show which sessions wrote under a chroot.",
    },
    "Lab and shell": {
        "lab": "Start real ZooKeeper and Kafka hosts on this machine.",
        "completion": "Print the script that completes words in a shell.",
    },
}


class Verbs(click.Group):
    """The verbs; ``lab`` is imported only when one of its commands is used."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.list_commands(ctx)))
        for group, verbs in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(verb.ljust(widest), line) for verb, line in verbs.items()])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*sorted((*super().list_commands(ctx), *_ELSEWHERE)), "lab"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "lab":  # for the list of verbs
            return click.Group("lab", help="Real ZooKeeper and Kafka hosts on this machine, to try on.")
        if cmd_name in _ELSEWHERE:
            made: click.Command = importlib.import_module(_ELSEWHERE[cmd_name]).command(_do)
            return made
        return super().get_command(ctx, cmd_name)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Take over what is printed, and Ctrl-C, before anything else is done."""
        clean_streams()
        given = extra.get("args", args[0] if args else None)
        words = sys.argv[1:] if given is None else list(given)
        here = threading.current_thread() is threading.main_thread()
        if words[:1] == ["lab"] or not here:  # a lab takes its hosts down first, however often it is asked
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
            sys.stderr.flush()
            os._exit(130)  # threads that wait for a silent host must not keep us

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] == "lab":
            group: click.Command = importlib.import_module("zkmigrate.lab.cli").lab
            return "lab", group, args[1:]
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs)
@click.version_option(package_name="zkmigrate")
def cli() -> None:
    """Move a Kafka cluster from one ZooKeeper ensemble to another, step by step, with a way back.

    Exit codes: 0 done, 2 usage or inventory, 3 preflight failed, 4 plan stale or applied, 5 locked, 6 a gate
    is closed, 7 turned back by itself, 8 an operator is needed, 9 the lease ended, 10 or 11 what watch saw or
    prove, replay or collect --verify found, 130 interrupted.
    """


@cli.command()
@flags.common
def preflight(**options: Any) -> None:
    """Look at everything that could go wrong; change nothing."""
    _say_first("preflight", options)
    from zkmigrate.runs import preflight as looks

    _do(lambda: looks.preflight(_setting(options)))


@cli.command()
@flags.common
@flags.which_run("The run whose rehearsal tells how long the window will be.")
@click.option("--out", type=flags.FILE, help="Write the plan to this file too, for run --plan.")
@click.option("--force", is_flag=True, help="--out may take the place of a file that is there.")
@click.option(
    "--show", type=flags.FILE, help="Print the plan in this file instead, and whether it still holds."
)
@click.option("--offline", is_flag=True, help="--show asks no host.")
def plan(
    run_id: str, out: Path | None, force: bool, show: Path | None, offline: bool, **options: Any
) -> None:
    """Print every change, command and file diff that is known now; change nothing."""
    _say_first("plan", options)
    from zkmigrate.runs import plan_verb

    if show is not None and (out is not None or run_id or force):
        raise click.UsageError(
            "--show prints a plan that was made; it goes with -i, --offline and --json only"
        )
    if force and out is None:
        raise click.UsageError("--force is for --out FILE")
    if offline and show is None:
        raise click.UsageError("--offline is for --show FILE: a new plan needs the hosts")
    if show is not None:
        _do(lambda: plan_verb.show_saved(_setting(options), show, offline=offline))
    else:
        _do(lambda: plan_verb.show_plan(_setting(options), run_id, out, force=force))


@cli.command()
@flags.common
@flags.which_run("The run to go on with by hand, and whose rehearsal's figures to use.")
@click.option(
    "--format",
    type=click.Choice(["md"]),
    default="md",
    show_default=True,
    expose_value=False,
    help="Markdown.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write FILE, and zkm-host beside it; else print."
)
@click.option("--go-no-go", is_flag=True, help="The one page to print and sign before the cut-over instead.")
def runbook(run_id: str, out: Path | None, go_no_go: bool, **options: Any) -> None:
    """Export the same steps as a page to follow by hand when the tool is down; change nothing."""
    _say_first("runbook", options)
    from zkmigrate.runs import runbook_verb

    _do(lambda: runbook_verb.show_runbook(_setting(options), run_id, out, go_no_go=go_no_go))


@cli.command()
@flags.common
@flags.walking
@click.option("--plan", type=flags.FILE, help="Only if this plan (plan --out, plan --json) still holds.")
def run(**options: Any) -> None:
    """Begin a run, or walk one forward that has turned back."""
    _say_first("run", options)
    from zkmigrate.runs import run_verbs

    _do(lambda: run_verbs.run(_setting(options), _wishes(options)))


@cli.command()
@flags.common
@flags.walking
@click.option(
    "--journal-lost",
    type=click.Choice(["forward", "back"]),
    default=None,
    help="The journal is lost or damaged: take the position from the hosts, and go this way.",
)
def resume(**options: Any) -> None:
    """Go on with a run that was interrupted, in the direction it was going."""
    _say_first("resume", options)
    from zkmigrate.runs import run_verbs

    _do(lambda: run_verbs.resume(_setting(options), _wishes(options)))


@cli.command()
@flags.common
@flags.run_id
@flags.yes
@flags.steal
@flags.metrics
@flags.named(
    "--to", "steps", "STEP", "Back to the start of this stage or stage.step; left out, of everything."
)
def rollback(**options: Any) -> None:
    """Walk back, step by step, to the start of a named step or of everything."""
    _say_first("rollback", options)
    from zkmigrate.runs import run_verbs

    _do(lambda: run_verbs.rollback(_setting(options), _wishes(options)))


@cli.command()
@flags.common
@flags.run_id
@click.argument("host")
@click.option(
    "--reason", required=True, metavar="TEXT", help="Shown on every later screen and in the report."
)
def retire(host: str, run_id: str, reason: str, **options: Any) -> None:
    """Leave a broker that is gone for good out of a run; changes no host.

    Proved first: it serves nothing, and it is no client of source. There is no way to take it back in.
    """
    _say_first("retire", options)
    from zkmigrate.moves.verbs import retire as retiring

    _do(lambda: retiring.retire(_setting(options), run_id, host, reason))


@cli.command("clean-up")
@flags.common
@flags.run_id
@flags.yes
@click.option("--subtree", "subtrees", multiple=True, metavar="PATH", help="Delete this one of the list.")
@click.option("--all", "all_", is_flag=True, help="Delete every one of the list.")
@click.option("--reason", default="", metavar="TEXT", help="Why; needed to delete, shown in the report.")
@click.option(
    "--accept",
    multiple=True,
    metavar="ID:TARGET",
    help="Answer for this finding: clean-up.watches, clean-up.clients, clean-up.chroots, clean-up.children.",
)
@click.option("--put-back", is_flag=True, help="Create again what is missing of --subtree or --all.")
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=500.0,
    show_default=True,
    metavar="N",
    help="Znodes a second; 0: as fast as dest takes them.",
)
def clean_up(run_id: str, all_: bool, **options: Any) -> None:
    """List what other tenants of source left on dest, and delete what is named, after finalize.

    Without --subtree or --all it only lists. It proves that no session owns, watches or writes a subtree, and
    keeps the subtree in the run's directory, before it deletes it. Begun again it goes on.
    """
    _say_first("clean-up", options)
    from zkmigrate.moves.verbs import clean_up as cleaning

    names = ("yes", "subtrees", "reason", "accept", "put_back", "rate")
    wishes = {name: options.pop(name) for name in names}
    _do(lambda: cleaning.clean_up(_setting(options), cleaning.Wishes(run_id=run_id, all=all_, **wishes)))


@cli.command()
@flags.common
@flags.run_id
@click.option("--offline", is_flag=True, help="Only the files of the run; ask no host.")
@flags.named(
    "--wait",
    "steps or end",
    "STEP",
    "First wait until this stage or stage.step is done, or with 'end' until the process at work ends.",
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="S", help="Seconds to wait at the most."
)
@flags.named(
    "--findings", "steps or all", "STEP", "Also what this stage or stage.step, or all, found, whole."
)
def status(
    run_id: str, offline: bool, wait: str, timeout_s: float | None, findings: str, **options: Any
) -> None:
    """Where a run stands and what it is doing now; reads only.

    With --wait the exit code is 0 when STEP was reached; 1 when it was not within --timeout, or the process
    ended with 0 without it; else the code that the process ended with, 8 where it left without a word.
    """
    _say_first("status", options)
    from zkmigrate.runs import run_status

    if timeout_s is not None and not wait:
        raise click.UsageError("--timeout goes with --wait")
    asked: dict[str, Any] = {"offline": offline, "wait": wait, "timeout_s": timeout_s, "findings": findings}
    _do(lambda: run_status.status(_setting(options), run_id, **asked))


@cli.command()
@flags.common
@flags.run_id
@flags.named(
    "--at",
    "places",
    "STEP",
    "Before this stage, before this stage.step outside the window, or after this step of the cut-over "
    "(check); left out, at the next place there is.",
)
@click.option("--why", default="", metavar="TEXT", help="Shown on screen, in status and in the journal.")
def hold(run_id: str, at: str, why: str, **options: Any) -> None:
    """Make a run wait, from a second terminal or before it is resumed; asks no host.

    It holds until `zkmigrate release`, or an answer at its own terminal. Inside the window never longer than
    its deadlines: before all hosts are sealed it then turns back, afterwards it goes on.
    """
    from zkmigrate.runs import hold_verbs

    _do(lambda: hold_verbs.hold(_setting(options), run_id, at, why))


@cli.command()
@flags.common
@flags.run_id
def release(run_id: str, **options: Any) -> None:
    """Let a run go on that holds, and say what comes next; asks no host."""
    from zkmigrate.runs import hold_verbs

    _do(lambda: hold_verbs.release(_setting(options), run_id))


@cli.command()
@flags.common
@flags.which_run("Which run; the open, else the newest one of the inventory.")
@click.option(
    "--format",
    "as_format",
    type=click.Choice(["html", "md", "json"]),
    default="html",
    show_default=True,
    help="One page without script, Markdown, or JSON (as --json).",
)
@click.option(
    "--out",
    type=flags.FILE,
    help="Where to; - is standard output. Left out: html to report.html in the run's directory, the others "
    "to standard output.",
)
@click.option(
    "--load",
    type=click.Path(path_type=Path),
    help="A directory with recordings of real clients, as the lab makes them (producer.jsonl, tenant.jsonl).",
)
def report(
    run_id: str, as_format: str, out: Path | None, load: Path | None, as_json: bool, **options: Any
) -> None:
    """What a run did: timeline, availability, gaps, proofs, decisions, digests. Asks no host."""
    from zkmigrate.engine import runs
    from zkmigrate.report import verb

    given = click.get_current_context().get_parameter_source("playbook") is not ParameterSource.DEFAULT
    asked = verb.Asked(
        inventory=options["inventory"],
        playbook=options["playbook"] if given else "",
        runs=runs.base(os.environ),
        run_id=run_id,
        format="json" if as_json else as_format,
        out=out,
        load=load,
    )
    _do(lambda: verb.report(asked, sys.stdout))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes verbs, options, runs and steps in a shell."""
    from zkmigrate.cli import completion

    click.echo(completion.script(cli, shell))


@cli.command()
@flags.common
@click.option("--once", is_flag=True, help="Look once and end, for cron.")
@click.option("--every", default="30s", show_default=True, metavar="TIME", help="Between two looks.")
@click.option("--for", "for_", default="3d", show_default=True, metavar="TIME", help="Then end.")
@flags.which_run("Which run; the open, else the newest one of the inventory, or none.")
@click.option(
    "--state",
    type=flags.FILE,
    help="What it remembers between looks; else watch.json in the run's directory.",
)
@click.option("--from-now", is_flag=True, help="Forget what was found; read source's log from its end on.")
def watch(
    once: bool, every: str, for_: str, run_id: str, state: Path | None, from_now: bool, **options: Any
) -> None:
    """Look after the move for days: dest whole, brokers on it, nobody left on source. Changes nothing.

    Ends with 10 where a claim was ever false, 11 where one is unknown at the last look, else 0.
    """
    _say_first("watch", options)

    def look() -> int:
        from zkmigrate.moves.verbs.watching import verb

        wanted = verb.Wanted(once, verb.seconds(every), verb.seconds(for_), run_id, state, from_now)
        return verb.watch(_setting(options), wanted)

    _do(look)


def _say_first(verb: str, options: dict[str, Any]) -> None:
    """A first line for somebody at a terminal: imports and silent hosts take their time."""
    if sys.stderr.isatty() and not options["as_json"]:
        click.echo(f"zkmigrate {verb} begins; Ctrl-C stops it", err=True)


def _say_stopping() -> None:
    sys.stderr.write("zkmigrate: stopping, as asked; Ctrl-C once more ends it at once\n")
    sys.stderr.flush()


def _setting(options: dict[str, Any]) -> VerbContext:
    from zkmigrate.engine import runs
    from zkmigrate.runs import verb_context

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
    from zkmigrate.runs import playbook_files
    from zkmigrate.site.wiring import Site  # paramiko and the clients are slow to import

    return Site(inventory, run_id, playbook_files.load(playbook).clusters)


def _wishes(options: dict[str, Any]) -> RunOptions:
    from zkmigrate.runs import run_verbs

    names = (
        "yes", "run_id", "until", "hold_at", "skip", "to", "plan", "steal", "journal_lost", "metrics",
        "pause_after",
    )  # fmt: skip
    return run_verbs.RunOptions(**{name: options[name] for name in names if options.get(name) is not None})


def _do(verb: Callable[[], int]) -> None:
    """Run a verb: known failures end with their message and exit code, never with a traceback."""
    try:
        code = verb()
    except ZkmigrateError as error:
        code = _refused(str(error), error.exit_code)
    except OSError as error:  # of this machine: those of the hosts have become one of ours
        code = _refused(f"{error}. Possible now: mend that on this machine, then the same again", 8)
    click.get_current_context().exit(code)


def _refused(message: str, code: int) -> int:
    """Say why, with ``--json`` on standard output too: as the last event of a verb that tells events."""
    context = click.get_current_context()
    click.echo(f"zkmigrate: {message}", err=True)
    if context.params["as_json"]:
        body: dict[str, Any] = {"code": code, "error": message}
        if context.command.name in _TELL_EVENTS:
            body = {"at": round(time.time(), 3), "event": "RunEnded"}
            body |= {"code": code, "message": message, "findings": []}
        with contextlib.suppress(OSError):  # nobody reads there any more
            click.echo(json.dumps(body, ensure_ascii=False))
    return code


main = cli

if __name__ == "__main__":
    main()
