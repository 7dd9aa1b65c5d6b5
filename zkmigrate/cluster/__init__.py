"""Kafka inside one cluster: placement, reassignment, throttle, new partitions, broker removal, leftovers."""
