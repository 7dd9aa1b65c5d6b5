"""Which broker holds which replica: plans that move few bytes, as pure functions."""
