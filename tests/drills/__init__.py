"""Drills: tests that do one dangerous thing many times on real hosts, and judge each time.

``make drills`` runs them; ``make test`` does not. docs/how-to/drills.md describes them.
"""
