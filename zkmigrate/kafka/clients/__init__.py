"""Clients that reach brokers: admin requests and canaries."""
