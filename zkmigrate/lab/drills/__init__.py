"""Drills: programs that do the dangerous thing many times on real hosts, and judge each time.

``python -m zkmigrate.lab.drills.cuts``
    the cut-over again and again under load, up to CHECK and back, at last to OPEN
``python -m zkmigrate.lab.drills.start_order``
    dest hosts whose disks end at different transactions: the safe order, the death of the freshest, and what
    the wrong order loses

Each writes its result as JSON into its directory and exits 0 only when everything it claims was seen.
"""
