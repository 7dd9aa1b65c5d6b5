"""ZooKeeper: its files and messages, its clients, and proofs over its disks."""
