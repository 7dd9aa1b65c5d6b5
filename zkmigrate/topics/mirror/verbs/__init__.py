"""The verbs plan, run, status and compare of ``zkmigrate mirror``."""
