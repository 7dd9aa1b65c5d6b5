"""The gateway: a Kafka proxy that hides leader epochs, and holds and routes applications' requests."""
