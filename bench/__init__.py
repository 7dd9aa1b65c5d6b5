"""Measurements, each beside a peer in the same run: ratios and their spread, never a limit of a test."""
