"""Drills: programs that do one dangerous thing many times on real hosts, and judge each time.

``programs.py`` lists them, ``runner.py`` runs one, ``python -m zkmigrate.lab.drills`` runs all. Each writes
its result as JSON into its directory and exits 0 only when each of its cases held.
"""
