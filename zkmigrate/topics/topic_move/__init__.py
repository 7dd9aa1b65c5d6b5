"""The planned switch of topics and their applications from one Kafka cluster to another."""
