"""Plans for which broker holds which replica, made as pure functions that move few bytes."""
