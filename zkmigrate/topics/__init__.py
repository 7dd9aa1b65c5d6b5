"""One config on many topics of a Kafka cluster: steps, facts, rules, model world."""
