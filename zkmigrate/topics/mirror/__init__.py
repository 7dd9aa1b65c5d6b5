"""Copy topics to a second Kafka cluster at equal offsets."""
