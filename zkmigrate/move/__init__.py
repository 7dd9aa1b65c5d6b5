"""Change the ZooKeeper under a dependent: its steps, preflight, rules and facts, and the way to return."""
