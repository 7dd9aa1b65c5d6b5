"""The verbs that concern a run; the command line only parses.

Each verb is a function that returns the exit code (docs/reference/exit-codes.md) or raises a ZkmigrateError
that carries it. ``verb_context`` holds what all of them are given.
"""
