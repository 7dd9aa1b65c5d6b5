"""Immutable values and protocols; nothing here acts. Start at :mod:`zkmigrate.runbook.model.step`."""
