"""Verbs over ZooKeeper's directories by themselves, on this machine or on a host, without an inventory."""
