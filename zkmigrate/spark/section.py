"""Define the answer of a job: texts, tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zkmigrate.runbook.model.report import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Picture:
    """A drawing with the text below it.

    drawn: the markup, made by `spark.charts`. caption: the text below.
    """

    drawn: str
    caption: str


@dataclass(frozen=True)
class Section:
    """The answer of one job.

    answer: a few sentences, also for the terminal. figures: values for --json. tables: the first rows of
    tables, for people. frames: complete tables by name, which are written as Parquet. proves: whether the job
    proves something. held: the result of the proof; None if it is unknown.
    """

    title: str
    answer: str
    figures: Mapping[str, Any]
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    held: bool | None = None
    proves: bool = False
