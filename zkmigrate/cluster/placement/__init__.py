"""Plan which broker holds which replica. The planners are pure functions and copy few bytes."""
