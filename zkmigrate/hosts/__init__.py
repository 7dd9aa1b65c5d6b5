"""Hosts: how they are reached, zkm-host, and what they show."""
