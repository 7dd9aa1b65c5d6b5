"""Clients of ZooKeeper on the operator's machine: four-letter words, AdminServer, sessions."""
