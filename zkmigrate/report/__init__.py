"""Make the report of a run from its directory: one page, its figures, or JSON. No host is queried.

``sources`` reads the files. ``build`` makes a frozen :class:`~zkmigrate.runbook.model.report.Report` of them
without side effects. ``page``, ``markdown`` and ``data`` turn that into words and pictures.
"""
