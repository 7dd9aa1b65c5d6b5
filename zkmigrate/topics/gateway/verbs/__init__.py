"""The verbs of ``zkmigrate gateway``."""
