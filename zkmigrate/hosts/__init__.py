"""Hosts: the ssh connections to them, zkm-host, and facts about them."""
