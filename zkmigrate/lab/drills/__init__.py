"""Drills: programs that do the dangerous thing many times on real hosts, and judge each time.

``python -m zkmigrate.lab.drills.cuts``
    the cut-over again and again under load, up to CHECK and back, at last to OPEN

Each writes its result as JSON into its directory and exits 0 only when everything it claims was seen.
"""
