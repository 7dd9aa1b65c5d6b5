"""Messages of Kafka's protocol that kafka-python does not know, as Kafka's own schemas of them."""
