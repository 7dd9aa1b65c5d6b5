"""Verbs over ZooKeeper's own data by itself, its directories or its znodes, without an inventory."""
