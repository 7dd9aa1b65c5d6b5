"""What the verbs do, one module a noun; ``cli.py`` only parses.

Each verb is a function that returns the exit code (docs/reference/exit-codes.md) or raises a ZkmigrateError
that carries it. ``setting`` holds what all of them are given.
"""
