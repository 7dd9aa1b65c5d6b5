"""The report: a run's directory made into one page, its figures, or JSON. Asks no host.

``sources`` reads the files; ``build`` makes a frozen :class:`~zkmigrate.runbook.model.report.Report` of them,
purely; ``page``, ``markdown`` and ``data`` put that into words and pictures.
"""
