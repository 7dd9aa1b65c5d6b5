"""Read typed facts about brokers and their cluster."""
