"""Define the command line: verbs, options and exit codes. :mod:`zkmigrate.runbook.runs` does the work.

Each verb imports heavy modules only when it runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from zkmigrate.cli import flags, removed
from zkmigrate.cli.calls import announce, context_of, do, run_options
from zkmigrate.cli.groups import Verbs
from zkmigrate.cli.throttle import throttle


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
      141 the reader of the output has closed it
      12  status: clients are blocked, and no process works on the run
    """


cli.add_command(throttle)


@cli.command()
@flags.common
@click.option(
    "--stage",
    default="",
    metavar="STAGE",
    help="Run the checks of this stage instead. after: check after a move that dest is complete, the "
    "brokers use it and source has no clients.",
)
def preflight(stage: str, **options: Any) -> None:
    """Check hosts, ensembles and brokers before a move, or after it. Changes nothing."""
    announce("preflight", options)
    from zkmigrate.runbook.runs import preflight as looks

    do(lambda: looks.preflight(context_of(options), stage))


@cli.command()
@flags.common
@flags.which_run("Use the window's length that this run's rehearsal measured.")
@click.option("--out", type=flags.FILE, help="Also write the plan to this file, for run --plan.")
@click.option("--force", is_flag=True, help="Let --out replace an existing file.")
@click.option("--show", type=flags.FILE, help="Print the plan in this file, and whether it is still valid.")
@click.option("--offline", is_flag=True, help="With --show: contact no host.")
def plan(
    run_id: str, out: Path | None, force: bool, show: Path | None, offline: bool, **options: Any
) -> None:
    """Print every change, command and file diff that is known now. Changes nothing.

    \b
    Examples:
      zkmigrate plan
      zkmigrate plan --out tonight.plan     then: zkmigrate run --plan tonight.plan
      zkmigrate plan --show tonight.plan    print it again, and whether it is still valid
    """
    announce("plan", options)
    from zkmigrate.runbook.runs import plan_verb

    if show is not None and (out is not None or run_id or force):
        raise click.UsageError("--show prints an existing plan; it takes only -i, --offline and --json")
    if force and out is None:
        raise click.UsageError("--force needs --out FILE")
    if offline and show is None:
        raise click.UsageError("--offline needs --show FILE, because a new plan needs the hosts")
    if show is not None:
        do(lambda: plan_verb.show_saved(context_of(options), show, offline=offline))
    else:
        do(lambda: plan_verb.show_plan(context_of(options), run_id, out, force=force))


@cli.command()
@flags.common
@flags.which_run("The run to continue by hand. Figures are those of its rehearsal.")
@click.option(
    "--format",
    type=click.Choice(["md"]),
    default="md",
    show_default=True,
    expose_value=False,
    help="Markdown only.",
)
@click.option(
    "--out",
    type=flags.FILE,
    help="Write this file, and zkm-host to the same folder. Default: print the page.",
)
@click.option("--go-no-go", is_flag=True, help="Write only the page to sign before the cut-over.")
def runbook(run_id: str, out: Path | None, go_no_go: bool, **options: Any) -> None:
    """Write every change and its undo as a page of commands, in case the tool fails. Changes nothing."""
    announce("runbook", options)
    from zkmigrate.runbook.runs import runbook_verb

    do(lambda: runbook_verb.show_runbook(context_of(options), run_id, out, go_no_go=go_no_go))


@cli.command()
@flags.common
@flags.walking
@removed.options("run")
@click.option("--plan", type=flags.FILE, help="Begin only if this plan (of plan --out) is still valid.")
def run(**options: Any) -> None:
    """Begin a run, or restart one that has turned back.

    \b
    Examples:
      zkmigrate run --until rehearse        join dest and rehearse; no broker restarts
      zkmigrate run --plan tonight.plan     only if that plan is still valid
      zkmigrate run --log-file night.log    log each command to a host in a file
    """
    announce("run", options)
    from zkmigrate.runbook.runs import run_verbs

    do(lambda: run_verbs.run(context_of(options), run_options(options)))


@cli.command()
@flags.common
@flags.walking
@removed.options("resume")
@click.option(
    "--journal-lost",
    type=click.Choice(["forward", "back"]),
    default=None,
    help="The journal is lost or damaged: read the position from the hosts, then continue in this direction.",
)
def resume(**options: Any) -> None:
    """Continue an interrupted run in its direction."""
    announce("resume", options)
    from zkmigrate.runbook.runs import run_verbs

    do(lambda: run_verbs.resume(context_of(options), run_options(options)))


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
    """Undo a run back to the start of a step, or to its beginning."""
    announce("rollback", options)
    from zkmigrate.runbook.runs import run_verbs

    do(lambda: run_verbs.rollback(context_of(options), run_options(options)))


@cli.command()
@flags.common
@flags.run_id
@click.argument("host")
@click.option(
    "--reason", required=True, metavar="TEXT", help="The reason. Every later screen and the report show it."
)
def retire(host: str, run_id: str, reason: str, **options: Any) -> None:
    """Exclude a permanently lost broker from a run. Changes no host.

    First proves that the broker serves no partition and is not a client of source. You cannot undo this.
    """
    announce("retire", options)
    from zkmigrate.move.verbs import retire as retiring

    do(lambda: retiring.retire(context_of(options), run_id, host, reason))


@cli.command()
@flags.common
@flags.run_id
@click.option("--offline", is_flag=True, help="Read only the run's files; contact no host.")
@click.option("--watch", "again", is_flag=True, help="On a terminal, refresh every 2 s until Ctrl-C.")
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
    """Show the position of a run and its current activity. Changes nothing.

    \b
    Examples:
      zkmigrate status                      the open run, or else the newest
      zkmigrate status --watch              refresh every 2 s; Ctrl-C ends it (130)
      zkmigrate status --wait roll          return when the roll is done

    Exit code 12: a window blocks or may block clients, and no process works on the run.

    Exit codes with --wait: 0 STEP was reached; 1 --timeout passed, or the run's process ended with 0 before
    STEP; 8 the process left no exit code. Otherwise the exit code of the process.
    """
    announce("status", options)
    from zkmigrate.runbook.runs import run_status

    if timeout_s is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    if again and (wait or options["as_json"] or not sys.stdout.isatty()):
        raise click.UsageError("--watch needs a terminal, and cannot be used with --wait or --json")
    asked: dict[str, Any] = {"offline": offline, "wait": wait, "timeout_s": timeout_s, "findings": findings}
    if again:
        from zkmigrate.runbook.runs import status_watch

        do(lambda: status_watch.watch(context_of(options), run_id, offline=offline, findings=findings))
        return
    do(lambda: run_status.status(context_of(options), run_id, **asked))


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
    """Make a run wait, from a second terminal, or before run or resume. Contacts no host.

    The run holds until `zkmigrate release` or an answer at its own terminal. Inside the window it holds at
    most until the deadline. Then it turns back or, once all hosts are sealed, continues. For a run that has
    not started, pass hold and run the same --run-id.
    """
    from zkmigrate.runbook.runs import hold_verbs

    do(lambda: hold_verbs.hold(context_of(options), run_id, at, why))


@cli.command()
@flags.common
@flags.run_id
def release(run_id: str, **options: Any) -> None:
    """Continue a held run and print the next step. Contacts no host."""
    from zkmigrate.runbook.runs import hold_verbs

    do(lambda: hold_verbs.release(context_of(options), run_id))


@cli.command()
@flags.common
@flags.which_run("Default: the open run of the inventory, or else its newest.")
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
    """Write what a run did: timeline, availability, gaps, proofs, decisions, digests. Contacts no host."""
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
    do(lambda: verb.report(request, sys.stdout))


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
        do(lambda: _explain(what))


def _explain(id: str) -> int:
    from zkmigrate.cli import findings

    if id == "findings":
        click.echo_via_pager(findings.page())
        return 0
    found = findings.entry(id)
    click.echo("\n".join((found.meaning.id, *(f"  {line}" for line in found.lines()))))
    return 0


main = cli

if __name__ == "__main__":
    main()
