"""Runbooks that move Kafka, and other dependents, between ZooKeeper ensembles."""
