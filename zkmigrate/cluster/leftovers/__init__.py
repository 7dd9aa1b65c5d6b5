"""Find what deleted topics and past operations left behind in a Kafka cluster, and remove named leftovers."""
