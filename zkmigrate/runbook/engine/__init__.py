"""Walk a playbook and journal every effect. No other package calls ``Apply``.

Start at :mod:`zkmigrate.runbook.engine.run`.
"""
