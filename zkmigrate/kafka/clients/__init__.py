"""Reach brokers with admin requests and canaries."""
