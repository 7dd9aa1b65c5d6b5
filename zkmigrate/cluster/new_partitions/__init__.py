"""Create a topic, or add partitions to a topic, with the replica lists of a plan."""
