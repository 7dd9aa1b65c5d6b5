"""Typed facts about servers and disks of an ensemble."""
