"""Hold the jobs, one module each. A job's module has the function ``run(input: Input) -> Section``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from zkmigrate.errors import UsageError

if TYPE_CHECKING:
    from zkmigrate.spark.input import Input
    from zkmigrate.spark.section import Section

JOBS = (
    "tenants", "writers", "quiet", "sessions", "continuity", "proof", "diff", "placement", "mirror",
)  # fmt: skip
"""The names of the jobs in the order of the page. Each job is a module of this package."""

OWN_INPUT = {
    "proof": "dest_dirs", "diff": "dest_dirs", "placement": "fleet_partitions", "mirror": "source_logs",
}  # fmt: skip
"""The jobs that read more than source's directories, each with the option that names its input.

``all`` skips a job whose option is not given.
"""


def job(name: str) -> Callable[[Input], Section]:
    """Return the ``run`` function of a job by its name.

    Raises UsageError if the job needs a missing package, as on a machine with only Spark and the shipped
    code.
    """
    try:
        run: Callable[[Input], Section] = importlib.import_module(f"{__name__}.{name}").run
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{name} needs the Python module {error.name}, which {sys.executable} does not find. Needed: "
            "its package on this machine. The other jobs do not need it"
        ) from error
    return run
