"""Remove brokers: move their replicas away, keep new replicas off them, and stop them once they are empty."""
