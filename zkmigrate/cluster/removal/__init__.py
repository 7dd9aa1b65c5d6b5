"""Removing brokers: what leaves them, how new replicas are kept away, and when they may stop."""
