"""Decisions of the mirror: record batches, gaps, positions, answers. Nothing here asks a broker."""
