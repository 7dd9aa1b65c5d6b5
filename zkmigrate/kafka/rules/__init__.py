"""Pure rules of a Kafka cluster: who may be restarted next, which leaders are misled, its connect string."""
