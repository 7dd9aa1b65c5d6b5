"""Read ZooKeeper's files and messages, talk to its servers, and prove what its disks hold."""
