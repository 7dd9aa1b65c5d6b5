"""What all tests share."""

from __future__ import annotations

import signal

# A run in the background of a script inherits an ignored SIGINT and hands it on: no Ctrl-C would arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)
