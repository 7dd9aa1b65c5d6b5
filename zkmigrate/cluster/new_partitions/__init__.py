"""Create a topic, or add partitions to one, with the replica sets of a plan: section, facts, steps."""
