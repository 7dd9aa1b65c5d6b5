"""Hold Kafka's own schemas of protocol messages that kafka-python does not know."""
