"""Moving partitions by a plan, under a throttle: steps, facts and rules."""
