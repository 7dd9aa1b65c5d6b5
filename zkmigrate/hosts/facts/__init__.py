"""Typed facts about hosts."""
