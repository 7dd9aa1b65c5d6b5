"""Typed facts about a host."""
