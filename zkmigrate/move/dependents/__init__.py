"""The systems that can be moved to another ZooKeeper ensemble, one module for each system."""
