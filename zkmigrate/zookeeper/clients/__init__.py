"""Clients of ZooKeeper and Kafka as seen from the operator: four-letter words, sessions, admin, canary."""
