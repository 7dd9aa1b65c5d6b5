"""The gateway: a proxy for Kafka's protocol that hides leader epochs, holds applications and routes them."""
