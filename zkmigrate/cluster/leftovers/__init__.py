"""Leftovers of deleted topics and past operations in a Kafka cluster: find them, and remove named ones."""
