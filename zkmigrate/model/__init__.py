"""The central values: readings, findings, verdicts, changes, steps, playbooks, journal entries.

Everything here is immutable data and protocols; nothing acts. Start at :mod:`zkmigrate.model.step`.
"""
