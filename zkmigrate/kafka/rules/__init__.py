"""Decide about a Kafka cluster with pure rules."""
