"""Run ``mirror compare`` on log directories, by the job ``mirror``."""

from __future__ import annotations

import json
from collections.abc import Callable

from zkmigrate.json_stamp import stamped
from zkmigrate.spark.request import Request
from zkmigrate.spark.session import Bounds, session
from zkmigrate.spark.verb import AnalysisError, reason

Say = Callable[[str], None]


def compare_logs(request: Request, bounds: Bounds, say: Say, hint: Say, *, as_json: bool) -> int:
    """Compare the topics, print the first difference of each partition, and return the exit code.

    The code is 0 if all is equal, 10 if a record differs, and 11 if target is behind or a part could not be
    read. Raises UsageError, and AnalysisError if Spark fails.
    """
    with session(bounds, hint) as spark:
        from pyspark.errors import PySparkException

        from zkmigrate.spark.jobs.mirror import body, compared
        from zkmigrate.topics.mirror.rules.compared import code, line, more, total

        try:
            found = compared(spark, request)
        except PySparkException as error:
            raise AnalysisError(reason(error)) from error
    if as_json:
        say(json.dumps(stamped({"partitions": [body(one) for one in found]})))
    else:
        for one in found:
            say("\n".join((line(one), *more(one))))
        say(total(found))
    return code(found)
