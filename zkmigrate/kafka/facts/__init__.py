"""Typed facts about brokers and their cluster."""
