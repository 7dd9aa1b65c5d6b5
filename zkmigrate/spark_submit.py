"""Run ``zkmigrate analyze`` under spark-submit, with the Spark session that spark-submit configured.

The command's arguments follow this file's name. The code comes from the archive of ``python -m
zkmigrate.spark.pack``.
"""

import sys

from zkmigrate.cli.main import main

if __name__ == "__main__":
    main(["analyze", *sys.argv[1:]], prog_name="zkmigrate")
