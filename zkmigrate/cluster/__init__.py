"""Work inside one Kafka cluster: place and move partitions, set throttles, remove brokers and leftovers."""
