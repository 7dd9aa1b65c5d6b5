"""What the moves need to know about each system that depends on ZooKeeper, one file each."""
