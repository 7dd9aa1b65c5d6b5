"""The mirror's decisions on record batches, gaps, positions and responses, without requests to brokers."""
