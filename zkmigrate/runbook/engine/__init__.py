"""The engine: walks a playbook, journals every effect, and is the only caller of ``Apply``.

Start at :mod:`zkmigrate.runbook.engine.run`.
"""
