"""The verbs ``placement``, which writes a plan's files, page and report, and ``throttle``."""
