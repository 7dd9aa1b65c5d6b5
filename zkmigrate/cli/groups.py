"""Define the groups of verbs: which verbs there are, and in which order help lists them."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

import click

from zkmigrate.clean import clean_streams
from zkmigrate.cli import removed
from zkmigrate.cli.calls import do
from zkmigrate.runbook.engine.clock import Interrupt

_ELSEWHERE = (
    "analyze", "collect", "gateway", "init", "mirror", "placement", "prove", "replay", "writers", "zxid",
)  # fmt: skip
"""Verbs and groups of verbs in their own modules of this package; ``command`` of a module creates them."""

_MOVE = {
    "init": "Write a first migration.yml from facts of the hosts.",
    "preflight": "Check hosts, ensembles and brokers, before or after a move.",
    "plan": "Print every change that is known so far.",
    "run": "Begin a run.",
    "status": "Show the position of a run and its current activity.",
    "hold": "Make a run wait at the next possible place.",
    "release": "Continue a held run.",
    "resume": "Continue an interrupted run.",
    "rollback": "Undo a run back to the start of a step, or to its beginning.",
    "retire": "Exclude a permanently lost broker from a run.",
    "throttle": "Set, show or clear the rates of a run that moves partitions.",
    "report": "Write a page about a run: timeline, gaps, proofs.",
    "runbook": "Write the steps as a page of commands.",
}
_AREAS: Mapping[str, Mapping[str, str]] = {
    "topics": {
        "mirror": "Copy topics to another Kafka cluster at equal offsets.",
        "gateway": "Relay clients to one of two clusters: hide epochs, hold, route.",
    },
    "disks": {
        "prove": "Prove from disks that dest has all that source has.",
        "zxid": "Show the newest transaction of a disk or a subtree.",
        "writers": "Show which sessions wrote under a chroot.",
        "replay": "List the transactions that dest wrote after the cut and source lacks.",
        "collect": "Copy logs and snapshots of servers into a folder.",
        "analyze": "Analyze logs and snapshots with Spark.",
    },
}
"""Verbs that are listed by the help of their area. They work with or without its name before them."""

_OTHER = {
    "placement": "Plan which brokers hold which replicas.",
    "topics": "Copy topics to a second cluster, and switch clients to it.",
    "disks": "Prove and analyze the content of ZooKeeper's files.",
    "lab": "Start real ZooKeeper and Kafka hosts on this machine.",
    "completion": "Print the completion script for a shell.",
    "help": "Explain a finding by its id, or show a verb's options.",
}


class Area(click.Group):
    """A named group of verbs, which has its own page of help. verbs: the group that contains all verbs."""

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
            made: click.Command = importlib.import_module(f"zkmigrate.cli.{cmd_name}").command(do)
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


def _say_stopping() -> None:
    sys.stderr.write("zkmigrate: stopping; press Ctrl-C again to exit at once\n")
    sys.stderr.flush()
