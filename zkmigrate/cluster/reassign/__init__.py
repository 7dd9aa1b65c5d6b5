"""Move partitions as a plan says, under a throttle: steps, facts and rules."""
