"""The systems that depend on ZooKeeper, as the move needs to know them: one file for each system."""
