"""Pure rules about a Kafka cluster."""
