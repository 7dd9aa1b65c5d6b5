"""Carry out the verbs that concern a run; ``zkmigrate.cli`` only parses their command lines.

Each verb is a function that returns the exit code (docs/reference/exit-codes.md) or raises a ZkmigrateError
that carries it. ``verb_context`` holds what all verbs need.
"""
