"""The verb ``placement``, which writes a plan's files, page and report, and the verb ``throttle``."""
