"""Create a topic, or let one grow, with the replica sets of a plan: section, facts, steps."""
