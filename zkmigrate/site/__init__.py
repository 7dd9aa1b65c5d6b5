"""Everything of one process that reaches hosts and clusters, put together for one inventory and run."""
