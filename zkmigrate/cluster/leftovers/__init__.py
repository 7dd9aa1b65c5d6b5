"""What deleted topics and past operations left in a Kafka cluster: found, and removed by name."""
