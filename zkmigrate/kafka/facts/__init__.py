"""What brokers and their cluster show, as typed facts."""
