"""The verbs ``gateway …``."""
