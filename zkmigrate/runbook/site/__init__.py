"""Hold all connections of one process to hosts and clusters, for one inventory and run."""
