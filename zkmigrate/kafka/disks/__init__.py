"""Read brokers' log directories: the formats of their files, and the ends of their segments."""
