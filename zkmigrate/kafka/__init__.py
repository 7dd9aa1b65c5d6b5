"""Talk to Kafka: clients and canaries, facts about brokers, and rules for which broker may restart next."""
