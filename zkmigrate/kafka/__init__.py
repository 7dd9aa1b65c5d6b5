"""Kafka: its clients and canaries, facts about brokers, and who may be restarted next."""
