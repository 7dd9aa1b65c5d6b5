"""Brokers' log directories: the formats of their files, and collecting the ends of their segments."""
