"""Drills: programs that do the dangerous thing many times on real hosts, and judge each time.

``python -m zkmigrate.lab.drills.cuts``
    the cut-over again and again under load, up to CHECK and back, at last to OPEN
``python -m zkmigrate.lab.drills.start_order``
    dest hosts whose disks end at different transactions: the safe order, the death of the freshest, and what
    the wrong order loses

``python -m zkmigrate.lab.drills.roll_faults``
    one run under load up to the roll: refused, walked back from each step, disturbed in every way
``python -m zkmigrate.lab.drills.versions``
    whole moves between the versions that are called drilled
``python -m zkmigrate.lab.drills``
    all of them, one after the other

Each writes its result as JSON into its directory and exits 0 only when everything it claims was seen.
"""
