"""Move a dependent to another ZooKeeper ensemble and back: steps, preflight checks, rules and facts."""
