"""Remove brokers: which replicas leave them, how new replicas are kept off, and when they may stop."""
